"""What a server may request of a client, in both eras.

Pure. `sessions` asks on the live stream, `parked_calls` through the client's next request.
"""

from toolcrib.model.json import JsonObject

ANSWER_WAIT = 600.0
"""Seconds a client has to answer."""

_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


def capability_for(method: str) -> str | None:
    """Return the client capability that this request needs, or None if no client accepts it."""
    return _CAPABILITIES.get(method)


def can_be_asked(capabilities: JsonObject) -> bool:
    """Return whether a client with these capabilities accepts any request."""
    return not capabilities.keys().isdisjoint(_CAPABILITIES.values())
