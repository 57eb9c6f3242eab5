"""Parses command lines: which program really runs, and which arguments are code.

Independent of definitions: `masking` uses it to decide what can be masked, `dangers` what to warn of.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "fish", "ksh", "cmd", "powershell", "pwsh"})
_CODE_FLAGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(SHELLS, frozenset({"-c", "-lc", "-ic", "-ec", "/c", "/k", "-command", "-encodedcommand", "-enc"})),
    "node": frozenset({"-e", "--eval", "-p", "--print", "-pe", "-r", "--require", "--import"}),
    "bun": frozenset({"-e", "--eval", "-p", "--print", "exec"}),
    "deno": frozenset({"eval", "repl"}),
    "python": frozenset({"-c"}),
    "perl": frozenset({"-e"}),
    "ruby": frozenset({"-e"}),
    "php": frozenset({"-r"}),
    "npx": frozenset({"-c", "--call"}),
    "npm": frozenset({"-c", "--call"}),
    "osascript": frozenset({"-e"}),
}
_WRAPPERS = frozenset({"env", "nohup", "nice", "time", "timeout", "stdbuf", "xargs", "sudo", "doas"})


@lru_cache(maxsize=1024)
def program(command: str) -> str:
    """Return the bare name of a program, without directory, Windows suffix or version number."""
    name = PureWindowsPath(command).name if "\\" in command else PurePosixPath(command).name
    name = re.sub(r"\.(?:exe|cmd|bat|ps1)$", "", name, flags=re.IGNORECASE).lower()
    return re.sub(r"(?<=^python)[0-9.]+$", "", name)


def unwrapped(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command line without wrappers such as `env` or `sudo` and without leading assignments."""
    rest = list(words)
    while rest:
        if re.match(r"^[A-Za-z_]\w*=", rest[0]):
            rest.pop(0)
        elif program(rest[0]) in _WRAPPERS:
            rest.pop(0)
            while rest and (rest[0].startswith("-") or re.match(r"^(?:\d+[smhd]?|[A-Za-z_]\w*=.*)$", rest[0])):
                rest.pop(0)
        else:
            break
    return tuple(rest)


def code_words(words: Sequence[str]) -> frozenset[int]:
    """Return the indices of arguments that a shell or an interpreter runs as code."""
    rest = unwrapped(words)
    before = len(words) - len(rest)
    name = program(rest[0]) if rest else ""
    return frozenset(before + index + 1 for index, word in enumerate(rest) if index and takes_code(name, word))


def takes_code(name: str, word: str) -> bool:
    """Return whether this argument of the program is followed by code."""
    flag = word.lower()
    return flag in _CODE_FLAGS.get(name, ()) or (name in SHELLS and flag.startswith("-c"))
