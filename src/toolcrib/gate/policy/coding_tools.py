"""The coding agent's own tools (server `claude_code`): the paths their calls name, and how modes treat them.

In `default`, reading inside the project runs and everything else asks. `acceptEdits` also runs edits inside the
project, except for files that decide what runs. In `plan`, nothing may change anything. The crib's home is closed in
every mode. `zones` defines these areas. The caller passes the result of `named_paths` to `gate.touched_paths`, and its
result to `decide`.

Must never touch the file system, and never treat an unknown path as safe.
"""

import os.path
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote, urlsplit

from toolcrib.gate.policy.zones import NamedPath, Zone
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.model.policy import DecisionStep
from toolcrib.model.principals import Mode
from toolcrib.model.text import normalized

SERVER = "claude_code"
READERS = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead"})
EDITORS = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})
QUESTION = "AskUserQuestion"
LEAVE_PLANNING = "ExitPlanMode"
CONVERSATION = frozenset({"ToolSearch", "TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})
"""Tools that only touch the conversation: they search its tools and maintain its to-do list."""
TOOLS = frozenset({
    "Read", "Glob", "Grep", "Edit", "Write", "NotebookEdit", "Bash", "Task", "TodoWrite", "WebFetch", "WebSearch",
})  # fmt: skip
"""The tools that people name without their server."""
COMMAND = "Bash"

PATHS: Final = "paths"
"""The argument with all paths of a call that touches several files."""
_PATH_ARGUMENTS: Final = ("file_path", "notebook_path", "path")
PATH_ARGUMENT = {
    "Read": "file_path", "Edit": "file_path", "Write": "file_path", "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path", "NotebookRead": "notebook_path", "Glob": "path", "Grep": "path", "LS": "path",
}  # fmt: skip
ARGUMENTS: Mapping[str, frozenset[str]] = {
    "Read": frozenset({"file_path", "offset", "limit", "pages", PATHS}),
    "Edit": frozenset({"file_path", "old_string", "new_string", "replace_all", PATHS}),
    "MultiEdit": frozenset({"file_path", "edits", PATHS}),
    "Write": frozenset({"file_path", "content", PATHS}),
    "NotebookEdit": frozenset({"notebook_path", "cell_id", "new_source", "cell_type", "edit_mode", PATHS}),
    "NotebookRead": frozenset({"notebook_path", "cell_id", PATHS}),
    "Glob": frozenset({"path", "pattern", PATHS}),
    "LS": frozenset({"path", "ignore", PATHS}),
    "Grep": frozenset({
        "pattern", "path", "glob", "output_mode", "-A", "-B", "-C", "-n", "-i", "type", "head_limit", "multiline",
        PATHS,
    }),
    "Bash": frozenset({"command", "description", "timeout", "run_in_background", "dangerouslyDisableSandbox"}),
    "WebFetch": frozenset({"url", "prompt"}),
    "WebSearch": frozenset({"query", "allowed_domains", "blocked_domains"}),
    "Task": frozenset({"description", "prompt", "subagent_type", "model"}),
    "Skill": frozenset({"skill", "args"}),
}  # fmt: skip
"""The arguments of each tool, so that a condition on another argument does not apply to it."""
_SEARCHES = frozenset({"Glob", "Grep", "LS"})
"""Tools that use the working directory if no path is given."""
_PATH_TOOLS: Final = READERS | EDITORS | {COMMAND, "WebFetch"}
_WILD = frozenset("*?[]{}!\\")
_SPACE: Final = " \t\r\n\v\f\ufeff\u00a0\u202f\u2007\u2060"
"""Characters that coding agents strip from the ends of a path."""

_READS_INSIDE = DecisionStep("mode", True, "allow", "Reading inside the project runs without asking.")
_EDITS_INSIDE = DecisionStep("mode", True, "allow", "Mode acceptEdits lets edits inside the project run.")
_READS_OUTSIDE = DecisionStep("mode", True, "ask", "Reading outside the project asks a person.")
_EDITS_OUTSIDE = DecisionStep("mode", True, "ask", "Editing outside the project asks a person.")
EDITS_DECISIVE = DecisionStep("mode", True, "ask", "Editing a file that decides what runs asks a person.")
_ASKED = DecisionStep("mode", True, "ask", "This tool of the coding agent asks a person before each call.")
_UNNAMED = DecisionStep("mode", True, "ask", "The call does not name a file, so it asks a person.")
_TALKS = DecisionStep("mode", True, "allow", "This tool affects only the conversation.")
_LEAVES = DecisionStep("mode", True, "ask", "Only a person ends planning.")


def mode_step(tool: str, mode: Mode, zone: Zone) -> DecisionStep | None:
    """Return the mode's decision on one of these tools, or None if the mode treats it like any other."""
    if tool in CONVERSATION or (tool == QUESTION and mode != "dontAsk"):
        return _TALKS
    if mode == "bypassPermissions" and zone == "unknown" and tool in READERS | EDITORS:
        return _UNNAMED
    if mode not in ("default", "acceptEdits", "plan"):
        return None
    if tool == LEAVE_PLANNING:
        return _LEAVES
    if tool in READERS:
        return _READS_INSIDE if zone in ("project", "decisive") else _READS_OUTSIDE
    if mode == "plan":
        return None
    if mode == "acceptEdits" and tool in EDITORS:
        return _edit_step(zone)
    return _ASKED


def _edit_step(zone: Zone) -> DecisionStep:
    if zone == "project":
        return _EDITS_INSIDE
    return EDITS_DECISIVE if zone == "decisive" else _EDITS_OUTSIDE


def depends_on_paths(tool: str) -> bool:
    """Return whether the decision on this tool depends on paths: those in the crib's home are refused."""
    return tool in _PATH_TOOLS


def named_paths(tool: str, arguments: JsonObject, cwd: str, user_home: str) -> tuple[NamedPath, ...]:
    """Return the paths that a call names, absolute and with links unresolved; see `zones.NamedPath`.

    Agents read a path in several ways (`~`, `file:`, surrounding space), so every reading is included.
    """
    if tool == COMMAND:
        words = (*_given_paths(arguments), *_words(arguments, user_home))
        return tuple(NamedPath(path) for word in words for path in readings(word, cwd, user_home))
    if tool == "WebFetch":
        url = arguments.get("url")
        is_file = isinstance(url, str) and url.strip(_SPACE)[:5].lower() == "file:"
        return tuple(NamedPath(path, True) for path in readings(str(url), cwd, user_home)) if is_file else ()
    if tool not in READERS | EDITORS:
        return ()
    given = tuple(_given_paths(arguments))
    if not given and tool in _SEARCHES and all(arguments.get(name) is None for name in _PATH_ARGUMENTS):
        given = (cwd,)
    if not given or not all(_is_plain(each) for each in given):
        return (NamedPath(None),)
    bases = tuple(path for each in given for path in readings(each, cwd, user_home))
    if tool == "Glob":
        return tuple(named for base in bases for named in _searched_paths(base, arguments.get("pattern"), user_home))
    return tuple(NamedPath(base, tool in READERS) for base in bases)


def with_absolute_path(tool: str, arguments: JsonObject, directory: str) -> JsonObject:
    """Return the arguments of a call made in this directory, with its path made absolute.

    Agents change their directory, so a relative path may differ from the same path in the session's directory.
    """
    name = PATH_ARGUMENT.get(tool)
    if name is None:
        return arguments
    given = arguments.get(name)
    if given in (None, ""):
        return {**arguments, name: directory} if tool in _SEARCHES else arguments
    if not isinstance(given, str) or not _is_plain(given):
        return arguments
    path = given.strip(_SPACE)
    if path.startswith(("/", "~")) or path[:5].lower() == "file:":
        return arguments
    return {**arguments, name: str(PurePath(directory, path))}


def readings(given: str, cwd: str, user_home: str) -> tuple[str, ...]:
    """Return every absolute path that an agent may read a text as, the most literal first."""
    stripped = given.strip(_SPACE)
    texts = dict.fromkeys((given, stripped, normalized("NFC", stripped)))
    found: dict[str, None] = {}
    for text in texts:
        found[str(PurePath(cwd, text))] = None
        if text == "~" or text.startswith("~/"):
            found[user_home + text[1:]] = None
        elif text.startswith("~"):
            found[os.path.expanduser(text)] = None  # noqa: PTH111 leaves an unknown user as it is, without an error
        elif text[:5].lower() == "file:":
            found["/" + unquote(urlsplit(text).path).lstrip("/")] = None
    return tuple(found)


def _given_paths(arguments: JsonObject) -> Iterator[str]:
    """Yield the paths in the arguments. A value that is not text counts as an unreadable path."""
    for name in _PATH_ARGUMENTS:
        if (value := arguments.get(name)) not in (None, ""):
            yield value if isinstance(value, str) else "\0"
    several: Json = arguments.get(PATHS)
    for value in several if is_array(several) else ():
        yield value if isinstance(value, str) else "\0"


def _searched_paths(base: str, pattern: object, user_home: str) -> Iterator[NamedPath]:
    """Yield the base of a glob, and the directory it searches: its leading parts without wildcards.

    A pattern without a slash matches at any depth. After a wildcard, `..` may lead anywhere.
    """
    yield NamedPath(base)
    if not isinstance(pattern, str) or not _is_plain(pattern):
        yield NamedPath("/", True)
        return
    for text in dict.fromkeys((pattern, pattern.strip(_SPACE))):
        pieces = text.split("/")
        is_rooted = "/" in text.rstrip("/")
        fixed = next((at for at, piece in enumerate(pieces) if _WILD & set(piece)), len(pieces)) if is_rooted else 0
        if any(".." in piece for piece in pieces[fixed:]):
            yield NamedPath("/", True)
            continue
        prefix = "/".join(pieces[:fixed]) or ("/" if text.startswith("/") else "")
        for path in readings(prefix, base, user_home) if prefix else (base,):
            yield NamedPath(path, True)


def _words(arguments: JsonObject, user_home: str) -> Iterator[str]:
    """Yield the words of a command that look like paths. Commands can also reach files without naming any."""
    command = arguments.get("command")
    if not isinstance(command, str):
        return
    expanded = re.sub(r"\$(?:HOME\b|\{HOME\})", lambda _: user_home, command[:_LONGEST_COMMAND])
    words = dict.fromkeys(re.split(r"""[\s'"`;|&<>()=,]+""", expanded))
    yield from [word for word in words if "/" in word or word.startswith("~")][:_MOST_WORDS]


_LONGEST_COMMAND: Final = 65_536
_MOST_WORDS: Final = 200


def _is_plain(path: str) -> bool:
    return path.strip(_SPACE) != "" and "\0" not in path
