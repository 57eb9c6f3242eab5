"""Serialized list results, split into pages and cached per view, principal and state of the catalog.

A page stays below 1 MiB, which clients accept as one event. A cursor holds the key that the next page starts with, so
it remains valid after the catalog changes.
"""

import base64
import binascii
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass

import orjson

from toolcrib.gate.gate import Gate
from toolcrib.gate.view import Listing
from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import RpcError
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import INVALID_PARAMS, META, SERVER_INFO_KEY, Era
from toolcrib.web.mcp.views import Kind, McpView

LISTED: dict[str, Kind] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Maps the list methods to what they list."""
PAGE_BYTES = 900_000
_KEPT = 128
_MARK = b"from:"


@dataclass(frozen=True, slots=True)
class _Pages:
    listing: Listing
    starts: list[str]
    bodies: list[bytes]


class Pages:
    """Cached pages of the lists."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._cache: OrderedDict[tuple[Principal, str, Kind, Era], _Pages] = OrderedDict()

    def page(self, mcp_view: McpView, kind: Kind, principal: Principal, era: Era, cursor: object = None) -> bytes:
        """Return the serialized result of a list at this cursor."""
        pages = self._pages(mcp_view, kind, principal, era)
        if cursor is None:
            return pages.bodies[0]
        start = read_cursor(cursor)
        index = bisect_left(pages.starts, start)
        if index < len(pages.starts) and pages.starts[index] == start:
            return pages.bodies[index]
        # The catalog changed and no page starts there anymore: return what follows in the current list.
        return _build(mcp_view, kind, principal, era, pages.listing, start).bodies[0]

    def _pages(self, mcp_view: McpView, kind: Kind, principal: Principal, era: Era) -> _Pages:
        listing = self._gate.listing(principal)  # a new object whenever the principal's listing changes
        key = (principal, f"{mcp_view.key} {mcp_view.variant(principal)}", kind, era)
        cached = self._cache.get(key)
        if cached is None or cached.listing is not listing:
            cached = self._cache[key] = _build(mcp_view, kind, principal, era, listing)
            if len(self._cache) > _KEPT:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return cached


def _build(mcp_view: McpView, kind: Kind, principal: Principal, era: Era, listing: Listing, start: str = "") -> _Pages:
    entries = sorted((entry for entry in mcp_view.entries(kind, principal) if entry[0] >= start), key=_key)
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
    stamp = _stamp(mcp_view, principal, era)
    bodies = [_body(kind, cut, cursor, stamp) for cut, cursor in zip(cuts, following, strict=True)]
    return _Pages(listing, starts, bodies)


def _key(entry: tuple[str, bytes]) -> str:
    return entry[0]


def _stamp(mcp_view: McpView, principal: Principal, era: Era) -> JsonObject:
    if era == "legacy":
        return {}
    meta = {SERVER_INFO_KEY: mcp_view.server_info(principal)}
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", META: meta}


def _body(kind: Kind, cut: list[tuple[str, bytes]], cursor: str | None, stamp: JsonObject) -> bytes:
    rest = stamp | ({"nextCursor": encode_cursor(cursor)} if cursor is not None else {})
    tail = b"," + orjson.dumps(rest)[1:] if rest else b"}"
    return b'{"%s":[' % kind.encode() + b",".join(encoded for _, encoded in cut) + b"]" + tail


def encode_cursor(key: str) -> str:
    """Return the cursor of the page that starts with this key."""
    return base64.urlsafe_b64encode(_MARK + key.encode()).decode()


def read_cursor(cursor: object) -> str:
    """Return the key that a page starts with. Raises `RpcError` for an invalid cursor."""
    try:
        raw = base64.urlsafe_b64decode(cursor) if isinstance(cursor, str) else b""
        if raw.startswith(_MARK):
            return raw.removeprefix(_MARK).decode()
    except (binascii.Error, ValueError):
        pass
    raise RpcError(INVALID_PARAMS, "Invalid cursor.")
