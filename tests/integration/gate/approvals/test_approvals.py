"""Approvals on both databases: the first stored answer of a person counts; anything else denies the call."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import orjson
import pytest
from anyio.abc import TaskGroup

from integration.gate.approvals.requests import (
    CONSOLE,
    DELETE,
    OWNER,
    PRINCIPALS,
    SESSION,
    ApprovalsHarness,
    approval_request,
    open_approvals,
)
from integration.store.databases import fetch_rows, run
from toolcrib.gate.approvals import approvals as module
from toolcrib.gate.approvals.approvals import LONGEST_WAIT, MOST_OPEN_PER_CALLER, Approvals
from toolcrib.gate.principals import NamedTokens, Principals
from toolcrib.model.approvals import ApprovalAnswer, ApprovalRequest, Scope, Verb
from toolcrib.model.errors import Conflict, Denied, InvalidRequest, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.policy import Binding
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.engine import Store, open_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Store]:
    async with open_store(database) as opened:
        yield opened


class PendingCall:
    """A call that waits for its approval in a task of its own."""

    def __init__(self) -> None:
        self.answer: ApprovalAnswer | None = None
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self, approvals: Approvals, request: ApprovalRequest, **options: Any) -> None:
        with self.scope:
            self.answer = await approvals.ask(request, **options)
        self.done.set()

    async def result(self) -> ApprovalAnswer:
        with anyio.fail_after(10):
            await self.done.wait()
        assert self.answer is not None
        return self.answer

    async def cancel(self) -> None:
        self.scope.cancel()
        with anyio.fail_after(10):
            await self.done.wait()
        assert self.answer is None


async def request_approval(
    tasks: TaskGroup, harness: ApprovalsHarness, request: ApprovalRequest | None = None, **options: Any
) -> PendingCall:
    """Request an approval, and wait until it is published."""
    before = len(harness.events)
    pending = PendingCall()
    tasks.start_soon(lambda: pending.run(harness.approvals, request or approval_request(), **options))
    await harness.wait_for_events(before + 1)
    return pending


async def test_approved_call_receives_the_exact_arguments(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness, approval_request({"b": 1, "a": "ü"}))
        (listed,) = await harness.approvals.find(status="pending")
        assert listed.given == {"a": "ü", "b": 1}
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER)
        answer = await pending.result()
        assert (answer.approved, answer.arguments, answer.edited) == (True, '{"a":"ü","b":1}'.encode(), False)
        assert (answer.by, answer.rule) == ("owner", None)
        assert await harness.approvals.find(status="pending") == []


async def test_events_have_the_documented_shape(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        kind, required = harness.events[0]
        assert kind == "approval_required"
        expires = required.pop("expiresAt")
        assert expires > required.pop("at", "")
        assert required == {
            "approvalId": harness.newest_id,
            "toolCallId": "call-1",
            "server": "github",
            "tool": "delete_repo",
            "arguments": {"repo": "toolcrib"},
            "reason": "Mode default asks a person.",
            "sessionId": "session-1",
        }
        await harness.approvals.answer(harness.newest_id, "deny", by=CONSOLE, reason="Not this one.")
        answer = await pending.result()
        assert answer.refusal == "A person denied this call: Not this one."
        assert harness.resolved() == [
            {
                "approvalId": harness.newest_id,
                "decision": "denied",
                "by": "owner",
                "reason": "Not this one.",
                "sessionId": "session-1",
            }
        ]
        shape = (await harness.approvals.get(harness.newest_id)).to_json()
        assert shape["status"] == "denied"
        assert shape["decidedBy"] == "owner"
        assert shape["reason"] == "Not this one."


async def test_answer_is_stored_before_the_call_continues(store: Store, database: str) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER)
        assert fetch_rows(database, "SELECT status, decided_by FROM approvals") == [("approved", "owner")]
        assert (await pending.result()).approved


async def test_first_of_two_concurrent_answers_counts(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        for _ in range(10):
            pending = await request_approval(tasks, harness)
            outcomes: list[ApprovalAnswer | Conflict] = []

            async def reply(verb: Verb, outcomes: list[ApprovalAnswer | Conflict], id: str) -> None:
                try:
                    outcomes.append(await harness.approvals.answer(id, verb, by=OWNER))
                except Conflict as error:
                    outcomes.append(error)

            async with anyio.create_task_group() as two:
                two.start_soon(reply, "approve", outcomes, harness.newest_id)
                two.start_soon(reply, "deny", outcomes, harness.newest_id)
            (won,) = [each for each in outcomes if isinstance(each, ApprovalAnswer)]
            (lost,) = [each for each in outcomes if isinstance(each, Conflict)]
            assert (lost.code, lost.status) == ("approval.decided", 409)
            assert f"{won.decision} by owner" in lost.message
            assert await pending.result() == won
        assert len(harness.resolved()) == 10


async def test_second_answer_is_refused(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER)
        await pending.result()
        for verb in ("approve", "deny"):
            error = await harness.answer_refused("approval.decided", harness.newest_id, verb, by=CONSOLE)
            assert "approved by owner" in error.message
        await harness.answer_refused("approval.unknown", "0" * 16, "approve", by=OWNER)


async def test_equal_calls_have_separate_approvals(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        first, second = await request_approval(tasks, harness), await request_approval(tasks, harness)
        ids = [data["approvalId"] for _, data in harness.events]
        await harness.approvals.answer(ids[0], "approve", by=OWNER)
        await harness.approvals.answer(ids[1], "deny", by=OWNER)
        assert ((await first.result()).approved, (await second.result()).approved) == (True, False)


async def test_unanswered_approval_expires_and_denies_the_call(store: Store) -> None:
    async with open_approvals(store) as harness:
        with anyio.fail_after(10):
            answer = await harness.approvals.ask(approval_request(), seconds=0.02)
        assert (answer.decision, answer.approved) == ("expired", False)
        assert answer.refusal == "The approval was not answered within 0.02 s."
        assert [data["decision"] for data in harness.resolved()] == ["expired"]
        error = await harness.answer_refused("approval.decided", harness.newest_id, "approve", by=OWNER)
        assert "expired" in error.message


async def test_timeout_of_an_approval_is_limited_to_the_maximum(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness, seconds=10 * LONGEST_WAIT)
        (listed,) = await harness.approvals.find(status="pending")
        assert (listed.expires_at - listed.created_at).total_seconds() == pytest.approx(LONGEST_WAIT, abs=0.01)
        await pending.cancel()


async def test_cancelled_call_withdraws_its_approval(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        await pending.cancel()
        assert [data["decision"] for data in harness.resolved()] == ["withdrawn"]
        stored = await harness.approvals.get(harness.newest_id)
        assert (stored.status, stored.decided_by) == ("withdrawn", None)
        await harness.answer_refused("approval.decided", harness.newest_id, "approve", by=OWNER)


async def test_leaving_the_block_withdraws_the_approval(store: Store) -> None:
    async with open_approvals(store) as harness:
        with pytest.raises(ZeroDivisionError):
            async with harness.approvals.open(approval_request()):
                raise ZeroDivisionError
        assert (await harness.approvals.get(harness.newest_id)).status == "withdrawn"


async def test_cancelled_answerer_does_not_lose_the_answer(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        with anyio.CancelScope() as scope:
            harness.on_remember = scope.cancel
            await harness.approvals.answer(harness.newest_id, "approve", by=OWNER, scope="always")
        answer = await pending.result()
        assert (answer.approved, answer.by) == (True, "owner")
        assert harness.rules == [answer.rule]


async def test_edited_arguments_are_validated_and_encoded_anew(store: Store, database: str) -> None:
    def check(arguments: JsonObject, encoded: bytes) -> None:
        assert canonical(arguments) == encoded
        if "repo" not in arguments:
            raise InvalidRequest("tool.arguments_invalid", "repo is missing.")

    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness, check=check)
        await harness.answer_refused(
            "tool.arguments_invalid", harness.newest_id, "approve", by=OWNER, arguments={"other": 1}
        )
        await harness.answer_refused(
            "tool.arguments_invalid", harness.newest_id, "approve", by=OWNER, arguments={"repo": 10**400}
        )
        edited = {"repo": "sandbox", "api_key": "sk-0123456789abcdef0123"}
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER, arguments=edited)
        answer = await pending.result()
        assert (answer.approved, answer.edited, answer.arguments) == (True, True, canonical(edited))
        assert b"sk-0123" not in bytes(fetch_rows(database, "SELECT edited FROM approvals")[0][0])


async def test_secrets_in_arguments_are_removed_once_the_approval_is_answered(store: Store, database: str) -> None:
    secret = "sk-0123456789abcdef0123"

    def stored() -> bytes:
        return bytes(fetch_rows(database, "SELECT arguments FROM approvals")[0][0])

    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness, approval_request({"api_key": secret}))
        assert orjson.loads(stored()) == {"api_key": secret}
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER)
        assert orjson.loads((await pending.result()).arguments) == {"api_key": secret}
        assert secret.encode() not in stored()


@pytest.mark.parametrize(("scope", "session"), [("session", "session-1"), ("always", None)])
@pytest.mark.parametrize(("verb", "effect"), [("approve", "allow"), ("deny", "deny")])
async def test_lasting_answer_creates_a_rule_bound_to_the_definition(
    store: Store, verb: Verb, effect: str, scope: Scope, session: str | None
) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness, approval_request(ref=ToolRef("git*hub", "delete_[repo]")))
        await harness.approvals.answer(harness.newest_id, verb, scope=scope, by=OWNER, reason="I know it.")
        rule = (await pending.result()).rule
        assert rule is not None
        assert harness.rules == [rule]
        assert (rule.effect, rule.pattern) == (effect, "git[*]hub/delete_[[]repo]")
        assert (rule.definition_hash, rule.session) == ("d" * 64, session)
        assert (rule.created_by, rule.reason) == ("owner", "I know it.")
        assert rule.principal == Binding("session", "web", "reviewer")


async def test_session_scope_needs_a_session(store: Store) -> None:
    token = Principal("token", "laptop", "ide", "default")
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness, approval_request(principal=token))
        await harness.answer_refused("approval.scope", harness.newest_id, "approve", by=OWNER, scope="session")
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER)
        assert (await pending.result()).approved


async def test_answer_counts_although_its_rule_could_not_be_stored(store: Store) -> None:
    async def remember(_: object) -> None:
        raise Unavailable("database.unavailable", "The disk is full.")

    harness = ApprovalsHarness()
    harness.approvals = Approvals(
        store,
        crib="crib",
        publish=harness.publish,
        may_answer=PRINCIPALS.may_answer,
        may_remember=PRINCIPALS.may_remember,
        redact=lambda _, encoded: encoded,
        remember=remember,
    )
    async with harness.approvals, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        with pytest.raises(Unavailable):
            await harness.approvals.answer(harness.newest_id, "approve", by=OWNER, scope="always")
        assert (await pending.result()).approved


async def test_only_a_person_can_answer_an_approval(store: Store) -> None:
    tokens = NamedTokens(store)
    await tokens.refresh()
    principals = Principals("a-token-of-the-owner", tokens)
    bound, _ = await tokens.create("bound", agent="reviewer")
    programs = [
        SESSION,
        bound.principal,
        principals.owner("ide"),
        principals.owner("api", agent="reviewer"),
        principals.owner("cli", session="session-1"),
        principals.owner("web", mode="bypassPermissions"),
        principals.owner("scheduler"),
        principals.owner("agent"),
        Principal("token", "invented", "api"),
        Principal("session", "owner", "web", by_hand=True),
    ]
    async with open_approvals(store, principals=principals) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        for program in programs:
            error = await harness.answer_refused("approval.not_a_person", harness.newest_id, "approve", by=program)
            assert isinstance(error, Denied)
        assert pending.answer is None
        assert len(await harness.approvals.find(status="pending")) == 1
        await harness.approvals.answer(harness.newest_id, "deny", by=principals.owner("api"))
        await pending.result()


async def test_client_token_that_may_approve_answers_only_its_own_requests(store: Store) -> None:
    tokens = NamedTokens(store)
    principals = Principals("a-token-of-the-owner", tokens)
    laptop, _ = await tokens.create("laptop", may_approve=True)
    phone, _ = await tokens.create("phone", source="api", may_approve=True)
    async with open_approvals(store, principals=principals) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        await harness.answer_refused("approval.not_a_person", harness.newest_id, "approve", by=laptop.principal)
        await harness.approvals.answer(harness.newest_id, "approve", by=phone.principal)
        assert (await pending.result()).by == "phone"
        pending = await request_approval(tasks, harness, approval_request(principal=laptop.principal))
        await harness.approvals.answer(harness.newest_id, "approve", by=laptop.principal)
        assert (await pending.result()).by == "laptop"
        pending = await request_approval(tasks, harness, approval_request(principal=laptop.principal))
        await tokens.revoke("laptop")
        await harness.answer_refused("approval.not_a_person", harness.newest_id, "approve", by=laptop.principal)
        await pending.cancel()


@pytest.mark.parametrize("returned", [None, "yes", 1])
async def test_answer_is_denied_unless_the_check_returns_true(store: Store, returned: Any) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)

        def may_answer(*_: object) -> bool:
            return returned

        other = Approvals(
            store,
            crib="other",
            publish=harness.publish,
            may_answer=may_answer,
            may_remember=PRINCIPALS.may_remember,
            redact=lambda _, encoded: encoded,
            remember=harness.remember,
        )
        async with other:
            with pytest.raises(Denied):
                await other.answer(harness.newest_id, "approve", by=OWNER)
        assert len(await harness.approvals.find(status="pending")) == 1
        await pending.cancel()


async def _never(_: object) -> None:
    raise AssertionError


async def test_stopping_crib_denies_all_pending_calls(store: Store) -> None:
    async with anyio.create_task_group() as tasks:
        async with open_approvals(store) as harness:
            pending = [await request_approval(tasks, harness) for _ in range(3)]
        for each in pending:
            answer = await each.result()
            assert answer.decision == "expired"
            assert answer.refusal == "The crib stopped before the approval was answered."
        assert [data["decision"] for data in harness.resolved()] == ["expired"] * 3
        assert {row.status for row in await harness.approvals.find()} == {"expired"}
        with pytest.raises(Unavailable, match="stopping"):
            await harness.approvals.ask(approval_request())


async def test_pending_approvals_are_limited_per_session(store: Store) -> None:
    other = Principal("session", "session-2", "web", session="session-2")
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        flood = [PendingCall() for _ in range(MOST_OPEN_PER_CALLER)]
        for each in flood:
            tasks.start_soon(each.run, harness.approvals, approval_request())
        await harness.wait_for_events(MOST_OPEN_PER_CALLER)
        with pytest.raises(Denied) as raised:
            await harness.approvals.ask(approval_request())
        assert (raised.value.code, raised.value.status) == ("approval.too_many", 429)
        pending = await request_approval(tasks, harness, approval_request(principal=other))
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER)
        assert (await pending.result()).approved
        await flood[0].cancel()
        freed = await request_approval(tasks, harness)
        assert freed.answer is None
        tasks.cancel_scope.cancel()


async def test_pending_approvals_are_limited_in_number_and_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    monkeypatch.setattr(module, "MOST_BYTES", 1000)

    def request_of(number: int, size: int = 10) -> ApprovalRequest:
        principal = Principal("session", f"s{number}", "web", session=f"s{number}")
        return approval_request({"text": "x" * size}, principal=principal)

    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        with pytest.raises(Denied):
            await harness.approvals.ask(request_of(0, size=2000))
        pending = [await request_approval(tasks, harness, request_of(number)) for number in range(3)]
        with pytest.raises(Denied):
            await harness.approvals.ask(request_of(3))
        await pending[0].cancel()
        await request_approval(tasks, harness, request_of(4))
        tasks.cancel_scope.cancel()


async def test_pending_arguments_of_one_caller_are_limited_in_size(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES_PER_CALLER", 1000)

    def request_of(name: str, size: int) -> ApprovalRequest:
        return approval_request({"text": "x" * size}, principal=Principal("session", name, "web", session=name))

    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        first = await request_approval(tasks, harness, request_of("a", 600))
        with pytest.raises(Denied) as raised:
            await harness.approvals.ask(request_of("a", 600))
        assert raised.value.code == "approval.too_many"
        await request_approval(tasks, harness, request_of("b", 600))
        await first.cancel()
        await request_approval(tasks, harness, request_of("a", 600))
        tasks.cancel_scope.cancel()


async def test_approval_that_cannot_be_stored_is_not_published(store: Store, database: str) -> None:
    async with open_approvals(store) as harness:
        run(database, "ALTER TABLE approvals RENAME TO elsewhere")
        with pytest.raises(Exception, match="approvals"), anyio.fail_after(10):
            await harness.approvals.ask(approval_request())
        assert harness.events == []
        run(database, "ALTER TABLE elsewhere RENAME TO approvals")
        with anyio.fail_after(10):
            assert (await harness.approvals.ask(approval_request(), seconds=0.01)).decision == "expired"


async def test_approval_that_cannot_be_published_is_withdrawn(store: Store) -> None:
    def publish(kind: str, _: JsonObject) -> None:
        raise OSError(kind)

    approvals = Approvals(
        store,
        crib="crib",
        publish=publish,
        may_answer=PRINCIPALS.may_answer,
        may_remember=PRINCIPALS.may_remember,
        redact=lambda _, encoded: encoded,
        remember=_never,
    )
    async with approvals:
        with pytest.raises(OSError, match="approval_required"), anyio.fail_after(10):
            await approvals.ask(approval_request())
        assert [each.status for each in await approvals.find()] == ["withdrawn"]


async def test_approval_left_open_by_an_earlier_run_expires(store: Store, database: str) -> None:
    async with open_approvals(store) as harness, harness.approvals.open(approval_request()):
        pass
    left_open = harness.newest_id
    run(database, "UPDATE approvals SET status = 'pending', decided_at = NULL")
    async with open_approvals(store) as harness:
        stored = await harness.approvals.get(left_open)
        assert (stored.status, stored.reason) == ("expired", "The crib ended before the approval was answered.")
        await harness.answer_refused("approval.decided", left_open, "approve", by=OWNER)


async def test_pending_row_without_a_waiting_call_cannot_be_approved(store: Store, database: str) -> None:
    async with open_approvals(store) as harness:
        async with harness.approvals.open(approval_request()):
            pass
        run(database, "UPDATE approvals SET status = 'pending'")
        await harness.answer_refused("approval.decided", harness.newest_id, "approve", by=OWNER)


async def test_approval_with_a_changed_binding_cannot_be_answered(store: Store, database: str) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        run(database, "UPDATE approvals SET binding = 'another'")
        await harness.answer_refused("approval.decided", harness.newest_id, "approve", by=OWNER)
        await pending.cancel()


async def test_another_crib_on_the_same_database_can_answer(postgres_url: str) -> None:
    async with (
        open_store(postgres_url) as one,
        open_store(postgres_url) as two,
        open_approvals(one, crib="one") as first,
        open_approvals(two, crib="two") as second,
        anyio.create_task_group() as tasks,
    ):
        pending = await request_approval(tasks, first)
        (seen,) = await second.approvals.find(status="pending")
        assert seen.ref == DELETE
        given = await second.approvals.answer(seen.id, "approve", by=OWNER, arguments={"repo": "other"})
        answer = await pending.result()
        assert (answer.approved, answer.arguments, answer.by) == (True, given.arguments, "owner")
        assert [data["decision"] for data in first.resolved()] == ["approved"]
        with pytest.raises(ToolcribError) as raised:
            await first.approvals.answer(seen.id, "deny", by=OWNER)
        assert raised.value.code == "approval.decided"


class WallClock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def open_with_clock(store: Store, clock: WallClock) -> AsyncGenerator[ApprovalsHarness]:
    harness = ApprovalsHarness()
    async with Approvals(
        store,
        crib="crib",
        publish=harness.publish,
        may_answer=PRINCIPALS.may_answer,
        may_remember=PRINCIPALS.may_remember,
        redact=lambda _, encoded: encoded,
        remember=harness.remember,
        clock=clock,
    ) as harness.approvals:
        yield harness


async def test_approval_past_its_wall_clock_deadline_cannot_be_approved(store: Store) -> None:
    clock = WallClock()
    async with open_with_clock(store, clock) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        clock.now += timedelta(days=1)
        error = await harness.answer_refused("approval.decided", harness.newest_id, "approve", by=OWNER)
        assert "expired" in error.message
        assert (await pending.result()).decision == "expired"
        assert (await harness.approvals.get(harness.newest_id)).status == "expired"


async def test_approval_expires_after_the_machine_slept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.gate.approvals.approvals.CLOCK_SECONDS", 0.01)
    clock = WallClock()
    async with open_with_clock(store, clock) as harness, anyio.create_task_group() as tasks:
        pending = await request_approval(tasks, harness)
        clock.now += timedelta(hours=8)  # the monotonic clock did not advance
        answer = await pending.result()
        assert (answer.decision, answer.refusal) == ("expired", "The approval was not answered within 600 s.")
        assert await harness.approvals.find(status="pending") == []


async def test_approval_expires_although_the_wall_clock_goes_back(store: Store) -> None:
    clock = WallClock()
    async with open_with_clock(store, clock) as harness:
        clock.now -= timedelta(days=1)
        with anyio.fail_after(10):
            assert (await harness.approvals.ask(approval_request(), seconds=0.02)).decision == "expired"


async def approve_each(
    harness: ApprovalsHarness, *texts: str, principal: Principal = SESSION, verb: Verb = "approve"
) -> None:
    """Request and answer an approval for each text, one after the other."""
    for text in texts:
        async with anyio.create_task_group() as tasks:
            pending = await request_approval(tasks, harness, comment_request(text, principal))
            await harness.approvals.answer(harness.newest_id, verb, by=OWNER)
            await pending.result()


def comment_request(text: str, principal: Principal = SESSION) -> ApprovalRequest:
    return replace(approval_request({"text": text}, principal=principal), argument_names=frozenset({"text"}))


async def proposed_prefixes(harness: ApprovalsHarness, tasks: TaskGroup, request: ApprovalRequest) -> list[str]:
    await request_approval(tasks, harness, request)
    (listed,) = await harness.approvals.find(status="pending")
    return [each.text for each in listed.remembering.prefixes]


async def test_three_equal_approvals_in_a_row_propose_a_rule(store: Store) -> None:
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        await approve_each(harness, "Fixed 1", "Fixed 2", "Fixed 3")
        (text,) = await proposed_prefixes(harness, tasks, comment_request("Fixed 4"))
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER, scope="always", prefix=text)
        (rule,) = harness.rules
        assert [each.to_json() for each in rule.conditions] == [
            {"pointer": "/text", "test": "glob", "value": "Fixed *"}
        ]
        assert rule.principal == Binding.of(SESSION)
        assert rule.expires_at is not None


async def test_denials_and_approvals_of_other_principals_propose_no_rule(store: Store) -> None:
    other = replace(SESSION, agent="writer")
    async with open_approvals(store) as harness, anyio.create_task_group() as tasks:
        await approve_each(harness, "Fixed 1", "Fixed 2", "Fixed 3", principal=other)
        await approve_each(harness, "Fixed 4", "Fixed 5")
        await approve_each(harness, "Fixed 6", verb="deny")
        await approve_each(harness, "Fixed 7", "Fixed 8")
        assert await proposed_prefixes(harness, tasks, comment_request("Fixed 9")) == []
        await harness.approvals.answer(harness.newest_id, "approve", by=OWNER)
        assert await proposed_prefixes(harness, tasks, comment_request("Fixed 10")) == ["like the last 3 approvals"]
        await harness.approvals.answer(harness.newest_id, "deny", by=OWNER)
