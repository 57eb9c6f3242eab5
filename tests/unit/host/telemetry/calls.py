"""Ends of calls, as the audit reports them to telemetry."""

from toolcrib.model.observing import CallEnd
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, Tool, ToolRef

OWNER = Principal("owner", "owner", "ide")
SEARCH = Tool(ToolRef("notes", "search"), "Search.", {"type": "object", "properties": {}}, "upstream")


def call_end(**changed: object) -> CallEnd:
    """Return the end of a successful call of notes/search that took 30 ms."""
    result = CallResult.text("found")
    call = CallEnd("c-1", "mcp", OWNER, SEARCH.ref, SEARCH, "allow", "ok", None, 7, 30.0, b'{"query":"rain"}', result)
    return call._replace(**changed)
