"""Records of calls: taken in, found again.

A call leaves two records with the same `call`: its intent before it starts, its outcome before it is answered; what was
refused leaves an outcome only. What both have in common is encoded once. It must never hold a secret that `redact` can
see, nor let a value that is not JSON keep a call from being recorded.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeAlias

import orjson

from toolcrib.audit.chain import Chain, Entry, Left, columns_of, stored, unbroken
from toolcrib.audit.head import Head, HeadContent, HeadFile, read_head
from toolcrib.audit.redact import CUT, shown
from toolcrib.audit.segments import Segments
from toolcrib.audit.verify import Verification, verify
from toolcrib.errors import Conflict, NotFound, Unavailable
from toolcrib.model.json import JsonObject, storable
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.store.audit import Filters, find, hashes
from toolcrib.store.engine import Store

logger = logging.getLogger(__name__)

Phase = Literal["intent", "outcome"]
_LONGEST_NAME = 256
_MOST_FORMS = 4096
_THOUSANDTHS = [f".{number:03d}+00:00" for number in range(1000)]


_Of: TypeAlias = tuple[str, Principal, ToolRef, Tool | None, Decision, str | None]


class _Form(NamedTuple):
    """What records show of the same tool called by the same asker through the same door: members before and after those
    of the arguments, and the columns beside `at` and `phase`."""

    of: _Of
    before: bytes
    after: bytes
    columns: tuple[str | None, ...]

    @classmethod
    def make(cls, *of: *_Of) -> Self:
        """Encode it. What JSON cannot say is replaced, a long name that no tool has is cut."""
        door, principal, ref, tool, decision, rules_version = of
        before, first = _encoded({
            "door": door,
            "principal": principal.to_json(),
            "server": ref.server if tool else _bounded(ref.server),
            "tool": ref.tool if tool else _bounded(ref.tool),
            "definitionHash": tool.definition_hash if tool else None,
        })  # fmt: skip
        decided: JsonObject = {"decision": decision.verdict, "rules": decision.rules}
        if rules_version is not None:
            decided["rulesVersion"] = rules_version
        after, second = _encoded(decided)
        return cls(of, before, after, stored(columns_of(first | second))[2:])


class Audit:
    """One chain of records: `async with Audit(store, head_file) as audit`."""

    def __init__(self, store: Store, head_file: Path) -> None:
        """Sealed segments are in the folder `audit` beside the head file."""
        self._store = store
        self._path = head_file
        self.segments = Segments(store, self.record, head_file.with_name("audit"))
        self._file: HeadFile
        self._chain: Chain
        self._forms: dict[int, _Form] = {}

    async def __aenter__(self) -> Self:
        self._file = HeadFile(self._path)
        try:
            self._chain = await self._resumed(read_head(self._path))
        except BaseException:
            self._file.close()
            raise
        return self

    async def _resumed(self, known: HeadContent | None) -> Chain:
        """The chain as the database and its journal have it, compared with what the head file says."""
        head = known.head if known is not None else None
        chain = Chain(self._file, head or Head())
        rows = await self._store.read(lambda connection: connection.execute(chain.tail()).all())
        newest = Head(*rows[-1]) if rows else Head()
        left = await self._left_in_journal(chain.head)
        goes_on = bool(left) and left[0].prev == newest
        chain.resume([*rows, *(record.head for record in left)] if goes_on else rows)
        chain.head = newest
        for record in left:
            await self._store.append(chain, record.entry)
        chain.committed()
        self._store.journal(chain)
        joins = known is None and self._store.shared  # a new crib comes to a database that others use
        if rows and head is None and not joins:
            state = "missing" if known is None else "unreadable"
            self._file.note(f"This file was {state} at record {chain.head.number}: a tail cut off before is not found.")
        return chain

    async def _left_in_journal(self, known: Head) -> list[Left]:
        """The records that were durable, but not yet in the database, when a process ended that wrote this chain.

        They follow a record of the database, or the one that the head file knows as the last.
        """
        base = await self._base()
        found = [record for record in unbroken(self._store.journalled()) if record.head.number > base.number]
        if not found:
            return []
        first, last = found[0].prev, found[-1].head
        there = await self._store.read(lambda connection: hashes(connection, first.number, last.number))
        if first.number and there.get(first.number) != first.hash and first not in (known, base):
            logger.error("The journal of another database was found and is not used: it begins at %d.", first.number)
            return []
        return [record for record in found if there.get(record.head.number) != record.head.hash]

    async def _base(self) -> Head:
        """The last record that was sealed; whatever the journal has up to it is old."""
        try:
            return await self.segments.base()
        except Conflict as error:
            logger.error("The list of sealed records cannot be used: %s", error)  # noqa: TRY400 verification says more
            return Head()

    async def __aexit__(self, *_: object) -> None:
        self._store.journal(None)
        self._file.close()

    def record(self, body: JsonObject) -> "asyncio.Future[int]":
        """Record something: any JSON with at least `phase`. The future gives its number once it is durable."""
        members, body = _encoded({"at": _now(), **body})
        return self._store.append(self._chain, (members, stored(columns_of(body))))

    def call(
        self,
        call: str,
        door: str,
        principal: Principal,
        ref: ToolRef,
        tool: Tool | None,
        arguments: JsonObject,
        canonical: bytes,
        decision: Decision,
        *,
        rules: str | None = None,
        approval: str | None = None,
    ) -> "CallRecord":
        """What the records of one call have in common; `tool` is None where there is none of that name.

        `rules` is the version of the rules by which it was decided.
        """
        form = self._form(door, principal, ref, tool, decision, rules)
        digest = sha256(canonical).hexdigest().encode()
        members = b'"call":%b,%b,"argumentsDigest":"%b","arguments":%b,%b' % (
            orjson.dumps(call), form.before, digest, shown(arguments, canonical), form.after,
        )  # fmt: skip
        if approval is not None:
            members += b"," + _encoded({"approvalId": approval})[0]
        return CallRecord(self._store, self._chain, members, form.columns)

    def _form(self, *of: *_Of) -> "_Form":
        """What all records of such calls have in common, kept for as long as the same decision object is given."""
        decision = of[4]
        kept = self._forms.get(id(decision))
        if kept is None or kept.of != of:
            kept = _Form.make(*of)
            if of[3] is not None:  # unknown names come from outside, are without end and may be long
                if len(self._forms) >= _MOST_FORMS:
                    self._forms.clear()
                self._forms[id(decision)] = kept
        return kept

    async def find(self, filters: Filters) -> list[JsonObject]:
        """The records that fit, newest first."""
        rows = await self._store.read(lambda connection: find(connection, filters))
        return [_public(*row) for row in rows]

    async def get(self, number: int) -> JsonObject:
        """One record; raises `NotFound` (`audit.unknown`)."""
        for record in await self.find(Filters(after=number + 1, limit=1)):
            if record["id"] == number:
                return record
        raise NotFound("audit.unknown", f"There is no record {number}.")

    async def verify(self) -> Verification:
        """Check every record, sealed ones too, every link and both ends of the chain.

        Raises `Unavailable` if there are records that cannot be brought into the database now.
        """
        await self._store.caught_up()
        async with self.segments.steady():
            return await verify(self._store, self._path, self._chain.durable, await self.segments.check())


class CallRecord:
    """The records of one call."""

    __slots__ = ("_chain", "_columns", "_members", "_store")

    def __init__(self, store: Store, chain: Chain, members: bytes, columns: tuple[str | None, ...]) -> None:
        self._store = store
        self._chain = chain
        self._members = members
        self._columns = columns

    async def intent(self) -> int:
        """Record that the call is about to be made; gives the number of the record once it is durable.

        Raises `Unavailable` (`audit.unavailable`) if it could not be recorded: then the call must not be made.
        """
        entry = self._entry("intent")
        number = self._store.append_now(self._chain, entry)
        if number is not None:
            return number
        try:
            return await self._store.append(self._chain, entry)
        except Unavailable as error:
            raise Unavailable("audit.unavailable", f"The call was not made. {error.message}") from error
        except asyncio.CancelledError:
            self.abandoned(0.0)
            raise

    async def outcome(self, *, is_error: bool, duration_ms: float) -> int:
        """Record how the call ended; gives the number of the record once it is durable."""
        entry = self._entry("outcome", {"isError": is_error, "durationMs": duration_ms})
        number = self._store.append_now(self._chain, entry)
        if number is not None:
            return number
        try:
            return await self._store.append(self._chain, entry)
        except Unavailable as error:
            message = f"The call was made, but how it ended could not be recorded. {error.message}"
            raise Unavailable("audit.unavailable", message) from error

    async def refused(self, code: str) -> int:
        """Record that the call was not made, and by which code: not every refusal is one of the rules."""
        entry = self._entry("outcome", {"isError": True, "refused": code, "durationMs": 0.0})
        try:
            return await self._store.append(self._chain, entry)
        except Unavailable as error:
            raise Unavailable("audit.unavailable", f"The call was not made. {error.message}") from error

    def abandoned(self, duration_ms: float) -> None:
        """Record that the call was cancelled or broke off, without waiting: there may be no time left to wait in."""
        entry = self._entry("outcome", {"isError": True, "abandoned": True, "durationMs": duration_ms})
        self._store.append(self._chain, entry).add_done_callback(_log_failure)

    def _entry(self, phase: Phase, ending: JsonObject | None = None) -> Entry:
        at = _now()
        members = b'"at":"%b","phase":"%b",%b' % (at.encode(), phase.encode(), self._members)
        if ending is not None:
            members += b"," + orjson.dumps(ending)[1:-1]
        return members, (at, phase, *self._columns)


def _log_failure(ended: "asyncio.Future[int]") -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        logger.error("The end of an abandoned call could not be recorded: %s", error)


def _now() -> str:
    """This moment as `moment` writes it, at a quarter of the cost."""
    seconds, thousandths = divmod(time.time_ns() // 1_000_000, 1000)
    return _second(seconds) + _THOUSANDTHS[thousandths]


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def _bounded(name: str) -> str:
    """A name from outside that no tool has may be of any length."""
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + CUT


def _encoded(body: JsonObject) -> tuple[bytes, JsonObject]:
    """The members of an object as JSON, and the object they stand for: what JSON cannot say is replaced."""
    try:
        return orjson.dumps(body)[1:-1], body
    except TypeError:
        body = storable(body)
        return orjson.dumps(body)[1:-1], body


def _public(number: int, digest: str, body: bytes) -> JsonObject:
    """The shape of a record outside; of one that was damaged, what can still be told."""
    try:
        return {**orjson.loads(body), "hash": digest}
    except (orjson.JSONDecodeError, TypeError):
        return {"id": number, "hash": digest, "damaged": True}
