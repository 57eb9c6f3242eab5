"""Lists as bytes: made once per face, asker and state of the catalog, cut into pages, sent as they are ever after.

A page stays below what clients read as one event (1 MiB). A cursor holds the key the next page begins with, so that it
still means the right place after the catalog has changed.
"""

import base64
import binascii
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass

import orjson

from toolcrib.gate import Gate, Listing
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import INVALID_PARAMS, META, SERVER_INFO_KEY, Era
from toolcrib.server.mcp.face import Face, Kind
from toolcrib.server.mcp.rpc import RpcError

LISTED: dict[str, Kind] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""The methods that list, and what."""
PAGE_BYTES = 900_000
_KEPT = 128
_MARK = b"from:"


@dataclass(frozen=True, slots=True)
class _Pages:
    listing: Listing
    starts: list[str]
    bodies: list[bytes]


class Pages:
    """The pages of every list that was asked for."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._kept: OrderedDict[tuple[Principal, str, Kind, Era], _Pages] = OrderedDict()

    def page(self, face: Face, kind: Kind, principal: Principal, era: Era, cursor: object = None) -> bytes:
        """The result of a list at this cursor, serialised."""
        pages = self._pages(face, kind, principal, era)
        if cursor is None:
            return pages.bodies[0]
        start = _read_cursor(cursor)
        index = bisect_left(pages.starts, start)
        if index < len(pages.starts) and pages.starts[index] == start:
            return pages.bodies[index]
        # No page begins there any more, since the catalog changed: give what follows in the list of now.
        return _build(face, kind, principal, era, pages.listing, start).bodies[0]

    def _pages(self, face: Face, kind: Kind, principal: Principal, era: Era) -> _Pages:
        listing = self._gate.listing(principal)  # another object whenever anything of the asker's view is another
        key = (principal, face.key, kind, era)
        kept = self._kept.get(key)
        if kept is None or kept.listing is not listing:
            kept = self._kept[key] = _build(face, kind, principal, era, listing)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept


def _build(face: Face, kind: Kind, principal: Principal, era: Era, listing: Listing, start: str = "") -> _Pages:
    entries = sorted((entry for entry in face.entries(kind, principal) if entry[0] >= start), key=_key)
    cuts: list[list[tuple[str, bytes]]] = [[]]
    size = 0
    for key, encoded in entries:
        if size and size + len(encoded) > PAGE_BYTES:
            cuts.append([])
            size = 0
        cuts[-1].append((key, encoded))
        size += len(encoded) + 1
    starts = [cut[0][0] if cut else "" for cut in cuts]
    following = [*starts[1:], None]
    stamp = _stamp(face, principal, era)
    bodies = [_body(kind, cut, cursor, stamp) for cut, cursor in zip(cuts, following, strict=True)]
    return _Pages(listing, starts, bodies)


def _key(entry: tuple[str, bytes]) -> str:
    return entry[0]


def _stamp(face: Face, principal: Principal, era: Era) -> JsonObject:
    if era == "legacy":
        return {}
    meta = {SERVER_INFO_KEY: face.server_info(principal)}
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", META: meta}


def _body(kind: Kind, cut: list[tuple[str, bytes]], cursor: str | None, stamp: JsonObject) -> bytes:
    rest = stamp | ({"nextCursor": _cursor(cursor)} if cursor is not None else {})
    tail = b"," + orjson.dumps(rest)[1:] if rest else b"}"
    return b'{"%s":[' % kind.encode() + b",".join(encoded for _, encoded in cut) + b"]" + tail


def _cursor(key: str) -> str:
    return base64.urlsafe_b64encode(_MARK + key.encode()).decode()


def _read_cursor(cursor: object) -> str:
    try:
        raw = base64.urlsafe_b64decode(cursor) if isinstance(cursor, str) else b""
        if raw.startswith(_MARK):
            return raw.removeprefix(_MARK).decode()
    except (binascii.Error, ValueError):
        pass
    raise RpcError(INVALID_PARAMS, "The cursor is not one that this server gave.")
