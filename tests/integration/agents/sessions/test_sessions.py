"""Sessions through a whole crib with a scripted runtime."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing

import anyio
import pytest

from toolcrib import Crib, ToolServer, tool
from toolcrib.agents.sessions.open_session import OpenSession
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.errors import InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sessions import SessionEvent, SessionLimits
from toolcrib.store.audit import Filters
from toolcrib.store.sessions import SessionFilter
from toolcrib.testing import crib as open_crib
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio

PING: dict[str, Json] = {"tool": "mcp__toolcrib__ping", "input": {}}
SCRIPTS: dict[str, Json] = {
    "text": [{"blocks": [{"text": "Hello there, this is a long text in many pieces."}], "chunk": 4}],
    "ping": [{"blocks": [{"text": "Looking."}, PING]}, {"blocks": [{"text": "Result: {{last_tool_result}}"}]}],
    "bash": [{"blocks": [{"tool": "Bash", "input": {"command": "ls"}}]}, {"blocks": [{"text": "done"}]}],
    "hang": [{"hang_s": 60}],
    "fail": [{"status": 500, "message": "broken"}],
    "extra": [{"blocks": [{"tool": "mcp__more__extra", "input": {}}]}, {"blocks": [{"text": "{{last_tool_result}}"}]}],
    "ask": [
        {"blocks": [{"tool": "AskUserQuestion", "input": {"questions": [{"question": "Which?"}]}}]},
        {"blocks": [{"text": "{{last_tool_result}}"}]},
    ],
}


@pytest.fixture
async def crib() -> AsyncIterator[Crib]:
    """Open a crib whose sessions play scripts."""
    async with open_crib() as opened:
        opened.runners.add(PlayedRunner(SCRIPTS))
        yield opened


async def test_turn_is_a_stream_of_numbered_events_that_ends_with_done(crib: Crib) -> None:
    async with crib.session(runner="played") as session:
        events = await turn(session, "text")

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert kinds(events)[0] == "user_message"
    assert kinds(events)[-2:] == ["session_status", "done"]
    assert [state(event) for event in events if event.kind == "session_status"] == ["starting", "running", "idle"]
    whole = next(event.data["text"] for event in events if event.kind == "text_message")
    assert "".join(event.data["text"] for event in events if event.kind == "text_delta") == whole
    assert events[-1].data["reason"] == "completed"


async def test_call_in_default_mode_waits_for_approval_and_continues(crib: Crib) -> None:
    async with crib.session(runner="played", mode="default") as session:
        events = await turn(session, "ping", crib)

    order = [kind for kind in kinds(events) if kind not in ("session_status", "text_delta")]
    assert order == [
        "user_message", "text_message", "tool_call_start", "tool_call_end", "approval_required", "approval_resolved",
        "tool_result", "text_message", "done",
    ]  # fmt: skip
    assert "waiting" in [state(event) for event in events if event.kind == "session_status"]
    required = only(events, "approval_required").data
    assert required["toolCallId"] == only(events, "tool_call_start").data["toolCallId"]
    assert "pong" in str(only(events, "tool_result").data["content"])


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
async def test_calls_run_without_approval_in_permissive_modes(crib: Crib, mode: str) -> None:
    async with crib.session(runner="played", mode=mode) as session:  # pyright: ignore[reportArgumentType]
        events = await turn(session, "ping")

    assert "approval_required" not in kinds(events)
    assert only(events, "tool_result").data["isError"] is False


async def test_dont_ask_mode_refuses_calls_with_a_reason(crib: Crib) -> None:
    async with crib.session(runner="played", mode="dontAsk") as session:
        events = await turn(session, "ping")

    assert only(events, "tool_result").data["isError"] is True
    assert "dontAsk" in str(only(events, "tool_result").data["content"])


async def test_denial_of_an_own_tool_reaches_the_model_with_its_reason(crib: Crib) -> None:
    async with crib.session(runner="played", mode="default") as session:
        events = await turn(session, "bash", crib, decision="deny", reason="not on a Friday")

    assert "not on a Friday" in str(only(events, "tool_result").data["content"])


END: dict[str, Json] = {"blocks": [{"text": "done"}]}


@tool(read_only=True)
async def dump() -> str:
    """Return many lines."""
    return "\n".join(f"line {number}" for number in range(30_000))


async def test_large_result_is_shortened_and_readable_by_its_session_only() -> None:
    scripts: dict[str, Json] = {"dump": [{"blocks": [{"tool": "mcp__lab__dump", "input": {}}]}, END]}
    async with open_crib() as crib:
        crib.register(ToolServer("lab", tools=[dump]))
        crib.runners.add(runner := PlayedRunner(scripts))
        async with crib.session(runner="played", mode="bypassPermissions") as session:
            text = only(await turn(session, "dump"), "tool_result").data["content"][0]["text"]
            assert "Read on with `read_result`" in text
            assert len(text) < 5_000
            handle = re.findall(r"Handle: (\S+)\.", text)[0]
            reads: JsonObject = {"tool": "mcp__toolcrib__read_result", "input": {"handle": handle, "lines": "20001"}}
            runner.scripts = PlayedRunner({"read": [{"blocks": [reads]}, END]}).scripts
            events = await turn(session, "read")
            assert only(events, "tool_result").data["content"][0]["text"] == "20001: line 20000"
        async with crib.session(runner="played", mode="bypassPermissions") as other:
            events = await turn(other, "read")
            assert only(events, "tool_result").data["isError"] is True
        (outcome,) = [each for each in await crib.audit.find(Filters(server="lab")) if each["phase"] == "outcome"]
        assert outcome["resultDigest"]


async def test_own_tools_of_the_runtime_leave_an_intent_and_an_outcome(crib: Crib) -> None:
    async with crib.session(runner="played", mode="bypassPermissions") as session:
        await turn(session, "bash")
        records = await crib.audit.find(Filters(server="claude_code"))

    assert sorted(record["phase"] for record in records) == ["intent", "outcome"]
    assert {record["principal"]["session"] for record in records} == {session.id}
    assert {record["door"] for record in records} == {"session"}


async def test_question_of_the_agent_is_answered_by_a_person(crib: Crib) -> None:
    async with crib.session(runner="played", mode="default") as session:
        events = await turn(session, "ask", crib)

    assert only(events, "question_answered").data["answers"] == {"Which?": "the first"}
    assert "the first" in events_text(events)


async def test_message_during_a_turn_is_queued_and_answered_afterwards(crib: Crib) -> None:
    session = await crib.sessions.create(NewSession("api", runner="played", mode="default"))
    log = await crib.sessions.events(session.id)
    first = await crib.sessions.send(session.id, "[[script:ping]]")
    second = await crib.sessions.send(session.id, "[[script:text]]")

    assert (first.data["queued"], second.data["queued"]) == (False, True)
    events = await until(log.follow(0), crib, dones=2)
    assert kinds(events).count("done") == 2


async def test_interrupt_withdraws_the_approval_before_the_turn_is_done(crib: Crib) -> None:
    session = await crib.sessions.create(NewSession("api", runner="played", mode="default"))
    log = await crib.sessions.events(session.id)
    await crib.sessions.send(session.id, "[[script:ping]]")
    events: list[SessionEvent] = []
    with anyio.fail_after(10):
        async with aclosing(log.follow(0)) as batches:
            async for batch in batches:
                events += batch
                if any(event.kind == "approval_required" for event in batch):
                    assert await crib.sessions.interrupt(session.id)
                if events[-1].kind == "done":
                    break

    assert only(events, "approval_resolved").data["decision"] == "withdrawn"
    assert events[-1].data["reason"] == "interrupted"
    assert not await crib.sessions.interrupt(session.id)


async def test_model_failure_is_an_error_and_the_session_continues(crib: Crib) -> None:
    async with crib.session(runner="played") as session:
        failed = await turn(session, "fail")
        again = await turn(session, "text")

    assert only(failed, "error").data["message"] == "broken"
    assert failed[-1].data["reason"] == "failed"
    assert again[-1].data["reason"] == "completed"


async def test_turn_ends_at_its_time_limit(crib: Crib) -> None:
    async with crib.session(runner="played", limits=SessionLimits(seconds=0.05)) as session:
        events = await turn(session, "hang")

    assert events[-1].data["reason"] == "limit"
    assert only(events, "error").data["code"] == "session.limit"


async def test_closed_session_resumes_its_conversation(crib: Crib) -> None:
    session = await crib.sessions.create(NewSession("api", runner="played"))
    await run_turn(crib, session.id, "text")
    before = await crib.sessions.get(session.id)

    assert (await crib.sessions.close(session.id)).state == "closed"
    assert crib.sessions.active() == ()
    await run_turn(crib, session.id, "text")
    after = await crib.sessions.get(session.id)

    assert after.runtime == before.runtime is not None
    assert after.last_seq > before.last_seq


async def test_tool_registered_between_turns_is_available_in_the_next(crib: Crib) -> None:
    async with crib.session(runner="played", mode="acceptEdits") as session:
        without = await turn(session, "extra")
        crib.register(ToolServer("more", tools=[extra]))
        with_it = await turn(session, "extra")

    assert only(without, "tool_result").data["isError"] is True
    assert "something more" in events_text(with_it)


async def test_fork_starts_with_a_copy_of_the_transcript(crib: Crib) -> None:
    session = await crib.sessions.create(NewSession("scheduler", runner="played", title="Nightly"))
    await run_turn(crib, session.id, "text")
    fork = await crib.sessions.fork(session.id)
    copied = [event.data async for event in crib.sessions.transcript(fork.id)]

    assert copied == [event.data async for event in crib.sessions.transcript(session.id)]
    assert (fork.source, fork.forked_from, fork.title) == ("scheduler", session.id, "Nightly (fork)")
    await run_turn(crib, fork.id, "text")
    assert (await crib.sessions.get(fork.id)).runtime != (await crib.sessions.get(session.id)).runtime


async def test_readers_resume_from_any_number_without_gap_or_repeat(crib: Crib) -> None:
    session = await crib.sessions.create(NewSession("api", runner="played"))
    log = await crib.sessions.events(session.id)
    await run_turn(crib, session.id, "text")
    whole = [event.seq async for event in crib.sessions.transcript(session.id)]

    for after in range(log.last):
        async with aclosing(log.follow(after)) as batches:
            assert [event.seq for event in await anext(batches)] == whole[after:]
    with pytest.raises(NotFound, match="none after"):
        log.check(log.last + 1)


async def test_changed_mode_applies_from_the_next_call(crib: Crib) -> None:
    async with crib.session(runner="played", mode="default") as session:
        await crib.sessions.change(session.id, mode="bypassPermissions", title="Renamed")
        events = await turn(session, "ping")

    assert "approval_required" not in kinds(events)
    assert (await crib.sessions.get(session.id)).title == "Renamed"


async def test_deleted_session_ends_its_readers_and_is_unknown(crib: Crib) -> None:
    session = await crib.sessions.create(NewSession("api", runner="played"))
    log = await crib.sessions.events(session.id)
    await crib.sessions.send(session.id, "[[script:hang]]")
    events: list[SessionEvent] = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(crib.sessions.delete, session.id)
            async for batch in log.follow(0):
                events += batch

    assert state(events[-1]) == "closed"
    with pytest.raises(NotFound, match="no session"):
        await crib.sessions.get(session.id)
    with pytest.raises(NotFound):
        await crib.sessions.send(session.id, "hello")


async def test_sessions_are_found_by_directory_agent_and_state(crib: Crib) -> None:
    of_reviewer = await crib.sessions.create(NewSession("api", runner="played", agent="reviewer"))
    await crib.sessions.create(NewSession("api", runner="played", cwd="/"))

    assert [each.id for each in await crib.sessions.list(SessionFilter(agent="reviewer"))] == [of_reviewer.id]
    assert [each.cwd for each in await crib.sessions.list(SessionFilter(cwd="/"))] == ["/"]
    assert len(await crib.sessions.list(SessionFilter(state="idle"))) == 2
    assert await crib.sessions.resolve(of_reviewer.id[:8]) == of_reviewer.id


async def test_invalid_session_input_is_refused(crib: Crib) -> None:
    with pytest.raises(InvalidRequest, match="absolute path"):
        await crib.sessions.create(NewSession("api", cwd="nowhere"))
    with pytest.raises(NotFound):
        await crib.sessions.create(NewSession("api", agent="unknown"))
    with pytest.raises(NotFound, match="no runtime"):
        await crib.sessions.create(NewSession("api", runner="nothing"))
    session = await crib.sessions.create(NewSession("api", runner="played"))
    with pytest.raises(InvalidRequest, match="empty"):
        await crib.sessions.send(session.id, "  ")


async def test_active_sessions_are_limited(crib: Crib) -> None:
    busy = [await crib.sessions.create(NewSession("api", runner="played")) for _ in range(crib.settings.max_sessions)]
    for session in busy:
        await crib.sessions.send(session.id, "[[script:hang]]")
    one_more = await crib.sessions.create(NewSession("api", runner="played"))

    with pytest.raises(Unavailable, match="limit reached"):
        await crib.sessions.send(one_more.id, "hello")
    await crib.sessions.interrupt(busy[0].id)
    await run_turn(crib, one_more.id, "text")


@tool(read_only=True)
async def extra() -> str:
    """Return one more text."""
    return "something more"


def kinds(events: list[SessionEvent]) -> list[str]:
    return [event.kind for event in events]


def state(event: SessionEvent) -> Json:
    return event.data["state"]


def only(events: list[SessionEvent], kind: str) -> SessionEvent:
    (found,) = [event for event in events if event.kind == kind]
    return found


def events_text(events: list[SessionEvent]) -> str:
    return " ".join(str(event.data["text"]) for event in events if event.kind == "text_message")


async def turn(
    session: OpenSession, script: str, crib: Crib | None = None, decision: str = "approve", reason: str | None = None
) -> list[SessionEvent]:
    """Return the events of a turn; with a crib, answer its approvals and questions."""
    events: list[SessionEvent] = []
    with anyio.fail_after(20):
        async for event in session.send(f"[[script:{script}]]"):
            events.append(event)
            if crib is not None:
                await answer_event(crib, event.kind, event.data, decision, reason)
    return events


async def answer_event(crib: Crib, kind: str, data: JsonObject, decision: str, reason: str | None) -> None:
    person = crib.owner("cli")
    if kind == "approval_required":
        verb = "approve" if decision == "approve" else "deny"
        await crib.approvals.answer(data["approvalId"], verb, by=person, reason=reason)
    elif kind == "question_prompt":
        await crib.sessions.answer(data["questionId"], {"Which?": "the first"}, by=person)


async def until(batches: AsyncIterator[tuple[SessionEvent, ...]], crib: Crib, dones: int) -> list[SessionEvent]:
    events: list[SessionEvent] = []
    with anyio.fail_after(20):
        async for batch in batches:
            for event in batch:
                events.append(event)
                await answer_event(crib, event.kind, event.data, "approve", None)
            if kinds(events).count("done") == dones:
                break
    return events


async def run_turn(crib: Crib, id: str, script: str) -> None:
    """Send a prompt and wait for its answer."""
    sent = await crib.sessions.send(id, f"[[script:{script}]]")
    log = await crib.sessions.events(id)
    await until(log.follow(sent.seq - 1), crib, dones=1)
