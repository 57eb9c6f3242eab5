"""Which tool an agent means when it announces a call: one of the crib's, or one of its own, and with which arguments.

The protocol has a title for people and a kind, and no name. So a call counts as the crib's only by what the agent's
program says of it, never by what a model could have written: a structured name, or for a call of no particular kind the
exact title that the agent gives to tools of our server. The agent's own tools are judged by the names that rules have
for them; what they would touch is taken from the arguments only where it is plain, and counts as outside else.

Above: `mapping`. Pure. It must never take a call for the crib's that could be another.
"""

import shlex
from collections.abc import Mapping
from typing import Final

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.sessions.programs import Dialect
from toolcrib.sessions.runner import Offered

SERVER: Final = "toolcrib"
"""What the server with the session's tools is called in every agent."""
_CLAUDE_PREFIX: Final = f"mcp__{SERVER}__"
_TITLES: Final = (
    f"{_CLAUDE_PREFIX}{{}}",
    f"mcp_{SERVER}_{{}}",
    f"{SERVER}_{{}}",
    f"{SERVER}/{{}}",
    f"{{}} ({SERVER} MCP Server)",
)
_BY_KIND: Final = {
    "read": "Read", "edit": "Edit", "search": "Grep", "execute": "Bash", "fetch": "WebFetch", "think": "Task",
    "switch_mode": "ExitPlanMode",
}  # fmt: skip
_ANYTHING: Final = "Bash"
"""The tool that a call of another kind is judged as: it may do anything."""
_OTHER_NAMES: Final = {"Agent": "Task"}
"""Tools of Claude Code that it calls by another name than rules do."""
_PATH_ARGUMENT: Final = {"Read": "file_path", "Edit": "file_path", "Grep": "path"}
_PATH_KEYS: Final = ("file_path", "filePath", "filepath", "absolute_path", "path")


class Recognition:
    """Recognises the calls of one conversation."""

    def __init__(self, offered: Mapping[str, Offered], dialect: Dialect) -> None:
        """`offered` are the crib's tools by the names they have at the endpoint."""
        self._offered = offered
        self._titles = {form.format(name): name for name in offered for form in _TITLES}
        self._dialect = dialect

    def crib_tool(self, announced: JsonObject) -> Offered | None:
        """The crib's tool that the first word of a call means."""
        name = claude_name(announced)
        if name is not None:
            return self._offered.get(name.removeprefix(_CLAUDE_PREFIX)) if name.startswith(_CLAUDE_PREFIX) else None
        raw: Json = announced.get("rawInput")
        meta: Json = announced.get("_meta")
        if is_object(meta) and meta.get("is_mcp_tool_call") is True and is_object(raw):
            return self._offered.get(str(raw.get("tool"))) if raw.get("server") == SERVER else None
        if announced.get("kind", "other") != "other":
            return None
        return self._offered.get(self._titles.get(str(announced.get("title")), ""))

    def crib_arguments(self, raw: Json) -> JsonObject:
        """The arguments of a call of the crib's tool; none where they were not told."""
        if not is_object(raw):
            return {}
        inner: Json = raw.get("arguments")
        is_wrapped = raw.get("server") == SERVER and is_object(inner)
        return inner if is_wrapped else raw

    def own_tool(self, announced: JsonObject) -> str:
        """The name that rules have for the agent's own tool."""
        name = claude_name(announced)
        if name is not None:
            return _OTHER_NAMES.get(name, name)
        return _BY_KIND.get(str(announced.get("kind")), _ANYTHING)

    def own_arguments(self, tool: str, announced: JsonObject) -> JsonObject:
        """The arguments of a call of the agent's own tool, in the words that rules know them by."""
        raw: Json = announced.get("rawInput")
        given: JsonObject = raw if is_object(raw) else {}
        if claude_name(announced) is not None:
            return given
        if announced.get("kind") == "execute":
            return self._command(given, announced)
        if tool in _PATH_ARGUMENT:
            return {**given, _PATH_ARGUMENT[tool]: _path(given, announced)}
        return {"title": announced.get("title", ""), **given}

    def _command(self, given: JsonObject, announced: JsonObject) -> JsonObject:
        command: Json = given.get("command")
        if command is None and self._dialect == "gemini":
            command = announced.get("title")
        if is_array(command) and all(isinstance(word, str) for word in command):
            command = shlex.join(command)
        if isinstance(command, str) and command:
            return {**given, "command": command}
        return {"title": announced.get("title", ""), **given}


def claude_name(announced: JsonObject) -> str | None:
    """The name that Claude Code's adapter gives beside the protocol."""
    name: Json = _claude(announced).get("toolName")
    return name if isinstance(name, str) else None


def parent_of(announced: JsonObject) -> str | None:
    """The call whose sub-agent makes this one, where the agent says so."""
    parent: Json = _claude(announced).get("parentToolUseId")
    return parent if isinstance(parent, str) else None


def _claude(announced: JsonObject) -> JsonObject:
    meta: Json = announced.get("_meta")
    ours: Json = meta.get("claudeCode") if is_object(meta) else None
    return ours if is_object(ours) else {}


def _path(given: JsonObject, announced: JsonObject) -> str:
    """The one path that a call touches; empty, which lies in no project, where it is none or more than one."""
    locations: Json = announced.get("locations")
    named = {str(each.get("path")) for each in locations if is_object(each)} if is_array(locations) else set[str]()
    named |= {str(given[key]) for key in _PATH_KEYS if key in given}
    return named.pop() if len(named) == 1 else ""
