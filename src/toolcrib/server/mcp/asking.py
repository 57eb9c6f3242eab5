"""What a server may ask a client, and how much it may tell: words that the two eras share.

Pure. Above: `sessions` asks live, `parking` by the client's next request.
"""

from toolcrib.model.json import JsonObject

ANSWER_WAIT = 600.0
"""Seconds that a client has for its answer."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Levels of log messages, the least first."""

_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


def capability_for(method: str) -> str | None:
    """What a client has to declare before it may be asked this; None for what no client is asked."""
    return _CAPABILITIES.get(method)


def can_be_asked(capabilities: JsonObject) -> bool:
    """Whether a client with these capabilities can be asked anything at all."""
    return not capabilities.keys().isdisjoint(_CAPABILITIES.values())


def is_wanted(params: JsonObject, level: str | None) -> bool:
    """Whether a log message reaches a client that asked for this level; without a level none does."""
    said = params.get("level")
    return level in LEVELS and said in LEVELS and LEVELS.index(said) >= LEVELS.index(level)
