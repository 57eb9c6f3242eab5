"""The two tools of a large catalog: `find_tools` searches the principal's tools, `call_tool` calls one of them.

Pure. Must never look at tools that were not passed in.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from toolcrib.gate.signatures import purpose, signature
from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.tools import CallResult, ToolRef

if TYPE_CHECKING:
    from toolcrib.gate.search.index import FoundTool

FIND = "find_tools"
CALL = "call_tool"
INSTRUCTIONS = f"Find a tool with `{FIND}`, then call it with `{CALL}` and the returned `ref`."
DEFAULT_LIMIT = 10
MOST = 50
SERVERS_NAMED = 30
"""Servers that the answer to a miss names."""

FIND_DEFINITION: JsonObject = {
    "name": FIND,
    "description": "Find tools for a task, best first. Describe the task in a sentence, or name a tool. Each match has "
    "`ref`, `purpose`, the arguments as `signature`, and `score` from 0 to 1. Ask for an exact `ref` to get the full "
    "description and `inputSchema` of that tool.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What you want to do, or the name of a tool."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT_LIMIT},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

CALL_DEFINITION: JsonObject = {
    "name": CALL,
    "description": f"Call a tool that `{FIND}` found.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "ref": {"type": "string", "description": f"The tool, as `{FIND}` names it: `server/tool`."},
            "arguments": {"type": "object", "description": "The arguments of the tool's signature."},
        },
        "required": ["ref"],
        "additionalProperties": False,
    },
}

DEFINITIONS: tuple[JsonObject, ...] = (FIND_DEFINITION, CALL_DEFINITION)


def read_query(arguments: JsonObject) -> tuple[str, int] | CallResult:
    """Return the query and the limit, or an error result if they are invalid."""
    if (undeclared := CallResult.for_undeclared(FIND_DEFINITION, arguments)) is not None:
        return undeclared
    query: Json = arguments.get("query")
    limit: Json = arguments.get("limit", DEFAULT_LIMIT)
    if not isinstance(query, str) or not query.strip():
        return CallResult.error("query: must be a description of the task or the name of a tool.")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST:
        return CallResult.error(f"limit: must be a number from 1 to {MOST}.")
    return query, limit


def found_result(
    found: "Sequence[FoundTool]", query: str, servers: Collection[str], functions: Mapping[ToolRef, str] | None = None
) -> CallResult:
    """Return the matches as text and as structured content. A miss names the servers and how to ask.

    `functions` are the names of tools in programs.
    """
    names = functions or {}
    content: JsonObject = {"tools": [_match(each, names.get(each.tool.ref)) for each in found]}
    if not found:
        content["hint"] = miss(query, servers)
    text: JsonObject = {"type": "text", "text": dumps(content).decode()}
    return CallResult(content=(text,), structured_content=content, has_structured=True)


def _match(found: "FoundTool", function: str | None) -> JsonObject:
    tool = found.tool
    match: JsonObject = {
        "ref": str(tool.ref),
        "purpose": purpose(tool),
        "signature": signature(tool),
        "score": round(found.score, 2),
    }
    if function is not None:
        return {"function": function, **match}
    if found.score == 1.0:
        match |= {"description": tool.description, "inputSchema": tool.input_schema}
    return match


def miss(query: str, servers: Collection[str]) -> str:
    """Return what to say if nothing matches: the servers that the caller sees, and how to ask."""
    named = sorted(servers)[:SERVERS_NAMED]
    more = f" and {len(servers) - len(named)} more" if len(servers) > len(named) else ""
    if not named:
        return "No tools are available to you."
    return (
        f"No tool matches {query[:100]!r}. Describe the action and its object, such as `create a calendar event`, or "
        f"ask for the tools of a server by its name. Servers: {', '.join(named)}{more}."
    )


def parse_call(arguments: JsonObject) -> tuple[ToolRef, JsonObject] | CallResult:
    """Return the tool to call and its arguments, or an error result if they are invalid."""
    if (undeclared := CallResult.for_undeclared(CALL_DEFINITION, arguments)) is not None:
        return undeclared
    text: Json = arguments.get("ref")
    inner: Json = arguments.get("arguments", {})
    if not isinstance(text, str):
        return CallResult.error("ref: must be a `ref` returned by `find_tools`.")
    if not is_object(inner):
        return CallResult.error("arguments: must be an object.")
    return ToolRef.parse(text) or ToolRef(text, ""), inner
