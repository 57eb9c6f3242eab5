"""Calls and changes in flight when a crib was killed: each gets an outcome `unknown` at the next start.

Whether such a call took effect cannot be known. Its outcome has the content of its intent, `isError` and `outcome:
"unknown"`, so that every intent in the chain has exactly one outcome.
"""

import logging
from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Connection

from toolcrib.model.json import Json, JsonObject, is_object, loads
from toolcrib.store.audit import AuditRun, page
from toolcrib.store.engine import Store

_PAGE = 1000
_MOST = 100_000
"""Maximum records searched, from the end of the killed run."""
_OWN = ("id", "prev", "at", "phase")

logger = logging.getLogger(__name__)


async def unfinished(store: Store, run: AuditRun, last: int) -> list[JsonObject]:
    """Return the bodies of the missing outcomes among the records of a run, up to `last`.

    In a database shared with other cribs, only calls of this run are considered.
    """
    search = _Search(f"{run.run}-" if store.shared else "", max(run.start, last - _MOST), last)
    if search.after > run.start:
        logger.warning("Only the last %d records were searched for calls without an outcome.", _MOST)
    while await store.read(search.next_page):
        pass
    return [_outcome(intent) for intent in search.open.values()]


class _Search:
    """The intents without an outcome in the records read so far."""

    def __init__(self, prefix: str, after: int, last: int) -> None:
        self.after = after
        self.open: dict[str, JsonObject] = {}
        self._prefix = prefix
        self._last = last

    def next_page(self, connection: Connection) -> bool:
        """Read more records. Returns False at the end."""
        rows = page(connection, self.after, _PAGE)
        self._take([row[-1] for row in rows if row[0] <= self._last])
        self.after = rows[-1][0] if rows else self.after
        return len(rows) == _PAGE and self.after < self._last

    def _take(self, bodies: Sequence[Any]) -> None:
        for body in bodies:
            record = _parsed(body)
            call = record.get("call")
            if not isinstance(call, str) or not call.startswith(self._prefix):
                continue
            if record.get("phase") == "intent":
                self.open[call] = record
            else:
                self.open.pop(call, None)


def _outcome(intent: JsonObject) -> JsonObject:
    kept = {key: value for key, value in intent.items() if key not in _OWN}
    return {"phase": "outcome", **kept, "isError": True, "outcome": "unknown"}


def _parsed(body: Any) -> JsonObject:
    try:
        record: Json = loads(body)
    except (orjson.JSONDecodeError, TypeError):  # damaged; verification reports it
        return {}
    return record if is_object(record) else {}
