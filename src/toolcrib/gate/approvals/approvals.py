"""Approvals: requests to a person about one call each. The caller waits here for the answer.

An approval is durable before it is published, and its answer is durable before it takes effect. The first durable
answer counts, regardless of the process that received it. Every other end is a denial: a timeout, an abandoned call,
the end of the crib. Approvals left open by a killed process are closed at the next start; a stored row alone never
makes a call run.

An answer is bound to one approval, and thereby to the tool, its definition, the exact arguments, the principal and the
session. It is delivered once. An approval expires by the monotonic or the wall clock, whichever comes first: neither a
clock set back nor a sleeping machine keeps it open past its `expiresAt`. An answer for longer than one call writes the
rule proposed when the approval was opened, and no other.

Must never accept a program's answer: who may answer is checked here, for every interface.
"""

import hmac
import itertools
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Self, TypeAlias

import anyio
import orjson
from anyio.abc import TaskGroup

from toolcrib.base.masking.restore import restore_masked
from toolcrib.gate.approvals.abandoned import Alive, follow_abandoned
from toolcrib.gate.approvals.edited_rule import edited_conditions
from toolcrib.gate.approvals.remembering import propose
from toolcrib.gate.approvals.requests import (
    ApprovalReply,
    Check,
    already_decided,
    answer_without_reply,
    bind,
    chosen_conditions,
    encode_edited,
    new_approval,
    required_event,
    resolved_event,
    rule_of_answer,
    shorten,
    stored_answer,
)
from toolcrib.gate.approvals.similar import NEEDED, propose_similar
from toolcrib.gate.policy.paths import REAL
from toolcrib.model.approvals import (
    NO_RULE_LIMITS,
    Approval,
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalStatus,
    Decided,
    RuleLimits,
    Scope,
    Verb,
)
from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import Json, JsonObject, canonical, is_object, loads
from toolcrib.model.policy import Binding, Condition, Rule
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.approvals import (
    Closing,
    close_approval,
    close_approvals,
    load_answered,
    load_approval,
    load_approvals,
    load_decided,
    load_detached,
    load_edits,
    load_orphans,
    replace_edit,
    save_approval,
    use_approval,
)
from toolcrib.store.engine import Store

WAIT = 600.0
"""Default seconds to wait for an answer."""
LONGEST_WAIT = 4 * 3600.0
"""Maximum seconds to wait, used in a session that a person has open."""
MOST_OPEN = 10_000
MOST_OPEN_PER_CALLER = 100
"""Maximum pending approvals in total, and per session or, outside of sessions, per principal."""
MOST_BYTES = 256 * 1024 * 1024
"""Maximum bytes of arguments of all pending approvals."""
MOST_BYTES_PER_CALLER = 32 * 1024 * 1024
"""Maximum bytes of arguments per principal, so that one token cannot use up the total."""
_LAST_WORDS = 5.0
"""Seconds to store the end of an approval while its caller is going away."""
_LOOK_EVERY = 1.0
"""Seconds between two polls for answers that another crib on the same database received."""
_LOOK_AT_ONCE = 500
_MOST_ANSWERED = 50
"""Maximum answered approvals of a tool that are read to find those of one principal."""
CLOCK_SECONDS = 2.0
"""Seconds between two checks of the wall clock."""
_OVERDUE = timedelta(minutes=1)
_ENDED = "The crib ended before the approval was answered."
_STOPPED = "The crib stopped before the approval was answered."
_GIVEN_UP = "The call ended before the approval was answered."

Publish: TypeAlias = Callable[[str, JsonObject], object]
MayAnswer: TypeAlias = Callable[[Principal, Principal], bool]
"""Whether the first principal is a person who may answer approvals of the second."""
Mask: TypeAlias = Callable[[Json], Json]
"""Masks secrets in the arguments shown to a person."""
MayRemember: TypeAlias = Callable[[Principal], bool]
"""Whether answers of this principal may hold for longer than one call."""
WallClock: TypeAlias = Callable[[], datetime]
Redact: TypeAlias = Callable[[Json, bytes], bytes]
"""Returns the part of the arguments that may be stored, from their value and their canonical JSON."""
Remember: TypeAlias = Callable[[Rule], Awaitable[None]]

logger = logging.getLogger(__name__)


class PendingApproval:
    """An open approval and the state of the caller waiting for it."""

    def __init__(self, approval: Approval, nonce: str, deadline: float, check: Check | None) -> None:
        self.approval = approval
        self.binding = bind(approval, nonce)
        self.deadline = deadline
        self.check = check
        self.announced = False
        self.outlives = False
        """Whether the approval stays open in the database when this crib stops."""
        self.answer: ApprovalAnswer | None = None
        self.lock = anyio.Lock()
        self.done = anyio.Event()


class Approvals:
    """All pending approvals of one crib: `async with Approvals(…) as approvals`."""

    def __init__(
        self,
        store: Store,
        *,
        crib: str,
        publish: Publish,
        may_answer: MayAnswer,
        may_remember: MayRemember,
        redact: Redact,
        remember: Remember,
        mask: Mask | None = None,
        clock: WallClock = lambda: datetime.now(UTC),
        cluster_key: bytes | None = None,
        alive: Alive | None = None,
        signal: Callable[[], object] = lambda: None,
    ) -> None:
        """`cluster_key` is the same on all nodes of a cluster: each can then deliver answers to approvals of others.

        `alive` returns the cribs whose calls may still be waiting. `signal` has them look for an answer at once.
        """
        self._store = store
        self._shares_handles = cluster_key is not None and store.shared
        self._key = cluster_key or secrets.token_bytes(32)
        self._alive = alive
        self._signal = signal
        self._crib = crib
        self._listeners: list[Publish] = [publish]
        self._may_answer = may_answer
        self._may_remember = may_remember
        self._clock = clock
        self._redact = redact
        self._mask = mask
        self._remember = remember
        self._open: dict[str, PendingApproval] = {}
        self._open_by_scope: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._closed = False
        self._elsewhere = anyio.Event()
        self._tasks: TaskGroup

    @property
    def pending(self) -> int:
        """Number of pending approvals of this crib."""
        return len(self._open)

    def listen(self, listener: Publish) -> None:
        """Call `listener` with the kind and data of every event that is published."""
        self._listeners.append(listener)

    def answered_elsewhere(self) -> None:
        """Look for answers in the database now: another crib reported one."""
        self._elsewhere.set()

    def _publish(self, kind: str, data: JsonObject) -> None:
        for listener in self._listeners:
            listener(kind, data)

    async def __aenter__(self) -> Self:
        await self.close_of_cribs({self._crib})
        await self._forget_edits()
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._watch_clock)
        if self._store.shared:
            self._tasks.start_soon(self._follow_others)
            if self._alive is not None:
                self._tasks.start_soon(follow_abandoned, self._store, self._alive, self.close_of_cribs)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        for pending in self._open.values():
            pending.outlives = self._shares_handles and pending.approval.is_detached and pending.answer is None
        left = tuple(pending for pending in self._open.values() if not pending.outlives)
        with anyio.move_on_after(_LAST_WORDS, shield=True):
            try:
                await close_approvals(
                    self._store, [self._closing(pending.approval, "expired", reason=_STOPPED) for pending in left]
                )
            except Unavailable as error:
                logger.warning("Could not store the outcome of %d approvals: %s", len(left), error)
        for pending in left:
            self._settle(pending, answer_without_reply(pending.approval, "expired", _STOPPED))
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def close_of_cribs(self, ended: Collection[str]) -> None:
        """Close the approvals that calls of these ended cribs waited for, and those that have expired."""
        with_detached = not self._shares_handles
        while orphans := await load_orphans(self._store, ended, self._clock() - _OVERDUE, with_detached=with_detached):
            await close_approvals(self._store, [self._closing(each, "expired", reason=_ENDED) for each in orphans])
            for each in orphans if self._store.shared else ():
                self._publish("approval_resolved", resolved_event(each, answer_without_reply(each, "expired", _ENDED)))

    async def _forget_edits(self) -> None:
        """Redact edited arguments left by calls that were killed before they could do so."""
        for id, edited in await load_edits(self._store, self._crib, with_unused=not self._shares_handles):
            try:
                shown = self._redact(loads(edited), edited)
            except orjson.JSONDecodeError:
                shown = b"null"
            if shown != edited:
                await replace_edit(self._store, id, shown)

    async def ask(
        self, question: ApprovalRequest, *, seconds: float = WAIT, check: Check | None = None
    ) -> ApprovalAnswer:
        """Request an approval and wait for the answer; see `pending`."""
        async with self.open(question, seconds=seconds, check=check) as pending:
            return await self.wait(pending)

    @asynccontextmanager
    async def open(
        self,
        question: ApprovalRequest,
        *,
        seconds: float = WAIT,
        check: Check | None = None,
        is_detached: bool = False,
    ) -> AsyncGenerator[PendingApproval]:
        """Open an approval for the block. Use `wait` for its answer; leaving without one withdraws it.

        `check` validates arguments that the person has edited. The answer of a detached approval is fetched. Raises
        `Denied` (`approval.too_many`) for too many pending approvals, and `Unavailable` if it cannot be stored.
        """
        pending = self._admit(question, seconds, check, is_detached)
        try:
            await self._offer_similar(pending, question)
            await save_approval(self._store, pending.approval, self._crib, pending.binding)
            if pending.answer is None:
                pending.announced = True
                self._publish("approval_required", required_event(self.shown(pending.approval)))
            yield pending
        finally:
            if not pending.outlives:
                with anyio.move_on_after(_LAST_WORDS, shield=True):
                    await self._end(pending, "withdrawn", _GIVEN_UP)
                    if pending.answer is not None:
                        await self.forget_edit(pending.approval.id, pending.answer)
                self._settle(pending, answer_without_reply(pending.approval, "withdrawn", _GIVEN_UP))
            self._release(pending)

    def _admit(
        self, question: ApprovalRequest, seconds: float, check: Check | None, is_detached: bool
    ) -> PendingApproval:
        if self._closed:
            raise Unavailable("crib.closed", "The crib is stopping and opens no new approvals.")
        scope = question.principal.scope
        if self._open_by_scope[scope] >= MOST_OPEN_PER_CALLER:
            raise Denied("approval.too_many", f"{MOST_OPEN_PER_CALLER} approvals of this caller are pending.")
        size = len(question.arguments)
        if self._bytes[scope] + size > MOST_BYTES_PER_CALLER:
            raise Denied(
                "approval.too_many", "The arguments of this caller's pending approvals are too large in total."
            )
        if len(self._open) >= MOST_OPEN or self._bytes.total() + size > MOST_BYTES:
            raise Denied("approval.too_many", f"{len(self._open)} approvals are pending.")
        seconds = min(max(seconds, 0.0), LONGEST_WAIT)
        approval = new_approval(question, seconds, propose(question, self._redact, REAL), self._clock())
        approval = replace(approval, is_detached=is_detached)
        pending = PendingApproval(approval, self.nonce(approval.id), anyio.current_time() + seconds, check)
        self._open[approval.id] = pending
        self._open_by_scope[scope] += 1
        self._bytes[scope] += size
        return pending

    async def _offer_similar(self, pending: PendingApproval, question: ApprovalRequest) -> None:
        """Add the proposal for calls like those that were approved repeatedly, if there is one."""
        bound = Binding.of(question.principal)
        answered = await load_answered(self._store, question.ref, question.definition_hash, _MOST_ANSWERED)
        own = (each for each in answered if Binding.of(each.principal) == bound)
        approved = itertools.takewhile(lambda each: each.status == "approved" and each.edited is None, own)
        earlier = [each.given for each in itertools.islice(approved, NEEDED)]
        offered = pending.approval.remembering
        similar = propose_similar(question, offered, earlier, self._redact, REAL)
        if similar is not None:
            offered = replace(offered, prefixes=(*offered.prefixes, similar))
            pending.approval = replace(pending.approval, remembering=offered)

    def _release(self, pending: PendingApproval) -> None:
        scope = pending.approval.principal.scope
        del self._open[pending.approval.id]
        self._bytes[scope] -= len(pending.approval.arguments)
        self._open_by_scope[scope] -= 1
        if not self._open_by_scope[scope]:
            del self._open_by_scope[scope]
            del self._bytes[scope]

    async def wait(self, pending: PendingApproval) -> ApprovalAnswer:
        """Return the answer to an approval: a denial once it has expired."""
        with anyio.move_on_after(pending.deadline - anyio.current_time()):
            await pending.done.wait()
        if pending.answer is None:
            await self._expire(pending)
        return pending.answer or answer_without_reply(pending.approval, "expired", "This call was not approved.")

    async def _watch_clock(self) -> None:
        """Expire approvals by the wall clock, which keeps running while the machine sleeps."""
        while True:
            await anyio.sleep(CLOCK_SECONDS)
            await self.expire_overdue()

    async def expire_overdue(self) -> None:
        """Expire the pending approvals whose `expires_at` has passed."""
        for pending in tuple(self._open.values()):
            if pending.answer is None and self._is_over(pending.approval, pending):
                await self._expire(pending)

    def _is_over(self, approval: Approval, pending: PendingApproval | None) -> bool:
        return self._clock() >= approval.expires_at or (
            pending is not None and anyio.current_time() >= pending.deadline
        )

    async def _expire(self, pending: PendingApproval) -> None:
        waited = pending.approval.expires_at - pending.approval.created_at
        await self._end(pending, "expired", f"The approval was not answered within {waited.total_seconds():g} s.")

    async def _end(self, pending: PendingApproval, decision: Decided, reason: str) -> None:
        """Close an approval without an answer. An answer that was durable first still counts."""
        async with pending.lock:
            if pending.answer is not None:
                return
            answer = answer_without_reply(pending.approval, decision, reason)
            try:
                is_stored = await close_approval(self._store, self._closing(pending.approval, decision, reason=reason))
            except Unavailable as error:  # nothing runs because of it, and the next start closes it
                logger.warning("Could not store the outcome of approval %s: %s", pending.approval.id, error)
                is_stored = True
            if not is_stored:
                answer = next((given for _, given in await self._answers([pending])), answer)
            self._settle(pending, answer)

    async def forget_edit(self, id: str, answer: ApprovalAnswer) -> None:
        """Redact edited arguments in the store, now that the caller has them."""
        if answer.edited:
            try:
                await replace_edit(self._store, id, self._redact(loads(answer.arguments), answer.arguments))
            except Unavailable as error:
                logger.warning("Could not mask the edited arguments of approval %s: %s", id, error)

    def nonce(self, id: str) -> str:
        """Return the part of the binding of an approval that the database does not have."""
        return hmac.new(self._key, id.encode(), "sha256").hexdigest()

    async def use(self, id: str) -> bool:
        """Mark the answer of a detached approval as delivered; return False if any node delivered it before."""
        return await use_approval(self._store, id, self._clock())

    async def stored(self, id: str) -> tuple[Approval, str] | None:
        """Return an approval as stored, with its binding. A detached one that is overdue has expired."""
        found = await load_approval(self._store, id)
        if found is None:
            return None
        approval, _, binding = found
        if approval.is_detached and approval.status == "pending" and self._is_over(approval, None):
            approval = replace(approval, status="expired", reason=_ENDED)
        return approval, binding

    async def detached_elsewhere(self, ref: ToolRef, definition_hash: str) -> list[Approval]:
        """Return the pending approvals of other nodes for a tool whose answers this node can deliver."""
        return await load_detached(self._store, ref, definition_hash, self._clock()) if self._shares_handles else []

    async def answer(
        self,
        id: str,
        decision: Verb,
        *,
        by: Principal,
        scope: Scope = "once",
        reason: str | None = None,
        arguments: JsonObject | None = None,
        prefix: str | None = None,
        conditions: Sequence[JsonObject] | None = None,
        uses: int | None = None,
        expires_at: datetime | None = None,
    ) -> ApprovalAnswer:
        """Answer an approval. With `arguments`, the call is made with these instead.

        A `scope` other than `once` writes the proposed rule, and with `prefix` the wider one for that prefix. The rule
        has the edited `conditions` instead, and ends after `uses` further calls and at `expires_at`, if given. Raises
        `NotFound` (`approval.unknown`), `Denied` (`approval.not_a_person`, `approval.once_only`), `Conflict`
        (`approval.decided`) if it was answered before or has expired, and `InvalidRequest` for invalid arguments, scope
        or prefix. After the last, the approval stays pending.
        """
        pending = self._open.get(id)
        found = (pending.approval, self._crib, pending.binding) if pending else await load_approval(self._store, id)
        if found is None:
            raise NotFound("approval.unknown", f"Approval {id!r} not found.")
        approval, crib, binding = found
        if self._may_answer(by, approval.principal) is not True:
            raise Denied(
                "approval.not_a_person", f"{by.name} ({by.source}) cannot answer approvals. Only a person can."
            )
        if scope != "once" and self._may_remember(by) is not True:
            raise Denied("approval.once_only", f"{by.name} may only answer `once`; {scope!r} creates a rule.")
        check = pending.check if pending is not None else None
        edited = None if decision == "deny" else encode_edited(self._restore_secrets(arguments, approval), check)
        limits = RuleLimits(uses, expires_at, self._edited_conditions(approval, prefix, conditions))
        reply = ApprovalReply(decision, scope, by.name, shorten(reason), edited, prefix, limits)
        if scope != "once":
            rule_of_answer(approval, reply, self._clock())
        elif prefix is not None or limits != NO_RULE_LIMITS:
            message = "A prefix and limits apply only to remembered answers."
            raise InvalidRequest("approval.prefix", message, "Choose a scope.")
        await self._refuse_late(approval, pending)
        if pending is None:
            if approval.status == "pending" and crib == self._crib and not approval.is_detached:
                raise Conflict("approval.decided", f"Approval {id} is no longer pending.")
            return await self._decide(approval, binding, reply)
        async with pending.lock:
            if pending.answer is not None:
                raise already_decided(id, pending.answer.decision, pending.answer.by)
            return await self._decide(approval, binding, reply, pending)

    def _edited_conditions(
        self, approval: Approval, prefix: str | None, raw: Sequence[JsonObject] | None
    ) -> tuple[Condition, ...] | None:
        if raw is None:
            return None
        return edited_conditions(approval, chosen_conditions(approval, prefix), raw, self._redact, REAL)

    async def _refuse_late(self, approval: Approval, pending: PendingApproval | None) -> None:
        """Raise `Conflict` for an approval that is overdue but not yet expired by a timer."""
        if (
            approval.status == "pending"
            and (pending is None or pending.answer is None)
            and self._is_over(approval, pending)
        ):
            if pending is not None:
                await self._expire(pending)
            raise already_decided(approval.id, "expired")

    async def _decide(
        self, approval: Approval, binding: str, reply: ApprovalReply, pending: PendingApproval | None = None
    ) -> ApprovalAnswer:
        decision: Decided = "approved" if reply.verb == "approve" else "denied"
        closing = self._closing(approval, decision, by=reply.by, reason=reply.reason)
        closing = replace(closing, scope=reply.scope, edited=reply.edited)
        rule = None if reply.scope == "once" else rule_of_answer(approval, reply, closing.at)
        given = approval.arguments if reply.edited is None else reply.edited
        answer = ApprovalAnswer(approval.id, decision, given, reply.edited is not None, reply.by, reply.reason, rule)
        with anyio.CancelScope(shield=True):  # the caller must get the answer even if the answerer disconnects
            if not await close_approval(self._store, closing, binding):
                stored = await load_approval(self._store, approval.id)
                raise (
                    already_decided(approval.id, stored[0].status, stored[0].decided_by)
                    if stored
                    else already_decided(approval.id)
                )
            if pending is None:
                self._signal()
            try:
                if rule is not None:
                    await self._remember(rule)
            finally:
                if pending is not None:
                    self._settle(pending, answer)
                else:
                    self._publish("approval_resolved", self._resolution(approval, answer))
        return answer

    async def withdraw_all(self, reason: str) -> None:
        """Withdraw every pending approval, and answers that were not fetched. Each caller gets a denial."""
        async with anyio.create_task_group() as ending:
            for pending in tuple(self._open.values()):
                ending.start_soon(self._withdraw, pending, reason)

    async def _withdraw(self, pending: PendingApproval, reason: str) -> None:
        await self._end(pending, "withdrawn", reason)
        if pending.approval.is_detached:
            await self.use(pending.approval.id)

    def shown(self, approval: Approval) -> Approval:
        """Return the approval as shown: with complete arguments, except for values that are certainly secrets."""
        edited = None if approval.edited is None else self._mask_encoded(approval.edited)
        return replace(approval, arguments=self._mask_encoded(approval.arguments), edited=edited)

    def _mask_encoded(self, encoded: bytes) -> bytes:
        """Return encoded arguments with their secrets masked, or the same bytes if there are none."""
        if self._mask is None:
            return encoded
        given: Json = loads(encoded)
        masked = self._mask(given)
        return encoded if masked == given else canonical(masked)

    def _resolution(self, approval: Approval, answer: ApprovalAnswer) -> JsonObject:
        """Return the event for a resolved approval, with the edited arguments if there are any."""
        edited = self.shown(replace(approval, edited=answer.arguments)).edited if answer.edited else None
        return resolved_event(approval, answer, None if edited is None else loads(edited))

    def _restore_secrets(self, arguments: JsonObject | None, approval: Approval) -> JsonObject | None:
        """Return edited arguments with the masked secrets restored."""
        shown, given = self.shown(approval).given, approval.given
        if arguments is None or not is_object(shown) or not is_object(given):
            return arguments
        return restore_masked(arguments, shown, given)

    async def find(
        self, *, status: ApprovalStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> list[Approval]:
        """Return approvals, newest first."""
        return await load_approvals(self._store, status=status, session=session, limit=limit)

    async def get(self, id: str) -> Approval:
        """Return one approval. Raises `NotFound` (`approval.unknown`)."""
        found = await load_approval(self._store, id)
        if found is None:
            raise NotFound("approval.unknown", f"Approval {id!r} not found.")
        return found[0]

    async def _follow_others(self) -> None:
        """Poll for answers that another crib on the same database received."""
        while True:
            with anyio.move_on_after(_LOOK_EVERY):
                await self._elsewhere.wait()
            self._elsewhere = anyio.Event()
            waiting = iter(tuple(self._open.values()))
            while some := tuple(itertools.islice(waiting, _LOOK_AT_ONCE)):
                for pending, answer in await self._answers(some):
                    self._settle(pending, answer)

    async def _answers(self, waiting: Iterable[PendingApproval]) -> list[tuple[PendingApproval, ApprovalAnswer]]:
        """Return those of these approvals that are answered in the database, with their answers."""
        by_id = {pending.approval.id: pending for pending in waiting}
        try:
            rows = await load_decided(self._store, tuple(by_id))
        except Exception as error:  # noqa: BLE001 boundary: without an answer the approval expires as denied
            logger.warning("Could not check for answers to approvals: %s", error)
            return []
        return [(by_id[row.id], stored_answer(by_id[row.id].approval, row)) for row in rows]

    def _settle(self, pending: PendingApproval, answer: ApprovalAnswer) -> None:
        if pending.answer is not None:
            return
        pending.answer = answer
        try:
            if pending.announced:
                self._publish("approval_resolved", self._resolution(pending.approval, answer))
        except Exception:  # boundary: the waiting caller gets the answer even if it cannot be published
            logger.exception("Could not publish the outcome of an approval.")
        pending.done.set()

    def _closing(
        self, approval: Approval, decision: Decided, *, by: str | None = None, reason: str | None = None
    ) -> Closing:
        try:
            shown = self._redact(approval.given, approval.arguments)
        except orjson.JSONDecodeError:  # a damaged row is closed like any other
            shown = b"null"
        return Closing(approval.id, decision, self._clock(), shown, by, reason)
