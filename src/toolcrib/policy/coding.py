"""The coding agent's own tools (server `claude_code`): what their calls touch, and what a mode says to that.

In `default` reading inside the project runs, all else is asked; `acceptEdits` lets edits inside the project run too;
in `plan` nothing changes anything. Whether a path lies inside is a comparison of texts, so both must be real paths:
the caller asks `named_paths` which paths a call names, resolves every link in them (`os.path.realpath`), and gives the
result to `decide`; the asker's working directory must be a real path too.

Above: `decide`. Below: `model`. It must never touch the file system, and never take a path it does not know for safe.
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeGuard

from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Step
from toolcrib.model.principals import Mode

SERVER = "claude_code"
READERS = frozenset({"Read", "Glob", "Grep"})
EDITORS = frozenset({"Edit", "Write", "NotebookEdit"})
QUESTION = "AskUserQuestion"
LEAVE_PLANNING = "ExitPlanMode"
CONVERSATION = frozenset({"ToolSearch", "TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})
"""Tools that touch nothing but the conversation itself: they look for tools in it and keep its list of what to do."""
TOOLS = frozenset({*READERS, *EDITORS, "Bash", "Task", "TodoWrite", "WebFetch", "WebSearch"})
"""The ones that people name without their server."""

_OUTSIDE = str(PurePath("/"))
"""The root of the file system: a place that lies in no project."""
_PATH_ARGUMENT = {
    "Read": "file_path", "Edit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path", "Glob": "path",
    "Grep": "path",
}  # fmt: skip
_SEARCHES = frozenset({"Glob", "Grep"})
"""Tools that work in the working directory where no path is given."""
_WILD = frozenset("*?[]{}")

_READS_INSIDE = Step("mode", True, "allow", "Reading inside the project runs without asking.")
_EDITS_INSIDE = Step("mode", True, "allow", "Mode acceptEdits lets edits inside the project run.")
_READS_OUTSIDE = Step("mode", True, "ask", "Reading outside the project asks a person.")
_EDITS_OUTSIDE = Step("mode", True, "ask", "Editing outside the project asks a person.")
_ASKED = Step("mode", True, "ask", "This tool of the coding agent asks a person before each call.")
_TALKS = Step("mode", True, "allow", "This tool touches nothing but the conversation.")
_LEAVES = Step("mode", True, "ask", "Whether planning is over is for a person to say.")


def mode_step(tool: str, mode: Mode, inside: bool) -> Step | None:
    """What a mode says to a call of one of these tools; None where it says what it says to every tool."""
    if tool in CONVERSATION or (tool == QUESTION and mode != "dontAsk"):
        return _TALKS
    if mode not in ("default", "acceptEdits", "plan"):
        return None
    if tool == LEAVE_PLANNING:
        return _LEAVES
    if tool in READERS:
        return _READS_INSIDE if inside else _READS_OUTSIDE
    if mode == "plan":
        return None
    if mode == "acceptEdits" and tool in EDITORS:
        return _EDITS_INSIDE if inside else _EDITS_OUTSIDE
    return _ASKED


def depends_on_paths(tool: str, mode: Mode) -> bool:
    """Whether what a mode says to this tool depends on the paths of the call."""
    return mode_step(tool, mode, True) is not mode_step(tool, mode, False)


def named_paths(tool: str, arguments: JsonObject, cwd: str) -> tuple[str, ...]:
    """The paths a call names, absolute and with links unresolved. What cannot be told lies outside every project."""
    argument = _PATH_ARGUMENT.get(tool)
    if argument is None:
        return ()
    given: object = arguments.get(argument)
    if given is None and tool in _SEARCHES:
        given = cwd
    if not _plain(given):
        return (_OUTSIDE,)
    base = PurePath(cwd, given)
    return (str(base), _reach(base, arguments.get("pattern"))) if tool == "Glob" else (str(base),)


def _reach(base: PurePath, pattern: object) -> str:
    """The directory that a glob searches: its leading parts without wildcards. Behind them `..` may lead anywhere."""
    if not _plain(pattern):
        return _OUTSIDE
    pieces = pattern.split("/")
    fixed = next((at for at, piece in enumerate(pieces) if _WILD & set(piece)), len(pieces))
    if any(".." in piece for piece in pieces[fixed:]):
        return _OUTSIDE
    return str(base.joinpath("/" if pattern.startswith("/") else "", *pieces[:fixed]))


def _plain(path: object) -> TypeGuard[str]:
    return isinstance(path, str) and path != "" and not path.startswith("~") and "\0" not in path


def all_inside(paths: Sequence[str] | None, project: str | None) -> bool:
    """Whether every one of these real paths lies in the project; not so where nothing is known."""
    return bool(paths) and project is not None and all(is_inside(path, project) for path in paths or ())


def is_inside(path: str, directory: str) -> bool:
    """Whether a real path is a directory or lies in it; a path that is not real lies nowhere.

    The root of the file system is no project: a session that happens to start there would have all of it.
    """
    inner, outer = PurePath(path), PurePath(directory)
    if not outer.is_absolute() or len(outer.parts) == 1 or ".." in inner.parts:
        return False
    return inner.is_relative_to(outer)
