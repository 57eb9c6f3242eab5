"""Approvals: questions to a person about one call each; whoever asks waits here for the answer.

A question is durable before anybody is told of it, and its answer is durable before anybody acts on it. The first
durable answer counts, whichever process it was given to. Every other end is a no: nobody answered in time, the call was
given up, the crib ended. What was open when a process was killed is closed at the next start, and nothing ever runs
because of a row that was found.

An answer is bound to one question and with it to the tool, its definition, the exact arguments, the asker and the
session; it is given to the one who waits, once. Time runs by the monotonic clock: a changed clock of the machine moves
what is shown as `expiresAt`, never the end itself.

Above: the gate asks; console, command line and API answer. Below: the store. It must never let a program say yes: who
may answer is judged here, for every door.
"""

import itertools
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Self, TypeAlias

import anyio
import orjson
from anyio.abc import TaskGroup

from toolcrib.errors import Conflict, Denied, InvalidRequest, NotFound, Unavailable
from toolcrib.model.approvals import Answer, Approval, ApprovalStatus, Decided, Question, Scope, Verb
from toolcrib.model.json import Json, JsonObject, canonical
from toolcrib.model.policy import Rule
from toolcrib.model.principals import Principal
from toolcrib.policy.questions import Reply, answered, bind, decided, ended, opened, remembered, required, resolved
from toolcrib.store.approvals import (
    Closing,
    close_approval,
    close_approvals,
    load_approval,
    load_approvals,
    load_decided,
    load_orphans,
    replace_edit,
    save_approval,
)
from toolcrib.store.engine import Store

WAIT = 600.0
"""Seconds for which an answer is waited for."""
LONGEST_WAIT = 4 * 3600.0
"""Seconds for which it is waited for at most, in a session that a person has open."""
MOST_OPEN = 10_000
MOST_OPEN_PER_ASKER = 100
"""Open questions in all, and of one session or, outside sessions, of one asker."""
MOST_BYTES = 256 * 1024 * 1024
"""Arguments of all open questions together."""
_LONGEST_REASON = 2000
_LAST_WORDS = 5.0
"""Seconds in which the end of a question is written while whoever asked is going away."""
_LOOK_EVERY = 1.0
"""Seconds between two looks for answers that were given to another crib on the same database."""
_LOOK_AT_ONCE = 500
_OVERDUE = timedelta(minutes=1)
_STOPPED = "The crib stopped before anybody answered."
_GIVEN_UP = "The call was given up before anybody answered."

Publish: TypeAlias = Callable[[str, JsonObject], object]
MayAnswer: TypeAlias = Callable[[Principal, Principal], bool]
"""Whether the first principal is a person who may answer what the second one asks."""
Redact: TypeAlias = Callable[[Json, bytes], bytes]
"""What may be kept of arguments, given as a value and as canonical JSON."""
Remember: TypeAlias = Callable[[Rule], Awaitable[None]]
Check: TypeAlias = Callable[[JsonObject, bytes], object]
"""Raises `InvalidRequest` for arguments that do not fit the tool."""

logger = logging.getLogger(__name__)


class Asked:
    """An open question and whoever waits for its answer."""

    def __init__(self, approval: Approval, deadline: float, check: Check | None) -> None:
        self.approval = approval
        self.nonce = secrets.token_hex(16)
        self.binding = bind(approval, self.nonce)
        self.deadline = deadline
        self.check = check
        self.announced = False
        self.answer: Answer | None = None
        self.lock = anyio.Lock()
        self.done = anyio.Event()


class Approvals:
    """All open questions of one crib: `async with Approvals(…) as approvals`."""

    def __init__(
        self,
        store: Store,
        *,
        crib: str,
        publish: Publish,
        may_answer: MayAnswer,
        redact: Redact,
        remember: Remember,
    ) -> None:
        self._store = store
        self._crib = crib
        self._publish = publish
        self._may_answer = may_answer
        self._redact = redact
        self._remember = remember
        self._open: dict[str, Asked] = {}
        self._askers: Counter[tuple[str | None, ...]] = Counter()
        self._bytes = 0
        self._closed = False
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        await self._close_orphans()
        self._tasks = await anyio.create_task_group().__aenter__()
        if self._store.shared:
            self._tasks.start_soon(self._follow_others)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        left = tuple(self._open.values())
        with anyio.move_on_after(_LAST_WORDS, shield=True):
            try:
                await close_approvals(
                    self._store, [self._closing(asked.approval, "expired", reason=_STOPPED) for asked in left]
                )
            except Unavailable as error:
                logger.warning("The end of %d questions could not be kept: %s", len(left), error)
        for asked in left:
            self._settle(asked, ended(asked.approval, "expired", _STOPPED))
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _close_orphans(self) -> None:
        reason = "The crib ended before anybody answered."
        while orphans := await load_orphans(self._store, self._crib, datetime.now(UTC) - _OVERDUE):
            await close_approvals(self._store, [self._closing(each, "expired", reason=reason) for each in orphans])

    async def ask(self, question: Question, *, seconds: float = WAIT, check: Check | None = None) -> Answer:
        """Ask a person and wait for the answer; see `asked`."""
        async with self.asked(question, seconds=seconds, check=check) as asked:
            return await self.wait(asked)

    @asynccontextmanager
    async def asked(
        self, question: Question, *, seconds: float = WAIT, check: Check | None = None
    ) -> AsyncGenerator[Asked]:
        """Put a question; inside, `wait` gives its answer. Leaving without one withdraws it.

        `check` judges arguments that the person who answers has edited. Raises `Denied` (`approval.too_many`) where too
        many questions are open, and `Unavailable` where this one cannot be kept.
        """
        asked = self._admit(question, seconds, check)
        try:
            await save_approval(self._store, asked.approval, self._crib, asked.binding)
            if asked.answer is None:
                asked.announced = True
                self._publish("approval_required", required(asked.approval))
            yield asked
        finally:
            with anyio.move_on_after(_LAST_WORDS, shield=True):
                await self._end(asked, "withdrawn", _GIVEN_UP)
                await self._forget_edit(asked)
            self._settle(asked, ended(asked.approval, "withdrawn", _GIVEN_UP))
            self._release(asked)

    def _admit(self, question: Question, seconds: float, check: Check | None) -> Asked:
        if self._closed:
            raise Unavailable("crib.closed", "The crib is stopping; nobody can be asked any more.")
        asker = _asker(question.principal)
        if self._askers[asker] >= MOST_OPEN_PER_ASKER:
            raise Denied("approval.too_many", f"{MOST_OPEN_PER_ASKER} questions of this asker wait for an answer.")
        size = len(question.arguments)
        if len(self._open) >= MOST_OPEN or self._bytes + size > MOST_BYTES:
            raise Denied("approval.too_many", f"{len(self._open)} questions wait for an answer.")
        seconds = min(max(seconds, 0.0), LONGEST_WAIT)
        approval = opened(question, seconds)
        asked = Asked(approval, anyio.current_time() + seconds, check)
        self._open[approval.id] = asked
        self._askers[asker] += 1
        self._bytes += size
        return asked

    def _release(self, asked: Asked) -> None:
        asker = _asker(asked.approval.principal)
        del self._open[asked.approval.id]
        self._bytes -= len(asked.approval.arguments)
        self._askers[asker] -= 1
        if not self._askers[asker]:
            del self._askers[asker]

    async def wait(self, asked: Asked) -> Answer:
        """The answer to a question; a no when its time is over."""
        with anyio.move_on_after(asked.deadline - anyio.current_time()):
            await asked.done.wait()
        if asked.answer is None:
            waited = asked.approval.expires_at - asked.approval.created_at
            await self._end(asked, "expired", f"Nobody answered within {waited.total_seconds():g} s.")
        return asked.answer or ended(asked.approval, "expired", "Nobody approved this call.")

    async def _end(self, asked: Asked, decision: Decided, reason: str) -> None:
        """End a question that nobody answered here; an answer that was durable first counts all the same."""
        async with asked.lock:
            if asked.answer is not None:
                return
            answer = ended(asked.approval, decision, reason)
            try:
                kept = await close_approval(self._store, self._closing(asked.approval, decision, reason=reason))
            except Unavailable as error:  # nothing runs because of it, and the next start closes it
                logger.warning("The end of question %s could not be kept: %s", asked.approval.id, error)
                kept = True
            if not kept:
                answer = next((given for _, given in await self._answers([asked])), answer)
            self._settle(asked, answer)

    async def _forget_edit(self, asked: Asked) -> None:
        """Keep no secrets of edited arguments, now that whoever waited has them."""
        if asked.answer is not None and asked.answer.edited:
            edited = asked.answer.arguments
            try:
                await replace_edit(self._store, asked.approval.id, self._redact(orjson.loads(edited), edited))
            except Unavailable as error:
                logger.warning("Edited arguments of %s stay as they are: %s", asked.approval.id, error)

    async def answer(
        self,
        id: str,
        decision: Verb,
        *,
        by: Principal,
        scope: Scope = "once",
        reason: str | None = None,
        arguments: JsonObject | None = None,
    ) -> Answer:
        """Answer a question for good; with `arguments`, the call is to be made with these instead.

        Raises `NotFound` (`approval.unknown`), `Denied` (`approval.not_a_person`), `Conflict` (`approval.decided`) with
        who was first, `InvalidRequest` for arguments or a scope that do not fit; then the question stays open.
        """
        asked = self._open.get(id)
        found = (asked.approval, self._crib, asked.binding) if asked else await load_approval(self._store, id)
        if found is None:
            raise NotFound("approval.unknown", f"There is no question {id!r}.")
        approval, crib, binding = found
        if self._may_answer(by, approval.principal) is not True:
            raise Denied("approval.not_a_person", f"{by.name} ({by.source}) cannot answer this: only a person may.")
        edited = None if decision == "deny" else _edited(arguments, asked)
        reply = Reply(decision, scope, by.name, _bounded(reason), edited)
        if scope == "session" and approval.principal.session is None:
            raise InvalidRequest("approval.scope", f"The question {id} comes from no session.")
        if asked is None:
            if approval.status == "pending" and crib == self._crib:
                raise Conflict("approval.decided", f"Nobody waits for an answer to {id} any more.")
            return await self._decide(approval, binding, reply)
        async with asked.lock:
            if asked.answer is not None:
                raise decided(id, asked.answer.decision, asked.answer.by)
            return await self._decide(approval, binding, reply, asked)

    async def _decide(self, approval: Approval, binding: str, reply: Reply, asked: Asked | None = None) -> Answer:
        decision: Decided = "approved" if reply.verb == "approve" else "denied"
        closing = self._closing(approval, decision, by=reply.by, reason=reply.reason)
        closing = replace(closing, scope=reply.scope, edited=reply.edited)
        rule = None if reply.scope == "once" else remembered(approval, reply, closing.at)
        given = approval.arguments if reply.edited is None else reply.edited
        answer = Answer(approval.id, decision, given, reply.edited is not None, reply.by, reply.reason, rule)
        with anyio.CancelScope(shield=True):  # who answers may go away; who waits still has to hear it
            if not await close_approval(self._store, closing, binding):
                kept = await load_approval(self._store, approval.id)
                raise decided(approval.id, kept[0].status, kept[0].decided_by) if kept else decided(approval.id)
            try:
                if rule is not None:
                    await self._remember(rule)
            finally:
                if asked is not None:
                    self._settle(asked, answer)
                else:
                    self._publish("approval_resolved", resolved(approval, answer))
        return answer

    async def find(
        self, *, status: ApprovalStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> list[Approval]:
        """Questions, the newest first."""
        return await load_approvals(self._store, status=status, session=session, limit=limit)

    async def get(self, id: str) -> Approval:
        """One question; raises `NotFound` (`approval.unknown`)."""
        found = await load_approval(self._store, id)
        if found is None:
            raise NotFound("approval.unknown", f"There is no question {id!r}.")
        return found[0]

    async def _follow_others(self) -> None:
        """Take up answers that were given to another crib on the same database."""
        while True:
            await anyio.sleep(_LOOK_EVERY)
            waiting = iter(tuple(self._open.values()))
            while some := tuple(itertools.islice(waiting, _LOOK_AT_ONCE)):
                for asked, answer in await self._answers(some):
                    self._settle(asked, answer)

    async def _answers(self, waiting: Iterable[Asked]) -> list[tuple[Asked, Answer]]:
        """Those of these questions that are answered in the database, with their answers."""
        by_id = {asked.approval.id: asked for asked in waiting}
        try:
            rows = await load_decided(self._store, tuple(by_id))
        except Exception as error:  # noqa: BLE001 boundary: without an answer a question runs out, which is a no
            logger.warning("Answers cannot be looked for: %s", error)
            return []
        return [(by_id[row.id], answered(by_id[row.id].approval, row)) for row in rows]

    def _settle(self, asked: Asked, answer: Answer) -> None:
        if asked.answer is not None:
            return
        asked.answer = answer
        try:
            if asked.announced:
                self._publish("approval_resolved", resolved(asked.approval, answer))
        except Exception:  # boundary: whoever waits hears the answer, whoever else does not
            logger.exception("The end of a question could not be told.")
        asked.done.set()

    def _closing(
        self, approval: Approval, decision: Decided, *, by: str | None = None, reason: str | None = None
    ) -> Closing:
        try:
            shown = self._redact(approval.given, approval.arguments)
        except orjson.JSONDecodeError:  # a damaged row is closed like any other
            shown = b"null"
        return Closing(approval.id, decision, datetime.now(UTC), shown, by, reason)


def _asker(principal: Principal) -> tuple[str | None, ...]:
    return (principal.kind, principal.name, principal.session)


def _edited(arguments: JsonObject | None, asked: Asked | None) -> bytes | None:
    if arguments is None:
        return None
    try:
        encoded = canonical(arguments)
    except TypeError as error:
        raise InvalidRequest("tool.arguments_invalid", f"The arguments are not JSON: {error}.") from error
    if asked is not None and asked.check is not None:
        asked.check(arguments, encoded)
    return encoded


def _bounded(reason: str | None) -> str | None:
    return reason.strip()[:_LONGEST_REASON] or None if reason else None
