"""Proposes the conditions of a remembered answer: the command, the paths and the address that the person saw.

The narrowest conditions match exactly the requested call. A person may choose one of the proposed wider prefixes, and
nothing else: the first words of a command, a directory above a path, the address of a site. A command that a shell may
split has no prefix (see `policy.commands`).

Must never propose a condition that matches a call the person would not expect from its wording.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.commands import words_of
from toolcrib.gate.policy.paths import LEXICAL, Files, is_path_name, normal
from toolcrib.gate.policy.zones import is_decisive, is_inside
from toolcrib.model.approvals import ApprovalRequest, Prefix, Remembering
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object, loads
from toolcrib.model.policy import Condition

LONGEST_VALUE = 2_000
"""Maximum characters of an argument that a rule repeats."""
_MOST_PREFIXES = 4
_COMMANDS = frozenset({"command", "cmd", "commandline", "shellcommand", "script", "bash"})
_ADDRESSES = frozenset({"url", "uri", "href", "link"})
_MANY_IN_ONE = frozenset({
    "ansible", "aws", "az", "brew", "bun", "bundle", "cargo", "conda", "deno", "docker", "dotnet", "flutter",
    "gcloud", "gh", "git", "go", "gradle", "helm", "hg", "jj", "just", "kubectl", "make", "mvn", "npm", "nx",
    "pip", "pip3", "pixi", "pnpm", "podman", "poetry", "rake", "rustup", "svn", "systemctl", "task",
    "terraform", "tofu", "turbo", "uv", "yarn",
})  # fmt: skip
"""Programs with subcommands: a prefix needs at least two words."""
_RUN_ANYTHING = frozenset({
    "ash", "awk", "bash", "busybox", "chroot", "cmd", "command", "cscript", "csh", "dash", "doas", "env",
    "eval", "exec", "expect", "fish", "find", "ionice", "ksh", "lua", "make", "nice", "node", "nohup", "npx",
    "osascript", "parallel", "perl", "php", "pipx", "powershell", "pwsh", "python", "python3", "ruby",
    "runuser", "rundll32", "sed", "sh", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "tclsh", "time",
    "timeout", "uvx", "watch", "wsl", "xargs", "zsh",
})  # fmt: skip
"""Programs that run their arguments: only the exact command is proposed."""
_RUN_SUBCOMMANDS = frozenset({"run", "exec", "x", "dlx", "eval", "shell", "ssh"})
_NO_SANDBOX = "dangerouslyDisableSandbox"
_WIDENING = frozenset({("Glob", "pattern"), ("Bash", _NO_SANDBOX)})
"""Arguments of the coding agent's tools that a rule repeats, in addition to commands and paths."""
_DECISIVE = "Edits of files that decide what runs need approval every time, so this call can only be answered once."
_ONCE = "The arguments are too long for a rule, so this call can only be answered once."
_SECRET = "The arguments appear to contain a secret, which no rule may repeat, so the answer applies to this call only."
_SET = "This is a set of calls of one program, so it can only be answered once."


def propose(
    question: ApprovalRequest,
    redact: Callable[[Json, bytes], bytes] = lambda _, encoded: encoded,
    files: Files = LEXICAL,
) -> Remembering:
    """Return the conditions and prefixes of a remembered answer. `redact` masks secrets in arguments."""
    given: Json = loads(question.arguments)
    if question.once:
        return Remembering(refusal=_SET)
    if not is_object(given):
        return Remembering()
    proposals = list(_proposals(question, given, files))
    conditions = tuple(condition for condition, _ in proposals)
    if any(len(dumps(each.value)) > LONGEST_VALUE for each in conditions):
        return Remembering(refusal=_ONCE)
    edits = question.ref.server == coding_tools.SERVER and question.ref.tool in coding_tools.EDITORS
    if edits and any(each.test == "path" and is_decisive(each.value) for each in conditions):
        return Remembering(refusal=_DECISIVE)
    repeated = {each.pointer: each.value for each in conditions}
    encoded = dumps(repeated)
    if conditions and redact(repeated, encoded) != encoded:
        return Remembering(refusal=_SECRET)
    return Remembering(conditions, tuple(prefix for _, prefixes in proposals for prefix in prefixes))


def _proposals(question: ApprovalRequest, given: JsonObject, files: Files) -> Iterator[tuple[Condition, list[Prefix]]]:
    coded = question.ref.server == coding_tools.SERVER
    for name, value in given.items():
        pointer = f"/{name.replace('~', '~0').replace('/', '~1')}"
        plain = name.lower().replace("_", "").replace("-", "")
        if plain in _COMMANDS and (isinstance(value, str) or is_array(value)):
            yield Condition(pointer, "equals", value), [*_command_prefixes(pointer, value)]
        elif plain in _ADDRESSES and isinstance(value, str):
            yield Condition(pointer, "equals", value), [*_site(pointer, value)]
        elif is_path_name(name) and isinstance(value, str) and value:
            yield _path(pointer, value, question, files)
        elif _is_target(name) or (coded and (question.ref.tool, name) in _WIDENING):
            yield Condition(pointer, "equals", value), []
    for name in _absent(question):
        if name not in given:
            yield Condition(f"/{name.replace('~', '~0').replace('/', '~1')}", "present", False), []


def _is_target(name: str) -> bool:
    """Return whether an argument of this name usually holds a command, an address or a path."""
    plain = name.lower().replace("_", "").replace("-", "")
    return plain in _COMMANDS or plain in _ADDRESSES or is_path_name(name)


def _absent(question: ApprovalRequest) -> Sequence[str]:
    """Return the arguments that would widen a later call if this one does not have them."""
    tool = question.ref.tool
    if question.ref.server != coding_tools.SERVER:
        return sorted(filter(_is_target, question.argument_names))
    own = coding_tools.PATH_ARGUMENT.get(tool)
    if own is not None:
        return own, coding_tools.PATHS
    return (_NO_SANDBOX,) if tool == coding_tools.COMMAND else ()


def _command_prefixes(pointer: str, command: Json) -> Iterator[Prefix]:
    words = words_of(command) if isinstance(command, str) else None
    if words is None or words[0].rpartition("/")[2] in _RUN_ANYTHING or len(words) == 1:
        return
    least = 2 if words[0] in _MANY_IN_ONE else 1
    if least == 2 and (words[1].startswith("-") or words[1] in _RUN_SUBCOMMANDS):
        return
    lengths = range(min(len(words) - 1, least + _MOST_PREFIXES - 1), least - 1, -1)
    for length in lengths or (least,):
        prefix = " ".join(words[:length])
        if words_of(prefix) == words[:length]:
            yield Prefix(prefix, Condition(pointer, "command", prefix))


def _site(pointer: str, address: str) -> Iterator[Prefix]:
    try:
        parts = urlsplit(address)
    except ValueError:
        return
    if parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and "\\" not in address:
        site = f"{parts.scheme}://{parts.netloc}/"
        yield Prefix(site, Condition(pointer, "regex", f"{re.escape(site)}.*"))


def _path(pointer: str, value: str, question: ApprovalRequest, files: Files) -> tuple[Condition, list[Prefix]]:
    cwd = question.principal.cwd if question.ref.server == coding_tools.SERVER else None
    if value.startswith("/"):
        absolute = value
    elif cwd is not None and not value.startswith("~"):
        absolute = f"{cwd}/{value}"
    else:
        return Condition(pointer, "equals", value), []
    real = normal(files.real(absolute))
    above = [str(each) for each in PurePosixPath(real).parents]
    wider = [each for each in above if _may_be_offered(each, question.principal.cwd)][:_MOST_PREFIXES]
    return Condition(pointer, "path", real), [Prefix(each, Condition(pointer, "path", each)) for each in wider]


def _may_be_offered(directory: str, project: str | None) -> bool:
    """Return whether a directory may be proposed: it is inside the project, or deep enough to be specific."""
    if project is not None and is_inside(directory, project):
        return True
    if project is not None and is_inside(project, directory):
        return False
    return len(PurePosixPath(directory).parts) > 3
