"""Agents ask each other: the answer comes back, both transcripts have it, and the guards hold."""

from dataclasses import replace

import anyio
import pytest

from integration.builtin.crew.crews import HEARD, SOON, Crew, agent, do, results, texts
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


async def test_the_answer_comes_back_and_both_transcripts_have_the_conversation(crew: Crew) -> None:
    crew.script("ask", do("crib_send_message", to_agent="mate", message=HELLO), HEARD)
    session = await crew.session("captain")
    events = await crew.turn(session.id, "[[script:ask]]")
    assert "Hello from here." in texts(events)[-1]

    (child,) = [each for each in await crew.crib.sessions.list(SessionFilter()) if each.id != session.id]
    assert (child.source, child.agent, child.cwd) == ("agent", "mate", session.cwd)
    assert child.creator == session.principal
    theirs = await crew.transcript(child.id)
    (asked,) = [event.data["content"] for event in theirs if event.kind == "user_message"]
    assert asked.startswith("captain sends you this")
    assert HELLO in asked
    assert texts(theirs) == ["Hello from here."]
    assert child.id in results(events)[0]


async def test_a_thread_goes_on_in_the_same_session(crew: Crew) -> None:
    caller = (await crew.session()).principal
    first = await crew.ok("crib_send_message", caller, to_agent="mate", message=HELLO)
    assert first["state"] == "completed"
    second = await crew.ok(
        "crib_send_message", caller, to_agent="mate", message=f"Again. {HELLO}", thread=first["thread"]
    )
    assert second["sessionId"] == first["sessionId"] == first["thread"]
    kinds = [event.kind for event in await crew.transcript(first["sessionId"])]
    assert kinds.count("user_message") == 2


async def test_a_thread_is_only_for_who_began_it_with_the_rights_they_had(crew: Crew) -> None:
    caller = (await crew.session()).principal
    thread = (await crew.ok("crib_send_message", caller, to_agent="mate", message=HELLO))["thread"]
    other = (await crew.session()).principal
    for who, to in ((other, "mate"), (caller, "cook"), (replace(caller, mode="plan"), "mate")):
        with pytest.raises(NotFound) as raised:
            await Messenger(crew.crib.sessions, crew.crib.zoo).send(Context(who, "1"), Letter(to, HELLO, thread))
        assert raised.value.code == "crew.thread"
    assert "no thread" in await crew.wrong("crib_send_message", caller, to_agent="mate", message="x", thread="none")


async def test_a_thread_that_is_still_at_work_is_not_spoken_to(crew: Crew) -> None:
    crew.script("slow", {"hang_s": 60})
    caller = (await crew.session()).principal
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: crew.use("crib_send_message", caller, to_agent="mate", message="[[script:slow]]"))
        child = await _child(crew, "running")
        said = await crew.wrong("crib_send_message", caller, to_agent="mate", message="x", thread=child)
        assert "is still working" in said
        tasks.cancel_scope.cancel()


async def test_what_cannot_be_sent_is_an_error_with_the_next_step(crew: Crew) -> None:
    caller = (await crew.session("captain")).principal
    for arguments, words in (
        ({"to_agent": "nobody", "message": "x"}, "not found"),
        ({"to_agent": "captain", "message": "x"}, "to itself"),
        ({"to_agent": "mate", "message": "  "}, "1 to 32000"),
        ({"to_agent": "mate", "message": "x" * 32_001}, "1 to 32000"),
    ):
        said = await crew.wrong("crib_send_message", caller, **arguments)
        assert words in said
        assert "Hint: " in said
    assert await crew.crib.sessions.list(SessionFilter(agent="mate")) == []


async def test_the_same_message_is_sent_once_in_thirty_seconds(crew: Crew) -> None:
    now = 100.0
    messenger = Messenger(crew.crib.sessions, crew.crib.zoo, clock=lambda: now)
    context = Context((await crew.session()).principal, "1")
    with anyio.fail_after(SOON):
        await messenger.send(context, Letter("mate", HELLO))
        now += 29.9
        with pytest.raises(Conflict, match=r"^Message already sent \(duplicate suppressed\)\.$"):
            await messenger.send(context, Letter("mate", HELLO))
        await messenger.send(context, Letter("mate", f"Other. {HELLO}"))
        now += 0.2
        await messenger.send(context, Letter("mate", HELLO))


async def test_two_equal_messages_at_once_are_one(crew: Crew) -> None:
    caller = (await crew.session()).principal
    said: list[bool] = []

    async def send() -> None:
        said.append((await crew.use("crib_send_message", caller, to_agent="mate", message=HELLO)).is_error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        tasks.start_soon(send)
    assert sorted(said) == [False, True]
    assert len(await crew.crib.sessions.list(SessionFilter(agent="mate"))) == 1


async def test_a_session_sends_five_messages_to_two_agents(crew: Crew) -> None:
    caller = (await crew.session()).principal
    for number in range(4):
        await crew.ok("crib_send_message", caller, to_agent="mate", message=f"{number} {HELLO}")
    await crew.ok("crib_send_message", caller, to_agent="cook", message=HELLO)
    said = await crew.wrong("crib_send_message", caller, to_agent="mate", message=f"5 {HELLO}")
    assert "has sent 5 messages to other agents" in said

    another = (await crew.session()).principal
    await crew.ok("crib_send_message", another, to_agent="mate", message=HELLO)
    await crew.ok("crib_send_message", another, to_agent="cook", message=HELLO)
    said = await crew.wrong("crib_send_message", another, to_agent="gull", message=HELLO)
    assert "has asked cook and mate and may ask 2 agents" in said
    await crew.ok("crib_send_message", another, to_agent="cook", message=f"Again. {HELLO}")


async def test_work_is_handed_on_three_times_and_no_further(crew: Crew) -> None:
    for name, to, following in (("a", "mate", "b"), ("b", "cook", "c"), ("c", "gull", "d"), ("d", "captain", "hello")):
        crew.script(name, do("crib_send_message", to_agent=to, message=f"[[script:{following}]]"), HEARD)
    session = await crew.session("captain")
    events = await crew.turn(session.id, "[[script:a]]")
    assert "was delegated 3 times" in texts(events)[-1]
    agents = [each.agent for each in await crew.crib.sessions.list(SessionFilter())]
    assert sorted(filter(None, agents)) == ["captain", "cook", "gull", "mate"]


async def test_a_receiver_that_fails_is_an_error_that_names_its_session(crew: Crew) -> None:
    crew.script("fail", {"status": 500, "message": "the model is down"})
    caller = (await crew.session()).principal
    said = await crew.wrong("crib_send_message", caller, to_agent="mate", message="[[script:fail]]")
    (child,) = await crew.crib.sessions.list(SessionFilter(agent="mate"))
    assert "mate did not answer: its turn ended with state failed. the model is down" in said
    assert f"thread={child.id}" in said


async def test_an_answer_that_takes_too_long_is_cut_short(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "ANSWER_SECONDS", 0.3)
    crew.script("slow", {"hang_s": 60})
    caller = (await crew.session()).principal
    said = await crew.wrong("crib_send_message", caller, to_agent="mate", message="[[script:slow]]")
    assert "ended with state limit" in said


async def test_who_stops_waiting_stops_the_other_too(crew: Crew) -> None:
    crew.script("slow", {"hang_s": 60})
    crew.script("ask", do("crib_send_message", to_agent="mate", message="[[script:slow]]"), HEARD)
    session = await crew.session("captain")
    await crew.crib.sessions.send(session.id, "[[script:ask]]")
    child = await _child(crew, "running")
    assert await crew.crib.sessions.interrupt(session.id)
    await _child(crew, "idle")
    assert [event.data["reason"] for event in await crew.transcript(child) if event.kind == "done"] == ["interrupted"]


async def test_a_handover_leaves_a_summary_with_a_link_to_the_transcript(crew: Crew) -> None:
    message = f"Finish the sails. {HELLO}"
    crew.script("over", do("crib_send_message", to_agent="mate", message=message, handover=True), HEARD)
    session = await crew.session("captain")
    said = texts(await crew.turn(session.id, "[[script:over]]"))[-1]
    (entry,) = await crew.crib.zoo.brain.find("mate", EntryQuery())
    assert f'"handoverEntryId":"{entry.id}"' in said
    assert (entry.type, entry.pinned) == ("summary", False)
    assert entry.content == f"Handed over by captain:\n\n{message}"
    assert set(entry.tags) == {"handover", "captain"}
    assert dict(entry.metadata) == {"source": "auto", "sessionId": session.id}
    transcript = await crew.transcript(entry.metadata["sessionId"])
    assert any(event.kind == "tool_call_end" and event.data["arguments"]["handover"] for event in transcript)


async def test_a_child_never_has_more_than_who_asked_it(crew: Crew) -> None:
    grant = ToolRef("crew", "crib_grant_credits")
    await crew.crib.zoo.create(agent("quartermaster", permissions=["crew/*"]), by="test")
    crew.script("grant", do("crib_grant_credits", agent="cook", turns=5), HEARD)
    own = await crew.session("quartermaster")
    assert "granted" in texts(await crew.turn(own.id, "[[script:grant]]"))[-1]

    caller = (await crew.session("captain")).principal
    answer = await crew.ok("crib_send_message", caller, to_agent="quartermaster", message="[[script:grant]]")
    assert "There is no tool" in answer["answer"]
    child = await crew.crib.sessions.get(answer["sessionId"])
    decision = crew.crib.gate.decision(child.principal, grant)
    assert (decision.verdict, decision.decided_by.step) == ("hidden", "creator")


async def test_a_child_of_a_planning_session_only_plans(crew: Crew) -> None:
    await crew.crib.zoo.create(agent("eager", mode="bypassPermissions"), by="test")
    crew.script("save", do("crib_library_write", key="k", content="c"), HEARD)
    caller = (await crew.session("captain", mode="plan")).principal
    session = Context(replace(caller, mode="plan"), "1")
    with anyio.fail_after(SOON):
        answer = await Messenger(crew.crib.sessions, crew.crib.zoo).send(session, Letter("eager", "[[script:save]]"))
    assert "Mode plan runs read-only tools only" in answer["answer"]


async def test_callers_without_a_session_are_answered_too(crew: Crew) -> None:
    owner = crew.crib.owner("cli")
    answer = await crew.ok("crib_send_message", owner, to_agent="mate", message=HELLO)
    child = await crew.crib.sessions.get(answer["sessionId"])
    assert child.creator == Principal("owner", "owner", "cli")


async def test_the_crew_is_listed_with_who_asks(crew: Crew) -> None:
    found = await crew.ok("crib_list_agents", (await crew.session("cook")).principal)
    assert found["you"] == "cook"
    assert {"id": "mate", "name": "Mate", "description": "Is mate."} in found["agents"]
    assert (await crew.ok("crib_list_agents", crew.crib.owner("cli")))["you"] is None


async def _child(crew: Crew, state: str) -> str:
    """The session of the mate, once it is in this state."""
    active = crew.crib.sessions.active
    return await crew.until(
        lambda: next((each.id for each in active() if (each.agent, each.state) == ("mate", state)), None)
    )
