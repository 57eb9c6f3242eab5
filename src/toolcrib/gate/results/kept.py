"""Large results that are kept for their caller to read on, in memory, for a limited time.

Invariant: a result is returned only to the principal whose call produced it.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import orjson

from toolcrib.model.json import Json, JsonObject, loads
from toolcrib.model.principals import Principal

KEPT_FOR: Final = 3_600.0
"""Seconds until a result expires."""
MOST_BYTES: Final = 64 * 1_048_576
"""Bytes of all kept results. The oldest ones are dropped first."""
URI: Final = "toolcrib://results/"

Owner = tuple[str, str, str | None, str | None]


@dataclass(frozen=True)
class KeptResult:
    """A whole result: its text, its binary parts (`mimeType` and base64 `data`), and when it expires."""

    handle: str
    owner: Owner
    text: str
    blobs: tuple[JsonObject, ...]
    expires: float

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return len(self.text) + sum(len(blob["data"]) for blob in self.blobs)

    @cached_property
    def value(self) -> Json:
        """The text as JSON, or None if it is not JSON."""
        try:
            return loads(self.text)
        except orjson.JSONDecodeError:
            return None

    def uri(self, blob: int | None = None) -> str:
        """Return the address under which the text, or a binary part, is read as a resource."""
        return f"{URI}{self.handle}" if blob is None else f"{URI}{self.handle}/{blob}"


class KeptResults:
    """All kept results, the oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.tag = ""
        """Names this node of a cluster in the handles, so that other nodes know where the result is."""
        self.are_read_in_sessions = False
        """Whether results are shortened in the crib's own sessions."""
        self._clock = clock
        self._kept: OrderedDict[str, KeptResult] = OrderedDict()
        self._size = 0

    def keep(self, principal: Principal, text: str, blobs: tuple[JsonObject, ...]) -> KeptResult:
        """Keep a result for its caller."""
        handle = f"res_{f'{self.tag}-' if self.tag else ''}{secrets.token_urlsafe(12)}"
        kept = KeptResult(handle, _owner(principal), text, blobs, self._clock() + KEPT_FOR)
        self._kept[handle] = kept
        self._size += kept.size
        self._drop()
        return kept

    def get(self, principal: Principal, handle: str) -> KeptResult | None:
        """Return a result of this principal, or None if there is none or it expired."""
        self._drop()
        kept = self._kept.get(handle)
        return kept if kept is not None and kept.owner == _owner(principal) else None

    def is_read_by(self, principal: Principal) -> bool:
        """Return whether `read_result` is offered: to sessions from the start, to others while a result is kept."""
        if principal.kind == "session" and self.are_read_in_sessions:
            return True
        if not self._kept:
            return False
        self._drop()
        owner = _owner(principal)
        return any(kept.owner == owner for kept in self._kept.values())

    def resource(self, principal: Principal, uri: str) -> JsonObject | None:
        """Return the contents of a resource: the whole text, or one binary part."""
        handle, _, number = uri.removeprefix(URI).partition("/")
        kept = self.get(principal, handle)
        if kept is None:
            return None
        if not number:
            return {"uri": uri, "mimeType": "text/plain", "text": kept.text}
        if not number.isascii() or not number.isdigit() or int(number) >= len(kept.blobs):
            return None
        blob = kept.blobs[int(number)]
        return {"uri": uri, "mimeType": blob["mimeType"], "blob": blob["data"]}

    def _drop(self) -> None:
        """Drop expired results, and the oldest ones if all take too much memory."""
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.expires > now and self._size <= MOST_BYTES:
                return
            del self._kept[oldest.handle]
            self._size -= oldest.size


def _owner(principal: Principal) -> Owner:
    return principal.kind, principal.name, principal.agent, principal.session
