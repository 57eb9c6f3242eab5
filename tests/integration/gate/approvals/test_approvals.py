"""Approvals on both databases: the first durable answer of a person counts, and everything else is a no."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import orjson
import pytest
from anyio.abc import TaskGroup

from integration.gate.approvals.requests import CONSOLE, DELETE, OWNER, PRINCIPALS, SESSION, Desk, desk, question
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


class Waiting:
    """A call that waits for its answer in a task of its own."""

    def __init__(self) -> None:
        self.answer: ApprovalAnswer | None = None
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()

    async def ask(self, approvals: Approvals, asked: ApprovalRequest, **options: Any) -> None:
        with self.scope:
            self.answer = await approvals.ask(asked, **options)
        self.done.set()

    async def end(self) -> ApprovalAnswer:
        with anyio.fail_after(10):
            await self.done.wait()
        assert self.answer is not None
        return self.answer

    async def give_up(self) -> None:
        self.scope.cancel()
        with anyio.fail_after(10):
            await self.done.wait()
        assert self.answer is None


async def put(tasks: TaskGroup, at: Desk, asked: ApprovalRequest | None = None, **options: Any) -> Waiting:
    """Ask, and wait until a person is told."""
    before = len(at.events)
    waiting = Waiting()
    tasks.start_soon(lambda: waiting.ask(at.approvals, asked or question(), **options))
    await at.told(before + 1)
    return waiting


async def test_a_person_says_yes_and_the_exact_arguments_come_back(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at, question({"b": 1, "a": "ü"}))
        (shown,) = await at.approvals.find(status="pending")
        assert shown.given == {"a": "ü", "b": 1}
        await at.approvals.answer(at.open_id, "approve", by=OWNER)
        answer = await waiting.end()
        assert (answer.approved, answer.arguments, answer.edited) == (True, '{"a":"ü","b":1}'.encode(), False)
        assert (answer.by, answer.rule) == ("owner", None)
        assert await at.approvals.find(status="pending") == []


async def test_the_events_have_the_documented_shape(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        kind, required = at.events[0]
        assert kind == "approval_required"
        expires = required.pop("expiresAt")
        assert expires > required.pop("at", "")
        assert required == {
            "approvalId": at.open_id,
            "toolCallId": "call-1",
            "server": "github",
            "tool": "delete_repo",
            "arguments": {"repo": "toolcrib"},
            "reason": "Mode default asks a person.",
            "sessionId": "session-1",
        }
        await at.approvals.answer(at.open_id, "deny", by=CONSOLE, reason="Not this one.")
        answer = await waiting.end()
        assert answer.refusal == "A person denied this call: Not this one."
        assert at.resolved() == [
            {
                "approvalId": at.open_id,
                "decision": "denied",
                "by": "owner",
                "reason": "Not this one.",
                "sessionId": "session-1",
            }
        ]
        shape = (await at.approvals.get(at.open_id)).to_json()
        assert shape["status"] == "denied"
        assert shape["decidedBy"] == "owner"
        assert shape["reason"] == "Not this one."


async def test_an_answer_is_durable_before_whoever_waits_hears_it(store: Store, database: str) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        await at.approvals.answer(at.open_id, "approve", by=OWNER)
        assert fetch_rows(database, "SELECT status, decided_by FROM approvals") == [("approved", "owner")]
        assert (await waiting.end()).approved


async def test_of_two_answers_at_once_the_first_durable_one_counts(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        for _ in range(10):
            waiting = await put(tasks, at)
            outcomes: list[ApprovalAnswer | Conflict] = []

            async def reply(verb: Verb, outcomes: list[ApprovalAnswer | Conflict], id: str) -> None:
                try:
                    outcomes.append(await at.approvals.answer(id, verb, by=OWNER))
                except Conflict as error:
                    outcomes.append(error)

            async with anyio.create_task_group() as two:
                two.start_soon(reply, "approve", outcomes, at.open_id)
                two.start_soon(reply, "deny", outcomes, at.open_id)
            (won,) = [each for each in outcomes if isinstance(each, ApprovalAnswer)]
            (lost,) = [each for each in outcomes if isinstance(each, Conflict)]
            assert (lost.code, lost.status) == ("approval.decided", 409)
            assert f"{won.decision} by owner" in lost.message
            assert await waiting.end() == won
        assert len(at.resolved()) == 10


async def test_an_answer_is_taken_once(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        await at.approvals.answer(at.open_id, "approve", by=OWNER)
        await waiting.end()
        for verb in ("approve", "deny"):
            error = await at.refused("approval.decided", at.open_id, verb, by=CONSOLE)
            assert "approved by owner" in error.message
        await at.refused("approval.unknown", "0" * 16, "approve", by=OWNER)


async def test_the_same_call_asks_anew_each_time(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        first, second = await put(tasks, at), await put(tasks, at)
        ids = [data["approvalId"] for _, data in at.events]
        await at.approvals.answer(ids[0], "approve", by=OWNER)
        await at.approvals.answer(ids[1], "deny", by=OWNER)
        assert ((await first.end()).approved, (await second.end()).approved) == (True, False)


async def test_when_nobody_answers_in_time_it_is_a_no(store: Store) -> None:
    async with desk(store) as at:
        with anyio.fail_after(10):
            answer = await at.approvals.ask(question(), seconds=0.02)
        assert (answer.decision, answer.approved) == ("expired", False)
        assert answer.refusal == "The approval was not answered within 0.02 s."
        assert [data["decision"] for data in at.resolved()] == ["expired"]
        error = await at.refused("approval.decided", at.open_id, "approve", by=OWNER)
        assert "expired" in error.message


async def test_a_wait_longer_than_the_longest_is_cut_to_it(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at, seconds=10 * LONGEST_WAIT)
        (shown,) = await at.approvals.find(status="pending")
        assert (shown.expires_at - shown.created_at).total_seconds() == pytest.approx(LONGEST_WAIT, abs=0.01)
        await waiting.give_up()


async def test_a_call_that_is_given_up_withdraws_its_question(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        await waiting.give_up()
        assert [data["decision"] for data in at.resolved()] == ["withdrawn"]
        kept = await at.approvals.get(at.open_id)
        assert (kept.status, kept.decided_by) == ("withdrawn", None)
        await at.refused("approval.decided", at.open_id, "approve", by=OWNER)


async def test_leaving_without_waiting_withdraws_too(store: Store) -> None:
    async with desk(store) as at:
        with pytest.raises(ZeroDivisionError):
            async with at.approvals.open(question()):
                raise ZeroDivisionError
        assert (await at.approvals.get(at.open_id)).status == "withdrawn"


async def test_who_answers_may_go_away_and_who_waits_hears_it_all_the_same(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        with anyio.CancelScope() as scope:
            at.on_remember = scope.cancel
            await at.approvals.answer(at.open_id, "approve", by=OWNER, scope="always")
        answer = await waiting.end()
        assert (answer.approved, answer.by) == (True, "owner")
        assert at.rules == [answer.rule]


async def test_edited_arguments_are_checked_and_come_back_as_new_bytes(store: Store, database: str) -> None:
    def check(arguments: JsonObject, encoded: bytes) -> None:
        assert canonical(arguments) == encoded
        if "repo" not in arguments:
            raise InvalidRequest("tool.arguments_invalid", "repo is missing.")

    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at, check=check)
        await at.refused("tool.arguments_invalid", at.open_id, "approve", by=OWNER, arguments={"other": 1})
        await at.refused("tool.arguments_invalid", at.open_id, "approve", by=OWNER, arguments={"repo": 10**400})
        edited = {"repo": "sandbox", "api_key": "sk-0123456789abcdef0123"}
        await at.approvals.answer(at.open_id, "approve", by=OWNER, arguments=edited)
        answer = await waiting.end()
        assert (answer.approved, answer.edited, answer.arguments) == (True, True, canonical(edited))
        assert b"sk-0123" not in bytes(fetch_rows(database, "SELECT edited FROM approvals")[0][0])


async def test_secrets_in_arguments_leave_the_database_with_the_question(store: Store, database: str) -> None:
    secret = "sk-0123456789abcdef0123"

    def stored() -> bytes:
        return bytes(fetch_rows(database, "SELECT arguments FROM approvals")[0][0])

    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at, question({"api_key": secret}))
        assert orjson.loads(stored()) == {"api_key": secret}
        await at.approvals.answer(at.open_id, "approve", by=OWNER)
        assert orjson.loads((await waiting.end()).arguments) == {"api_key": secret}
        assert secret.encode() not in stored()


@pytest.mark.parametrize(("scope", "session"), [("session", "session-1"), ("always", None)])
@pytest.mark.parametrize(("verb", "effect"), [("approve", "allow"), ("deny", "deny")])
async def test_an_answer_for_longer_is_a_rule_bound_to_the_definition(
    store: Store, verb: Verb, effect: str, scope: Scope, session: str | None
) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at, question(ref=ToolRef("git*hub", "delete_[repo]")))
        await at.approvals.answer(at.open_id, verb, scope=scope, by=OWNER, reason="I know it.")
        rule = (await waiting.end()).rule
        assert rule is not None
        assert at.rules == [rule]
        assert (rule.effect, rule.pattern) == (effect, "git[*]hub/delete_[[]repo]")
        assert (rule.definition_hash, rule.session) == ("d" * 64, session)
        assert (rule.created_by, rule.reason) == ("owner", "I know it.")
        assert rule.principal == Binding("session", "web", "reviewer")


async def test_an_answer_for_a_session_needs_one(store: Store) -> None:
    token = Principal("token", "laptop", "ide", "default")
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at, question(principal=token))
        await at.refused("approval.scope", at.open_id, "approve", by=OWNER, scope="session")
        await at.approvals.answer(at.open_id, "approve", by=OWNER)
        assert (await waiting.end()).approved


async def test_a_rule_that_cannot_be_kept_is_told_and_the_answer_stands(store: Store) -> None:
    async def remember(_: object) -> None:
        raise Unavailable("database.unavailable", "The disk is full.")

    at = Desk()
    at.approvals = Approvals(
        store,
        crib="crib",
        publish=at.publish,
        may_answer=PRINCIPALS.may_answer,
        may_remember=PRINCIPALS.may_remember,
        redact=lambda _, encoded: encoded,
        remember=remember,
    )
    async with at.approvals, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        with pytest.raises(Unavailable):
            await at.approvals.answer(at.open_id, "approve", by=OWNER, scope="always")
        assert (await waiting.end()).approved


async def test_only_a_person_answers(store: Store) -> None:
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
    async with desk(store, principals=principals) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        for program in programs:
            error = await at.refused("approval.not_a_person", at.open_id, "approve", by=program)
            assert isinstance(error, Denied)
        assert waiting.answer is None
        assert len(await at.approvals.find(status="pending")) == 1
        await at.approvals.answer(at.open_id, "deny", by=principals.owner("api"))
        await waiting.end()


async def test_a_token_that_may_approve_answers_what_it_asked_and_no_more(store: Store) -> None:
    tokens = NamedTokens(store)
    principals = Principals("a-token-of-the-owner", tokens)
    laptop, _ = await tokens.create("laptop", may_approve=True)
    phone, _ = await tokens.create("phone", source="api", may_approve=True)
    async with desk(store, principals=principals) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        await at.refused("approval.not_a_person", at.open_id, "approve", by=laptop.principal)
        await at.approvals.answer(at.open_id, "approve", by=phone.principal)
        assert (await waiting.end()).by == "phone"
        waiting = await put(tasks, at, question(principal=laptop.principal))
        await at.approvals.answer(at.open_id, "approve", by=laptop.principal)
        assert (await waiting.end()).by == "laptop"
        waiting = await put(tasks, at, question(principal=laptop.principal))
        await tokens.revoke("laptop")
        await at.refused("approval.not_a_person", at.open_id, "approve", by=laptop.principal)
        await waiting.give_up()


@pytest.mark.parametrize("answered", [None, "yes", 1])
async def test_a_check_that_breaks_or_says_anything_but_true_lets_nobody_answer(store: Store, answered: Any) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)

        def broken(*_: object) -> bool:
            return answered

        other = Approvals(
            store,
            crib="other",
            publish=at.publish,
            may_answer=broken,
            may_remember=PRINCIPALS.may_remember,
            redact=lambda _, encoded: encoded,
            remember=at.remember,
        )
        async with other:
            with pytest.raises(Denied):
                await other.answer(at.open_id, "approve", by=OWNER)
        assert len(await at.approvals.find(status="pending")) == 1
        await waiting.give_up()


async def _never(_: object) -> None:
    raise AssertionError


async def test_a_crib_that_stops_says_no_to_everything_that_waits(store: Store) -> None:
    async with anyio.create_task_group() as tasks:
        async with desk(store) as at:
            waiting = [await put(tasks, at) for _ in range(3)]
        for each in waiting:
            answer = await each.end()
            assert answer.decision == "expired"
            assert answer.refusal == "The crib stopped before the approval was answered."
        assert [data["decision"] for data in at.resolved()] == ["expired"] * 3
        assert {row.status for row in await at.approvals.find()} == {"expired"}
        with pytest.raises(Unavailable, match="stopping"):
            await at.approvals.ask(question())


async def test_a_flood_is_bounded_for_each_session_and_others_are_still_heard(store: Store) -> None:
    other = Principal("session", "session-2", "web", session="session-2")
    async with desk(store) as at, anyio.create_task_group() as tasks:
        flood = [Waiting() for _ in range(MOST_OPEN_PER_CALLER)]
        for each in flood:
            tasks.start_soon(each.ask, at.approvals, question())
        await at.told(MOST_OPEN_PER_CALLER)
        with pytest.raises(Denied) as raised:
            await at.approvals.ask(question())
        assert (raised.value.code, raised.value.status) == ("approval.too_many", 429)
        waiting = await put(tasks, at, question(principal=other))
        await at.approvals.answer(at.open_id, "approve", by=OWNER)
        assert (await waiting.end()).approved
        await flood[0].give_up()
        freed = await put(tasks, at)
        assert freed.answer is None
        tasks.cancel_scope.cancel()


async def test_questions_are_bounded_in_number_and_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    monkeypatch.setattr(module, "MOST_BYTES", 1000)

    def of(number: int, size: int = 10) -> ApprovalRequest:
        principal = Principal("session", f"s{number}", "web", session=f"s{number}")
        return question({"text": "x" * size}, principal=principal)

    async with desk(store) as at, anyio.create_task_group() as tasks:
        with pytest.raises(Denied):
            await at.approvals.ask(of(0, size=2000))
        waiting = [await put(tasks, at, of(number)) for number in range(3)]
        with pytest.raises(Denied):
            await at.approvals.ask(of(3))
        await waiting[0].give_up()
        await put(tasks, at, of(4))
        tasks.cancel_scope.cancel()


async def test_one_asker_cannot_use_up_the_size_that_all_have(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES_PER_CALLER", 1000)

    def of(name: str, size: int) -> ApprovalRequest:
        return question({"text": "x" * size}, principal=Principal("session", name, "web", session=name))

    async with desk(store) as at, anyio.create_task_group() as tasks:
        first = await put(tasks, at, of("a", 600))
        with pytest.raises(Denied) as raised:
            await at.approvals.ask(of("a", 600))
        assert raised.value.code == "approval.too_many"
        await put(tasks, at, of("b", 600))
        await first.give_up()
        await put(tasks, at, of("a", 600))
        tasks.cancel_scope.cancel()


async def test_a_question_that_cannot_be_kept_is_never_put(store: Store, database: str) -> None:
    async with desk(store) as at:
        run(database, "ALTER TABLE approvals RENAME TO elsewhere")
        with pytest.raises(Exception, match="approvals"), anyio.fail_after(10):
            await at.approvals.ask(question())
        assert at.events == []
        run(database, "ALTER TABLE elsewhere RENAME TO approvals")
        with anyio.fail_after(10):
            assert (await at.approvals.ask(question(), seconds=0.01)).decision == "expired"


async def test_nobody_is_told_means_nobody_approves(store: Store) -> None:
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
            await approvals.ask(question())
        assert [each.status for each in await approvals.find()] == ["withdrawn"]


async def test_what_an_earlier_run_left_open_is_closed_and_cannot_be_answered(store: Store, database: str) -> None:
    async with desk(store) as at, at.approvals.open(question()):
        pass
    left = at.open_id
    run(database, "UPDATE approvals SET status = 'pending', decided_at = NULL")
    async with desk(store) as at:
        kept = await at.approvals.get(left)
        assert (kept.status, kept.reason) == ("expired", "The crib ended before the approval was answered.")
        await at.refused("approval.decided", left, "approve", by=OWNER)


async def test_a_pending_row_that_nobody_waits_for_is_not_approved(store: Store, database: str) -> None:
    async with desk(store) as at:
        async with at.approvals.open(question()):
            pass
        run(database, "UPDATE approvals SET status = 'pending'")
        await at.refused("approval.decided", at.open_id, "approve", by=OWNER)


async def test_a_row_whose_binding_was_changed_cannot_be_answered(store: Store, database: str) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        run(database, "UPDATE approvals SET binding = 'another'")
        await at.refused("approval.decided", at.open_id, "approve", by=OWNER)
        await waiting.give_up()


async def test_another_crib_on_the_same_database_can_give_the_answer(postgres_url: str) -> None:
    async with (
        open_store(postgres_url) as one,
        open_store(postgres_url) as two,
        desk(one, crib="one") as here,
        desk(two, crib="two") as there,
        anyio.create_task_group() as tasks,
    ):
        waiting = await put(tasks, here)
        (seen,) = await there.approvals.find(status="pending")
        assert seen.ref == DELETE
        given = await there.approvals.answer(seen.id, "approve", by=OWNER, arguments={"repo": "other"})
        answer = await waiting.end()
        assert (answer.approved, answer.arguments, answer.by) == (True, given.arguments, "owner")
        assert [data["decision"] for data in here.resolved()] == ["approved"]
        with pytest.raises(ToolcribError) as raised:
            await here.approvals.answer(seen.id, "deny", by=OWNER)
        assert raised.value.code == "approval.decided"


class WallClock:
    """The machine's clock, set by hand."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def clocked(store: Store, clock: WallClock) -> AsyncGenerator[Desk]:
    at = Desk()
    async with Approvals(
        store,
        crib="crib",
        publish=at.publish,
        may_answer=PRINCIPALS.may_answer,
        may_remember=PRINCIPALS.may_remember,
        redact=lambda _, encoded: encoded,
        remember=at.remember,
        clock=clock,
    ) as at.approvals:
        yield at


async def test_question_past_its_time_by_the_wall_clock_cannot_be_approved(store: Store) -> None:
    clock = WallClock()
    async with clocked(store, clock) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        clock.now += timedelta(days=1)
        error = await at.refused("approval.decided", at.open_id, "approve", by=OWNER)
        assert "expired" in error.message
        assert (await waiting.end()).decision == "expired"
        assert (await at.approvals.get(at.open_id)).status == "expired"


async def test_question_expires_although_the_machine_slept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.gate.approvals.approvals.CLOCK_SECONDS", 0.01)
    clock = WallClock()
    async with clocked(store, clock) as at, anyio.create_task_group() as tasks:
        waiting = await put(tasks, at)
        clock.now += timedelta(hours=8)  # the monotonic clock stood still meanwhile
        answer = await waiting.end()
        assert (answer.decision, answer.refusal) == ("expired", "The approval was not answered within 600 s.")
        assert await at.approvals.find(status="pending") == []


async def test_clock_that_goes_back_keeps_no_question_open(store: Store) -> None:
    clock = WallClock()
    async with clocked(store, clock) as at:
        clock.now -= timedelta(days=1)
        with anyio.fail_after(10):
            assert (await at.approvals.ask(question(), seconds=0.02)).decision == "expired"


async def approve_each(at: Desk, *texts: str, principal: Principal = SESSION, verb: Verb = "approve") -> None:
    """Answer one call after the other, each for this call only."""
    for text in texts:
        async with anyio.create_task_group() as tasks:
            waiting = await put(tasks, at, commenting(text, principal))
            await at.approvals.answer(at.open_id, verb, by=OWNER)
            await waiting.end()


def commenting(text: str, principal: Principal = SESSION) -> ApprovalRequest:
    return replace(question({"text": text}, principal=principal), argument_names=frozenset({"text"}))


async def offers(at: Desk, tasks: TaskGroup, asked: ApprovalRequest) -> list[str]:
    await put(tasks, at, asked)
    (shown,) = await at.approvals.find(status="pending")
    return [each.text for each in shown.remembering.prefixes]


async def test_three_approvals_in_a_row_offer_a_rule_for_calls_like_them(store: Store) -> None:
    async with desk(store) as at, anyio.create_task_group() as tasks:
        await approve_each(at, "Fixed 1", "Fixed 2", "Fixed 3")
        (text,) = await offers(at, tasks, commenting("Fixed 4"))
        await at.approvals.answer(at.open_id, "approve", by=OWNER, scope="always", prefix=text)
        (rule,) = at.rules
        assert [each.to_json() for each in rule.conditions] == [
            {"pointer": "/text", "test": "glob", "value": "Fixed *"}
        ]
        assert rule.principal == Binding.of(SESSION)
        assert rule.expires_at is not None


async def test_denial_and_approvals_of_another_principal_do_not_count(store: Store) -> None:
    other = replace(SESSION, agent="writer")
    async with desk(store) as at, anyio.create_task_group() as tasks:
        await approve_each(at, "Fixed 1", "Fixed 2", "Fixed 3", principal=other)
        await approve_each(at, "Fixed 4", "Fixed 5")
        await approve_each(at, "Fixed 6", verb="deny")
        await approve_each(at, "Fixed 7", "Fixed 8")
        assert await offers(at, tasks, commenting("Fixed 9")) == []
        await at.approvals.answer(at.open_id, "approve", by=OWNER)
        assert await offers(at, tasks, commenting("Fixed 10")) == ["like the last 3 approvals"]
        await at.approvals.answer(at.open_id, "deny", by=OWNER)
