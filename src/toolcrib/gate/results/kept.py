"""Large results that are kept for their caller to read on, in memory, for a limited time.

The nodes of a cluster also store them in the database (`shared`), so that any node can read on in them.

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

from toolcrib.model.json import Json, JsonObject, dumps, loads
from toolcrib.model.principals import Principal
from toolcrib.nodes.shared_results import SharedResults

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
        self.shared: SharedResults | None = None
        """The results of all nodes of a cluster."""
        self.are_read_in_sessions = False
        """Whether results are shortened in the crib's own sessions."""
        self._clock = clock
        self._kept: OrderedDict[str, KeptResult] = OrderedDict()
        self._size = 0
        self._unshared: list[KeptResult] = []

    def keep(self, principal: Principal, text: str, blobs: tuple[JsonObject, ...]) -> KeptResult:
        """Keep a result for its caller."""
        handle = f"res_{secrets.token_urlsafe(12)}"
        kept = KeptResult(handle, _owner(principal), text, blobs, self._clock() + KEPT_FOR)
        self._add(kept)
        if self.shared is not None:
            self._unshared.append(kept)
        return kept

    async def share(self) -> None:
        """Store the new results for all nodes. Must be called before their handles are returned."""
        while self._unshared and self.shared is not None:
            kept = self._unshared.pop()
            content: JsonObject = {"text": kept.text, "blobs": list(kept.blobs)}
            await self.shared.save(kept.handle, _owner_text(kept.owner), content, KEPT_FOR)

    async def fetch(self, principal: Principal, handle: Json) -> None:
        """Load a result of this principal that another node kept. Does nothing if there is none."""
        if self.shared is None or not isinstance(handle, str) or handle in self._kept:
            return
        found = await self.shared.load(handle)
        owner = _owner(principal)
        if found is not None and found[0] == _owner_text(owner) and handle not in self._kept:
            content: JsonObject = found[1]
            self._add(KeptResult(handle, owner, content["text"], tuple(content["blobs"]), self._clock() + found[2]))

    def _add(self, kept: KeptResult) -> None:
        self._kept[kept.handle] = kept
        self._size += kept.size
        self._drop()

    def get(self, principal: Principal, handle: str) -> KeptResult | None:
        """Return a result of this principal, or None if there is none or it expired."""
        self._drop()
        kept = self._kept.get(handle)
        is_valid = kept is not None and kept.owner == _owner(principal) and kept.expires > self._clock()
        return kept if is_valid else None

    def is_read_by(self, principal: Principal) -> bool:
        """Return whether `read_result` is offered: to sessions from the start, to others while a result is kept."""
        if principal.kind == "session" and self.are_read_in_sessions:
            return True
        if self.shared is not None and self.shared.owners and _owner_text(_owner(principal)) in self.shared.owners:
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


def _owner_text(owner: Owner) -> str:
    return dumps(owner).decode()
