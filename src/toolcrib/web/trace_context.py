"""Reads the W3C trace context of a request, so that the trace of a caller continues at the server of its call.

`_meta` of the message comes first, because an HTTP request can carry several messages. An invalid `traceparent` is
ignored, as the standard demands.
"""

import re
from collections.abc import Mapping

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.observing import Trace

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_NO_META: JsonObject = {}


def trace_of(headers: Mapping[bytes, bytes], meta: JsonObject = _NO_META) -> Trace | None:
    """Return the trace context of a message with this `_meta` in a request with these headers, if there is any."""
    if "traceparent" in meta:
        return _checked(meta["traceparent"], meta.get("tracestate"))
    parent = headers.get(b"traceparent")
    if parent is None:
        return None
    state = headers.get(b"tracestate")
    return _checked(parent.decode("latin-1"), state.decode("latin-1") if state is not None else None)


def _checked(parent: Json, state: Json) -> Trace | None:
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent):
        return None
    if isinstance(state, str) and _STATE.fullmatch(state):
        return {"traceparent": parent, "tracestate": state}
    return {"traceparent": parent}
