"""Messages between agents: the answer returns to the sender, both transcripts have it, and limits apply."""

from dataclasses import replace

import anyio
import pytest

from integration.builtin.crew.crews import REPEAT_RESULT, TIMEOUT, Crew, agent_input, call_step, results, texts
from toolcrib.agents.zoo.brain import EntryQuery
from toolcrib.builtin.crew import messages
from toolcrib.builtin.crew.messages import Letter, Messenger
from toolcrib.model.errors import Conflict, NotFound
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.sessions import SessionFilter
from toolcrib.tools import Context

pytestmark = pytest.mark.anyio

HELLO = "Say hello. [[script:hello]]"


async def test_answer_returns_and_both_transcripts_have_the_conversation(crew: Crew) -> None:
    crew.script("ask", call_step("crib_send_message", to_agent="mate", message=HELLO), REPEAT_RESULT)
    session = await crew.session("captain")
    events = await crew.turn(session.id, "[[script:ask]]")
    assert "Hello from here." in texts(events)[-1]

    (child,) = [each for each in await crew.crib.sessions.list(SessionFilter()) if each.id != session.id]
    assert (child.source, child.agent, child.cwd) == ("agent", "mate", session.cwd)
    assert child.creator == session.principal
    child_events = await crew.transcript(child.id)
    (message,) = [event.data["content"] for event in child_events if event.kind == "user_message"]
    assert message.startswith("captain sends you this")
    assert HELLO in message
    assert texts(child_events) == ["Hello from here."]
    assert child.id in results(events)[0]


async def test_thread_continues_in_the_same_session(crew: Crew) -> None:
    caller = (await crew.session()).principal
    first = await crew.result_of("crib_send_message", caller, to_agent="mate", message=HELLO)
    assert first["state"] == "completed"
    second = await crew.result_of(
        "crib_send_message", caller, to_agent="mate", message=f"Again. {HELLO}", thread=first["thread"]
    )
    assert second["sessionId"] == first["sessionId"] == first["thread"]
    kinds = [event.kind for event in await crew.transcript(first["sessionId"])]
    assert kinds.count("user_message") == 2


async def test_thread_belongs_to_the_session_and_mode_that_began_it(crew: Crew) -> None:
    caller = (await crew.session()).principal
    thread = (await crew.result_of("crib_send_message", caller, to_agent="mate", message=HELLO))["thread"]
    other = (await crew.session()).principal
    for principal, to in ((other, "mate"), (caller, "cook"), (replace(caller, mode="plan"), "mate")):
        with pytest.raises(NotFound) as raised:
            await Messenger(crew.crib.sessions, crew.crib.zoo).send(Context(principal, "1"), Letter(to, HELLO, thread))
        assert raised.value.code == "crew.thread"
    assert "no thread" in await crew.error_of("crib_send_message", caller, to_agent="mate", message="x", thread="none")


async def test_message_to_a_busy_thread_is_refused(crew: Crew) -> None:
    crew.script("slow", {"hang_s": 60})
    caller = (await crew.session()).principal
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: crew.call("crib_send_message", caller, to_agent="mate", message="[[script:slow]]"))
        child = await wait_for_mate(crew, "running")
        error = await crew.error_of("crib_send_message", caller, to_agent="mate", message="x", thread=child)
        assert "is still working" in error
        tasks.cancel_scope.cancel()


async def test_invalid_message_is_an_error_with_a_hint(crew: Crew) -> None:
    caller = (await crew.session("captain")).principal
    for arguments, words in (
        ({"to_agent": "unknown", "message": "x"}, "not found"),
        ({"to_agent": "captain", "message": "x"}, "to itself"),
        ({"to_agent": "mate", "message": "  "}, "1 to 32000"),
        ({"to_agent": "mate", "message": "x" * 32_001}, "1 to 32000"),
    ):
        error = await crew.error_of("crib_send_message", caller, **arguments)
        assert words in error
        assert "Hint: " in error
    assert await crew.crib.sessions.list(SessionFilter(agent="mate")) == []


async def test_repeated_message_is_suppressed_for_thirty_seconds(crew: Crew) -> None:
    now = 100.0
    messenger = Messenger(crew.crib.sessions, crew.crib.zoo, clock=lambda: now)
    context = Context((await crew.session()).principal, "1")
    with anyio.fail_after(TIMEOUT):
        await messenger.send(context, Letter("mate", HELLO))
        now += 29.9
        with pytest.raises(Conflict, match=r"^Message already sent \(duplicate suppressed\)\.$"):
            await messenger.send(context, Letter("mate", HELLO))
        await messenger.send(context, Letter("mate", f"Other. {HELLO}"))
        now += 0.2
        await messenger.send(context, Letter("mate", HELLO))


async def test_concurrent_equal_messages_are_sent_once(crew: Crew) -> None:
    caller = (await crew.session()).principal
    errors: list[bool] = []

    async def send() -> None:
        errors.append((await crew.call("crib_send_message", caller, to_agent="mate", message=HELLO)).is_error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        tasks.start_soon(send)
    assert sorted(errors) == [False, True]
    assert len(await crew.crib.sessions.list(SessionFilter(agent="mate"))) == 1


async def test_session_may_send_five_messages_and_ask_two_agents(crew: Crew) -> None:
    caller = (await crew.session()).principal
    for number in range(4):
        await crew.result_of("crib_send_message", caller, to_agent="mate", message=f"{number} {HELLO}")
    await crew.result_of("crib_send_message", caller, to_agent="cook", message=HELLO)
    error = await crew.error_of("crib_send_message", caller, to_agent="mate", message=f"5 {HELLO}")
    assert "has sent 5 messages to other agents" in error

    another = (await crew.session()).principal
    await crew.result_of("crib_send_message", another, to_agent="mate", message=HELLO)
    await crew.result_of("crib_send_message", another, to_agent="cook", message=HELLO)
    error = await crew.error_of("crib_send_message", another, to_agent="gull", message=HELLO)
    assert "has asked cook and mate and may ask 2 agents" in error
    await crew.result_of("crib_send_message", another, to_agent="cook", message=f"Again. {HELLO}")


async def test_work_is_delegated_three_times_at_most(crew: Crew) -> None:
    for name, to, following in (("a", "mate", "b"), ("b", "cook", "c"), ("c", "gull", "d"), ("d", "captain", "hello")):
        crew.script(name, call_step("crib_send_message", to_agent=to, message=f"[[script:{following}]]"), REPEAT_RESULT)
    session = await crew.session("captain")
    events = await crew.turn(session.id, "[[script:a]]")
    assert "was delegated 3 times" in texts(events)[-1]
    agents = [each.agent for each in await crew.crib.sessions.list(SessionFilter())]
    assert sorted(filter(None, agents)) == ["captain", "cook", "gull", "mate"]


async def test_failed_receiver_is_an_error_with_its_thread(crew: Crew) -> None:
    crew.script("fail", {"status": 500, "message": "the model is down"})
    caller = (await crew.session()).principal
    error = await crew.error_of("crib_send_message", caller, to_agent="mate", message="[[script:fail]]")
    (child,) = await crew.crib.sessions.list(SessionFilter(agent="mate"))
    assert "mate did not answer: its turn ended with state failed. the model is down" in error
    assert f"thread={child.id}" in error


async def test_slow_answer_ends_at_the_time_limit(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "ANSWER_SECONDS", 0.3)
    crew.script("slow", {"hang_s": 60})
    caller = (await crew.session()).principal
    error = await crew.error_of("crib_send_message", caller, to_agent="mate", message="[[script:slow]]")
    assert "ended with state limit" in error


async def test_interrupting_the_sender_interrupts_the_receiver(crew: Crew) -> None:
    crew.script("slow", {"hang_s": 60})
    crew.script("ask", call_step("crib_send_message", to_agent="mate", message="[[script:slow]]"), REPEAT_RESULT)
    session = await crew.session("captain")
    await crew.crib.sessions.send(session.id, "[[script:ask]]")
    child = await wait_for_mate(crew, "running")
    assert await crew.crib.sessions.interrupt(session.id)
    await wait_for_mate(crew, "idle")
    assert [event.data["reason"] for event in await crew.transcript(child) if event.kind == "done"] == ["interrupted"]


async def test_handover_stores_a_summary_that_refers_to_the_session(crew: Crew) -> None:
    message = f"Finish the sails. {HELLO}"
    crew.script("over", call_step("crib_send_message", to_agent="mate", message=message, handover=True), REPEAT_RESULT)
    session = await crew.session("captain")
    answer = texts(await crew.turn(session.id, "[[script:over]]"))[-1]
    (entry,) = await crew.crib.zoo.brain.find("mate", EntryQuery())
    assert f'"handoverEntryId":"{entry.id}"' in answer
    assert (entry.type, entry.pinned) == ("summary", False)
    assert entry.content == f"Handed over by captain:\n\n{message}"
    assert set(entry.tags) == {"handover", "captain"}
    assert dict(entry.metadata) == {"source": "auto", "sessionId": session.id}
    transcript = await crew.transcript(entry.metadata["sessionId"])
    assert any(event.kind == "tool_call_end" and event.data["arguments"]["handover"] for event in transcript)


async def test_child_session_has_no_tool_that_its_creator_lacks(crew: Crew) -> None:
    grant = ToolRef("crew", "crib_grant_credits")
    await crew.crib.zoo.create(agent_input("quartermaster", permissions=["crew/*"]), by="test")
    crew.script("grant", call_step("crib_grant_credits", agent="cook", turns=5), REPEAT_RESULT)
    own = await crew.session("quartermaster")
    assert "granted" in texts(await crew.turn(own.id, "[[script:grant]]"))[-1]

    caller = (await crew.session("captain")).principal
    answer = await crew.result_of("crib_send_message", caller, to_agent="quartermaster", message="[[script:grant]]")
    assert "There is no tool" in answer["answer"]
    child = await crew.crib.sessions.get(answer["sessionId"])
    decision = crew.crib.gate.decision(child.principal, grant)
    assert (decision.verdict, decision.decided_by.step) == ("hidden", "creator")


async def test_child_of_a_session_in_plan_mode_only_reads(crew: Crew) -> None:
    await crew.crib.zoo.create(agent_input("eager", mode="bypassPermissions"), by="test")
    crew.script("save", call_step("crib_library_write", key="k", content="c"), REPEAT_RESULT)
    caller = (await crew.session("captain", mode="plan")).principal
    session = Context(replace(caller, mode="plan"), "1")
    with anyio.fail_after(TIMEOUT):
        answer = await Messenger(crew.crib.sessions, crew.crib.zoo).send(session, Letter("eager", "[[script:save]]"))
    assert "Mode plan runs read-only tools only" in answer["answer"]


async def test_caller_without_a_session_can_send_a_message(crew: Crew) -> None:
    owner = crew.crib.owner("cli")
    answer = await crew.result_of("crib_send_message", owner, to_agent="mate", message=HELLO)
    child = await crew.crib.sessions.get(answer["sessionId"])
    assert child.creator == Principal("owner", "owner", "cli")


async def test_list_agents_returns_the_crew_and_the_calling_agent(crew: Crew) -> None:
    found = await crew.result_of("crib_list_agents", (await crew.session("cook")).principal)
    assert found["you"] == "cook"
    assert {"id": "mate", "name": "Mate", "description": "Is mate."} in found["agents"]
    assert (await crew.result_of("crib_list_agents", crew.crib.owner("cli")))["you"] is None


async def wait_for_mate(crew: Crew, state: str) -> str:
    """Wait until the session of `mate` is in this state and return its id."""
    active = crew.crib.sessions.active
    return await crew.until(
        lambda: next((each.id for each in active() if (each.agent, each.state) == ("mate", state)), None)
    )
