"""Patterns over `server/tool`: globs, anchored at both ends, matched part by part and case by case.

The text before the first slash is a glob for the server, the rest one for the tool: `*` never reaches from one into the
other, and `*` alone names every tool. `?` and `[…]` work as in a shell. What people write instead of a pattern (the
name a model sees, the bare name of a built-in tool) is translated once, when a rule is written, by looking it up in the
names passed in; nothing here takes such a name apart.

Above: rules and grants. Below: `model`. It must never let a pattern it cannot read name anything.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from toolcrib.model.tools import ToolRef

Matcher: TypeAlias = Callable[[str], object]
LONGEST = 512
_SPECIAL = re.compile(r"[*?\[]")


@lru_cache(maxsize=4096)
def glob(text: str) -> Matcher:
    """Whether a whole text fits this glob, as a function with a true or false result.

    Stars alone are searched for piece by piece, which is ten times faster to prepare than an expression.
    """
    if _SPECIAL.search(text) is None:
        return text.__eq__
    if "?" in text or "[" in text:
        return re.compile(translate(text)).match
    first, *middle, last = text.split("*")
    shortest = len(first) + len(last)

    def fits(value: str) -> bool:
        end = len(value) - len(last)
        if len(value) < shortest or not value.startswith(first) or not value.endswith(last):
            return False
        at = len(first)
        for piece in middle:
            at = value.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return fits


def literally(ref: ToolRef) -> str:
    """The pattern that names this tool and no other."""
    return "/".join(_SPECIAL.sub(lambda special: f"[{special[0]}]", part) for part in ref)


class Parts(NamedTuple):
    """A pattern's globs for server and tool."""

    server: str
    tool: str


def parts(pattern: str) -> Parts | None:
    """The two globs of a pattern; None for one that names nothing."""
    server, slash, tool = pattern.partition("/")
    if not slash and pattern and not pattern.strip("*"):
        return Parts("*", "*")
    return Parts(server, tool) if slash and server and tool else None


def names(pattern: str, ref: ToolRef) -> bool:
    """Whether a pattern names a tool."""
    globs = parts(pattern)
    return globs is not None and bool(glob(globs.server)(ref.server) and glob(globs.tool)(ref.tool))


class PatternIndex:
    """Numbered patterns, arranged so that those which name a tool are found without trying all of them."""

    __slots__ = ("_anywhere", "_exact", "_of_server")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._exact: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._of_server: defaultdict[str, list[tuple[int, str, Matcher | None]]] = defaultdict(list)
        self._anywhere: list[tuple[int, Matcher | None, Matcher | None]] = []
        for number, pattern in enumerate(patterns):
            globs = parts(pattern)
            if globs is None:
                continue
            server, tool = globs
            if _SPECIAL.search(server) is not None:
                self._anywhere.append((number, _matcher(server), _matcher(tool)))
            elif _SPECIAL.search(tool) is not None:
                self._of_server[server].append((number, _SPECIAL.split(tool, 1)[0], _matcher(tool)))
            else:
                self._exact[globs].append(number)

    def find(self, ref: ToolRef) -> list[int]:
        """The numbers of the patterns that name this tool, in order."""
        server, tool = ref
        found = list(self._exact.get(ref, ()))
        for number, prefix, fits in self._of_server.get(server, ()):
            if tool.startswith(prefix) and (fits is None or fits(tool)):
                found.append(number)
        for number, fits_server, fits in self._anywhere:
            if (fits_server is None or fits_server(server)) and (fits is None or fits(tool)):
                found.append(number)
        found.sort()
        return found


def _matcher(text: str) -> Matcher | None:
    """The test of a glob; None where everything fits."""
    return None if text == "*" else glob(text)


@dataclass(frozen=True, slots=True)
class Names:
    """What people may write instead of `server/tool`: names of tools, and names that stand for a whole server.

    Whoever makes this knows the table of names: `mcp__github__search` → `github/search`, `Bash` → `claude_code/Bash`,
    and for servers `mcp__github` → `github`.
    """

    tools: Mapping[str, ToolRef] = field(default_factory=dict[str, ToolRef])
    servers: Mapping[str, str] = field(default_factory=dict[str, str])


def bare_names(refs: Iterable[ToolRef]) -> dict[str, ToolRef]:
    """The tools by their bare names; a name that two of them have stands for neither."""
    found: dict[str, ToolRef] = {}
    twice: set[str] = set()
    for ref in refs:
        if found.setdefault(ref.tool, ref) != ref:
            twice.add(ref.tool)
    return {name: ref for name, ref in found.items() if name not in twice}


def understood(text: str, known: Names) -> str | None:
    """The pattern that a person means by this text; None where it means nothing here."""
    text = text.strip()
    if len(text) > LONGEST:
        return None
    if (ref := known.tools.get(text)) is not None:
        return literally(ref)
    if (server := known.servers.get(text.removesuffix("__*"))) is not None:
        return _SPECIAL.sub(lambda special: f"[{special[0]}]", server) + "/*"
    return text if parts(text) is not None else None
