"""Sealed state: data that a client carries between two requests and cannot alter.

The text is readable but authenticated. It is valid for one recipient, for the same request through the same view, and
for a limited time. Anything else raises the same `BrokenSeal`, so that the cause is not revealed.

Pure, apart from the injected clock.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable

from toolcrib.model.json import Json, JsonObject, canonical, is_object, loads

LONGEST = 65_536
"""Maximum length of a sealed text."""

_MAC_BYTES = 32


class BrokenSeal(ValueError):
    """Raised for a text that was not sealed here, is bound to something else or has expired."""


class TooMuchState(ValueError):
    """Raised when there is more to seal than a client can be asked to carry."""


class StateSeal:
    """Seals and opens state with one key."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    def close(self, content: JsonObject, bound_to: Json, *, seconds: float) -> str:
        """Return the content as a text that `open` accepts for the same `bound_to` within these seconds."""
        body = canonical({"content": content, "until": self._clock() + seconds})
        text = base64.urlsafe_b64encode(self._mac(body, bound_to) + body).decode()
        if len(text) > LONGEST:
            raise TooMuchState(f"Sealed state is limited to {LONGEST} characters.")
        return text

    def open(self, text: str, bound_to: Json) -> JsonObject:
        """Return the sealed content. Raises `BrokenSeal`."""
        raw = _decode(text)
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body, bound_to)):
            raise BrokenSeal
        sealed: Json = loads(body)
        if sealed["until"] < self._clock() or not is_object(sealed["content"]):
            raise BrokenSeal
        return sealed["content"]

    def _mac(self, body: bytes, bound_to: Json) -> bytes:
        # A digest of the binding has a fixed length, so two different pairs never produce the same bytes.
        return hmac.digest(self._key, hashlib.sha256(canonical(bound_to)).digest() + body, hashlib.sha256)


def peek(text: str) -> JsonObject:
    """Return the content of a sealed text without checking the seal; empty if there is none. Must not be trusted."""
    try:
        sealed: Json = loads(_decode(text)[_MAC_BYTES:])
    except (BrokenSeal, ValueError):
        return {}
    content: Json = sealed.get("content") if is_object(sealed) else None
    return content if is_object(content) else {}


def _decode(text: str) -> bytes:
    """Decode the text. Only the exact encoding that we write is accepted."""
    if len(text) > LONGEST:
        raise BrokenSeal
    try:
        raw = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BrokenSeal from None
    if len(raw) <= _MAC_BYTES or base64.urlsafe_b64encode(raw).decode() != text:
        raise BrokenSeal
    return raw
