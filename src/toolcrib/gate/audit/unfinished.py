"""Calls and changes without an outcome, so that every intent in the chain gets exactly one.

A call in flight when a crib was killed gets an outcome `unknown` at the next start: whether it took effect cannot be
known. Its outcome has the content of its intent, `isError` and `outcome: "unknown"`.

An outcome that could not be recorded is owed: it is recorded once the database is back. Whether a failed transaction
was committed is uncertain, so the chain is searched first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import orjson
from sqlalchemy import Connection

from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_object, loads
from toolcrib.store.audit import AuditRun, page
from toolcrib.store.audit_lanes import lane_heads, lane_of
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store

_PAGE = 1000
_MOST = 100_000
"""Maximum records searched, from the end of the killed run."""
_OWN = ("id", "prev", "at", "phase")
_RETRY_SECONDS = 1.0
_LAST_SECONDS = 2.0
"""Seconds to record owed outcomes when the crib stops."""

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


class OwedOutcomes:
    """Outcomes that could not be recorded yet. Must be closed.

    `run` returns the current run, `record` appends a record to the chain.
    """

    def __init__(
        self, store: Store, run: Callable[[], AuditRun], record: Callable[[JsonObject], Awaitable[int]]
    ) -> None:
        self._store = store
        self._run = run
        self._record = record
        self._endings: dict[str, JsonObject] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, call: str, ending: JsonObject) -> None:
        """Record that a call ended like this, soon and unless its outcome is recorded already."""
        self._endings[call] = ending
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._retry())

    async def aclose(self) -> None:
        """Try once more, then give up: the next start records these outcomes as unknown."""
        if self._task is not None:
            self._task.cancel()
            with suppress(Unavailable, ConstraintError), anyio.move_on_after(_LAST_SECONDS):
                await self._settle()

    async def _retry(self) -> None:
        while self._endings:
            await anyio.sleep(_RETRY_SECONDS)
            try:
                await self._settle()
            except Unavailable as error:
                logger.info("%d outcomes cannot be recorded yet: %s", len(self._endings), error)
            except ConstraintError:  # another node ended the run, and recorded them as unknown
                self._endings.clear()

    async def _settle(self) -> None:
        owed, run = dict(self._endings), self._run()
        await self._store.caught_up()
        heads = await self._store.read(lambda connection: lane_heads(connection, [lane_of(run.start)]))
        for body in await unfinished(self._store, run, heads[0][0] if heads else run.start):
            ending = owed.get(str(body.get("call")))
            if ending is not None:
                del body["outcome"]
                await self._record(body | ending)
        for call in owed:
            self._endings.pop(call, None)


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
            record = _parse_body(body)
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


def _parse_body(body: Any) -> JsonObject:
    try:
        record: Json = loads(body)
    except (orjson.JSONDecodeError, TypeError):  # damaged; verification reports it
        return {}
    return record if is_object(record) else {}
