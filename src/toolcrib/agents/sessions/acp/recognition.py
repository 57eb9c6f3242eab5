"""Identifies the tool of an announced call: one of the crib's or one of the agent's own, and its arguments. Pure.

The protocol has a title for people and a kind, but no name. So a call counts as the crib's only by data from the
agent's program, never by text a model could have written: a structured name, or, for kind `other`, the exact title that
the agent uses for tools of our server. The agent's own tools are mapped to the names used in rules. Affected paths are
taken from the arguments only where they are unambiguous; otherwise they count as outside the project.

Must never attribute a call to the crib that could be another.
"""

import shlex
from collections.abc import Mapping
from typing import Final

from toolcrib.agents.sessions.programs import Dialect
from toolcrib.agents.sessions.runtime import Offered
from toolcrib.gate.policy.coding_tools import PATHS
from toolcrib.model.json import Json, JsonObject, is_array, is_object

SERVER: Final = "toolcrib"
"""The name of the server with the session's tools in every agent."""
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
"""The tool that calls of any other kind are decided as: it may do anything."""
_OTHER_NAMES: Final = {"Agent": "Task"}
"""Tools that Claude Code calls by another name than rules do."""
_PATH_ARGUMENT: Final = {"Read": "file_path", "Edit": "file_path", "Grep": "path"}
_PATH_KEYS: Final = (
    "file_path", "filePath", "filepath", "absolute_path", "path", "dir_path", "directory", "target_file",
    "notebook_path",
)  # fmt: skip


class Recognition:
    """Identifies the calls of one conversation."""

    def __init__(self, offered: Mapping[str, Offered], dialect: Dialect) -> None:
        """`offered` are the crib's tools by their names at the endpoint."""
        self._offered = offered
        self._titles = {form.format(name): name for name in offered for form in _TITLES}
        self._dialect = dialect

    def crib_tool(self, announced: JsonObject) -> Offered | None:
        """Return the crib's tool that a call's announcement refers to, or None."""
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
        """Return the arguments of a call of the crib's tool; empty if not sent yet."""
        if not is_object(raw):
            return {}
        inner: Json = raw.get("arguments")
        is_wrapped = raw.get("server") == SERVER and is_object(inner)
        return inner if is_wrapped else raw

    def own_tool(self, announced: JsonObject) -> str:
        """Return the name that rules use for the agent's own tool."""
        name = claude_name(announced)
        if name is not None:
            return _OTHER_NAMES.get(name, name)
        return _BY_KIND.get(str(announced.get("kind")), _ANYTHING)

    def own_arguments(self, tool: str, announced: JsonObject) -> JsonObject:
        """Return the arguments of the agent's own tool, under the names that rules use."""
        raw: Json = announced.get("rawInput")
        given: JsonObject = raw if is_object(raw) else {}
        if claude_name(announced) is not None:
            return given
        if announced.get("kind") == "execute":
            return self._command(given, announced)
        named = _paths(given, announced)
        if tool in _PATH_ARGUMENT:
            only = named[0] if len(named) == 1 else ""
            return {**given, _PATH_ARGUMENT[tool]: only, **_several(named)}
        is_plain = set(named) <= {str(given.get(key)) for key in ("path", "file_path")}
        return {"title": announced.get("title", ""), **given, **({} if is_plain else {PATHS: list(named)})}

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
    """Return the tool name that Claude Code's adapter sends in addition to the protocol."""
    name: Json = _claude(announced).get("toolName")
    return name if isinstance(name, str) else None


def parent_of(announced: JsonObject) -> str | None:
    """Return the call whose sub-agent makes this one, if the agent reports it."""
    parent: Json = _claude(announced).get("parentToolUseId")
    return parent if isinstance(parent, str) else None


def _claude(announced: JsonObject) -> JsonObject:
    meta: Json = announced.get("_meta")
    own_meta: Json = meta.get("claudeCode") if is_object(meta) else None
    return own_meta if is_object(own_meta) else {}


def _paths(given: JsonObject, announced: JsonObject) -> tuple[str, ...]:
    """Return every path that a call names, in its arguments or its locations."""
    locations: Json = announced.get("locations")
    named = [str(each.get("path")) for each in locations if is_object(each)] if is_array(locations) else []
    named += [str(given[key]) for key in _PATH_KEYS if key in given]
    several: Json = given.get(PATHS)
    named += [str(each) for each in several] if is_array(several) else []
    return tuple(dict.fromkeys(named))


def _several(named: tuple[str, ...]) -> JsonObject:
    return {PATHS: list(named)} if len(named) > 1 else {}
