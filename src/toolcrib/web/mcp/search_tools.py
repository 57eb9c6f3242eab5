"""The two tools of a large catalog: `find_tools` searches the principal's tools, `call_tool` calls one of them.

Pure. Must never look at tools that were not passed in.
"""

from collections.abc import Iterable

from toolcrib.gate.catalog.search import search
from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.tools import CallResult, Tool, ToolRef

FIND = "find_tools"
CALL = "call_tool"
INSTRUCTIONS = f"Find a tool with `{FIND}`, then call it with `{CALL}` and the returned `ref`."
DEFAULT_LIMIT = 10
MOST = 50

DEFINITIONS: tuple[JsonObject, ...] = (
    {
        "name": FIND,
        "description": "Search tools by name, description and arguments; best match first. Each match has the "
        f"`ref` and the `inputSchema` that `{CALL}` needs.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "The words to search for."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT_LIMIT},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": CALL,
        "description": f"Call a tool returned by `{FIND}`.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "ref": {"type": "string", "description": f"The `ref` returned by `{FIND}`: `server/tool`."},
                "arguments": {"type": "object", "description": "The arguments, as defined by the tool's inputSchema."},
            },
            "required": ["ref"],
            "additionalProperties": False,
        },
    },
)


def find(tools: Iterable[Tool], arguments: JsonObject) -> CallResult:
    """Return the matching tools, as text and as structured content."""
    query: Json = arguments.get("query")
    limit: Json = arguments.get("limit", DEFAULT_LIMIT)
    if not isinstance(query, str) or not query.strip():
        return CallResult.error("query: must be a string with at least one word.")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST:
        return CallResult.error(f"limit: must be a number from 1 to {MOST}.")
    matches = [
        {"ref": str(tool.ref), "description": tool.description, "inputSchema": tool.input_schema}
        for tool in search(tools, query)[:limit]
    ]
    found: JsonObject = {"tools": matches}
    text: JsonObject = {"type": "text", "text": dumps(found).decode()}
    return CallResult(content=(text,), structured_content=found, has_structured=True)


def parse_call(arguments: JsonObject) -> tuple[ToolRef, JsonObject] | CallResult:
    """Return the tool to call and its arguments, or an error result if they are invalid."""
    text: Json = arguments.get("ref")
    inner: Json = arguments.get("arguments", {})
    if not isinstance(text, str):
        return CallResult.error("ref: must be a `ref` returned by `find_tools`.")
    if not is_object(inner):
        return CallResult.error("arguments: must be an object.")
    return ToolRef.parse(text) or ToolRef(text, ""), inner
