"""`tools/list` as bytes: made once per asker and listing, cut into pages, sent as they are ever after.

A page stays below what clients read as one event (1 MiB). A cursor holds the name the next page begins with, so that
it still means the right place after the catalog has changed.
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
from toolcrib.server.mcp.rpc import RpcError

PAGE_BYTES = 900_000
_KEPT = 64
_MARK = b"from:"


@dataclass(frozen=True, slots=True)
class _Pages:
    listing: Listing
    starts: list[str]
    bodies: list[bytes]


class ToolPages:
    """The pages of every asker's listing."""

    def __init__(self, gate: Gate, server_info: JsonObject) -> None:
        self._gate = gate
        self._stamps: dict[Era, JsonObject] = {
            "legacy": {},
            "modern": {
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
                META: {SERVER_INFO_KEY: server_info},
            },
        }
        self._kept: OrderedDict[tuple[Principal, Era], _Pages] = OrderedDict()

    def page(self, principal: Principal, era: Era, cursor: object = None) -> bytes:
        """The result of `tools/list` at this cursor, serialised."""
        pages = self._pages(principal, era)
        if cursor is None:
            return pages.bodies[0]
        start = _read_cursor(cursor)
        index = bisect_left(pages.starts, start)
        if index < len(pages.starts) and pages.starts[index] == start:
            return pages.bodies[index]
        # No page begins there any more, since the catalog changed: give what follows in the listing of now.
        return self._build(pages.listing, era, start).bodies[0]

    def _pages(self, principal: Principal, era: Era) -> _Pages:
        listing = self._gate.listing(principal)
        kept = self._kept.get((principal, era))
        if kept is None or kept.listing is not listing:
            kept = self._kept[principal, era] = self._build(listing, era)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end((principal, era))
        return kept

    def _build(self, listing: Listing, era: Era, start: str = "") -> _Pages:
        named = ((self._gate.name("endpoint", tool.ref), tool) for tool in listing.tools)
        entries = sorted(
            ((name, {"name": name, **tool.definition}) for name, tool in named if name >= start),
            key=lambda entry: entry[0],
        )
        cuts: list[list[tuple[str, bytes]]] = [[]]
        size = 0
        for name, entry in entries:
            encoded = orjson.dumps(entry)
            if size and size + len(encoded) > PAGE_BYTES:
                cuts.append([])
                size = 0
            cuts[-1].append((name, encoded))
            size += len(encoded) + 1
        starts = [cut[0][0] if cut else "" for cut in cuts]
        following = [*starts[1:], None]
        bodies = [self._body(cut, cursor, era) for cut, cursor in zip(cuts, following, strict=True)]
        return _Pages(listing, starts, bodies)

    def _body(self, cut: list[tuple[str, bytes]], cursor: str | None, era: Era) -> bytes:
        rest = self._stamps[era] | ({"nextCursor": _cursor(cursor)} if cursor is not None else {})
        tail = b"," + orjson.dumps(rest)[1:] if rest else b"}"
        return b'{"tools":[' + b",".join(encoded for _, encoded in cut) + b"]" + tail


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(_MARK + name.encode()).decode()


def _read_cursor(cursor: object) -> str:
    try:
        raw = base64.urlsafe_b64decode(cursor) if isinstance(cursor, str) else b""
        if raw.startswith(_MARK):
            return raw.removeprefix(_MARK).decode()
    except (binascii.Error, ValueError):
        pass
    raise RpcError(INVALID_PARAMS, "The cursor is not one that this server gave.")
