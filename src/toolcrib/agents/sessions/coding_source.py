"""The coding agent's own tools (server `claude_code`) as a catalog source, so that rules and `why` can refer to them.

They run inside the agent's process. A session asks the gate about each call, with a placeholder for the run. They
cannot be called in any other way and appear in no listing.
"""

from collections.abc import Sequence
from typing import Final

from toolcrib.gate.policy import coding_tools
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import RunCall
from toolcrib.model.tools import Marks, ServerKind, Tool, ToolRef

LONGEST_RUN: Final = 4 * 3600.0
"""Seconds after which a run counts as lost; the runtime has its own, shorter limits."""

_READS = Marks(read_only=True)
_CHANGES = Marks(destructive=True)
_DESCRIPTIONS: Final[tuple[tuple[str, Marks, str], ...]] = (
    ("AskUserQuestion", Marks(read_only=True, scheduler_blocked=True), "Ask the person questions with choices."),
    ("Bash", _CHANGES, "Run a command in a shell."),
    ("Edit", _CHANGES, "Replace text in a file."),
    ("ExitPlanMode", Marks(), "Present the plan and ask for approval to carry it out."),
    ("Glob", _READS, "Find files by name pattern."),
    ("Grep", _READS, "Search the contents of files."),
    ("NotebookEdit", _CHANGES, "Change a cell of a notebook."),
    ("Read", _READS, "Read a file."),
    ("Skill", Marks(), "Follow the instructions of a skill."),
    ("Task", Marks(), "Start a sub-agent. Its calls follow the same rules."),
    ("TaskCreate", _READS, "Add a task to the list."),
    ("TaskGet", _READS, "Show a task of the list."),
    ("TaskList", _READS, "Show the task list."),
    ("TaskUpdate", _READS, "Change a task of the list."),
    ("TodoWrite", _READS, "Write the task list."),
    ("ToolSearch", _READS, "Search for tools."),
    ("WebFetch", Marks(read_only=True, open_world=True), "Fetch a web page."),
    ("WebSearch", Marks(read_only=True, open_world=True), "Search the web."),
    ("Write", _CHANGES, "Write a file."),
)


class CodingSource:
    """The coding agent's own tools; never run here."""

    name = coding_tools.SERVER
    kind: ServerKind = "runtime"

    def __init__(self) -> None:
        self._tools = tuple(
            Tool(
                ToolRef(self.name, name),
                description,
                {"type": "object", "properties": {}},
                kind=self.kind,
                marks=marks,
                timeout=LONGEST_RUN,
            )
            for name, marks, description in _DESCRIPTIONS
        )

    def tools(self) -> Sequence[Tool]:
        """Return all tools; the list is fixed."""
        return self._tools

    def problems(self) -> Sequence[Problem]:
        """Return no problems."""
        return ()

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Raise `tool.elsewhere`: only the agent's own process can run these tools."""
        raise InvalidRequest(
            "tool.elsewhere", f"{self.name}/{tool} can only be run by the coding agent, in its sessions."
        )
