"""Sealed state: what a client keeps for us between two requests, so that it comes back unchanged or not at all.

A seal is a text that anyone may read and nobody else can make. It holds for the one who was given it, for the same
request through the same face, and for a while. Whatever else is shown is broken, and nothing says in which way.

Pure but for the clock, which is given. Above: the endpoint seals what a server wants back, and which call waits.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable

import orjson

from toolcrib.model.json import Json, JsonObject, canonical, is_object

LONGEST = 65_536
"""Characters of a sealed text."""

_MAC_BYTES = 32


class BrokenSeal(ValueError):
    """The text was not sealed here, or for somebody or something else, or too long ago."""


class TooMuchState(ValueError):
    """There is more to seal than a client can be asked to carry."""


class Seal:
    """Seals and opens with one key."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    def close(self, content: JsonObject, bound_to: Json, *, seconds: float) -> str:
        """The content as a text that `open` takes for the same `bound_to` within these seconds."""
        body = canonical({"content": content, "until": self._clock() + seconds})
        text = base64.urlsafe_b64encode(self._mac(body, bound_to) + body).decode()
        if len(text) > LONGEST:
            raise TooMuchState(f"A sealed text has at most {LONGEST} characters.")
        return text

    def open(self, text: str, bound_to: Json) -> JsonObject:
        """What was sealed; raises `BrokenSeal`."""
        raw = _decoded(text)
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body, bound_to)):
            raise BrokenSeal
        sealed: Json = orjson.loads(body)
        if sealed["until"] < self._clock() or not is_object(sealed["content"]):
            raise BrokenSeal
        return sealed["content"]

    def _mac(self, body: bytes, bound_to: Json) -> bytes:
        # A digest of what it is bound to has one length, so that no two pairs can read as the same bytes.
        return hmac.digest(self._key, hashlib.sha256(canonical(bound_to)).digest() + body, hashlib.sha256)


def _decoded(text: str) -> bytes:
    """The bytes of a text in the one spelling that we write."""
    if len(text) > LONGEST:
        raise BrokenSeal
    try:
        raw = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BrokenSeal from None
    if len(raw) <= _MAC_BYTES or base64.urlsafe_b64encode(raw).decode() != text:
        raise BrokenSeal
    return raw
