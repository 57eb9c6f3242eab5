"""The owner is told and asked: in the console, on the command line, by webhook and on the desktop."""

from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import anyio
import orjson
import pytest
from anyio.abc import SocketAttribute, SocketStream

from integration.builtin.crew.crews import HEARD, SOON, ClaudePlayed, Crew, agent, do, texts
from toolcrib.base.settings import Environment
from toolcrib.model.events import Event
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.testing import crib as open_crib

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Hook:
    """A webhook on this machine: keeps what is posted, answers with a status."""

    def __init__(self) -> None:
        self.status = 204
        self.bodies: list[JsonObject] = []
        self.url = ""
        self._news = anyio.Event()

    async def posted(self, number: int) -> None:
        """Wait until so many notices were posted."""
        with anyio.fail_after(SOON):
            while len(self.bodies) < number:
                await self._news.wait()

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            size = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
            while len(body) < size:
                body += await stream.receive()
            self.bodies.append(orjson.loads(body))
            news, self._news = self._news, anyio.Event()
            news.set()
            await stream.send(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % self.status)


@pytest.fixture
async def hook() -> AsyncGenerator[Hook]:
    """A running webhook."""
    hook = Hook()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    hook.url = f"http://127.0.0.1:{port}/secret"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hook.serve)
        yield hook
        tasks.cancel_scope.cancel()


@pytest.fixture
def owner(crew: Crew) -> Principal:
    """The owner at the command line."""
    return crew.crib.owner("cli")


def notices(crew: Crew) -> list[Event]:
    """What was told so far."""
    heard: list[Event] = []
    crew.crib.feed.listen(lambda event: heard.append(event) if event.kind == "notice" else None)
    return heard


async def answered(crew: Crew, words: str, work: Awaitable[T]) -> tuple[T, JsonObject]:
    """What comes of work that asks a person, who answers like this; and what they were asked."""
    asked: list[JsonObject] = []

    async def answer() -> None:
        asked.append(await _answer(crew, words))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        return await work, asked[0]
    raise AssertionError("The work was cancelled.")


async def _answer(crew: Crew, words: str) -> JsonObject:
    question = await crew.question()
    said = {str(each["question"]): words for each in question.questions}
    await crew.crib.sessions.answer(question.id, said, by=crew.crib.owner("cli"))
    return question.to_json()


async def test_a_notice_is_on_the_feed_with_who_wants_it_known(crew: Crew) -> None:
    heard = notices(crew)
    cook = (await crew.session("cook")).principal
    told = await crew.ok("crib_notify_owner", cook, message="Soup is ready.", title="Galley", level="warning")
    assert told == {"shown": True, "channels": []}
    assert [event.data for event in heard] == [
        {
            "level": "warning",
            "message": "Soup is ready.",
            "title": "Galley",
            "agentId": "cook",
            "sessionId": cook.session,
        }
    ]
    assert "1 to 4000" in await crew.wrong("crib_notify_owner", cook, message=" ")


async def test_a_webhook_that_a_person_set_gets_every_notice(crew: Crew, owner: Principal, hook: Hook) -> None:
    set_up = await crew.ok(
        "crib_configure_notifications", owner, action="set", channel="webhook", config={"url": hook.url}
    )
    (channel,) = set_up["channels"]
    assert channel["url"].endswith("/…")
    assert "secret" not in str(set_up), "the rest of the address may be one"
    assert "secret" not in str(await crew.ok("crib_configure_notifications", owner, action="list"))
    told = await crew.ok("crib_notify_owner", owner, message="Land!", title="Mast")
    assert told["channels"] == [{"channel": "webhook", "delivered": True}]
    (body,) = hook.bodies
    assert (body["message"], body["title"], body["text"]) == ("Land!", "Mast", "Mast: Land!")

    crew.crib.feed.publish("notice", {"level": "warning", "message": "A schedule rests."})
    await hook.posted(2)
    assert hook.bodies[1]["message"] == "A schedule rests."
    await crew.ok("crib_configure_notifications", owner, action="test", channel="webhook")
    assert len(hook.bodies) == 3
    gone = await crew.ok("crib_configure_notifications", owner, action="remove", channel="webhook")
    assert gone["channels"] == []


async def test_secrets_in_a_notice_do_not_reach_the_webhook(crew: Crew, owner: Principal, hook: Hook) -> None:
    """Neither one that is known nor one that is recognised, in the notice's words or the feed's."""
    crew.crib.secrets.add("open-sesame 42")
    await crew.ok("crib_configure_notifications", owner, action="set", channel="webhook", config={"url": hook.url})
    key = "ghp_" + "aB3dE6gH9jK2" * 3
    await crew.ok("crib_notify_owner", owner, message=f"Used {key} and open-sesame 42.", title="Mast")
    crew.crib.feed.publish("notice", {"level": "warning", "message": f"{key} expires."})
    await hook.posted(2)
    assert [body["message"] for body in hook.bodies] == ["Used *** and ***.", "*** expires."]


async def test_a_webhook_that_fails_is_told_and_the_notice_is_shown_all_the_same(
    crew: Crew, owner: Principal, hook: Hook
) -> None:
    heard = notices(crew)
    await crew.ok("crib_configure_notifications", owner, action="set", channel="webhook", config={"url": hook.url})
    hook.status = 500
    told = await crew.ok("crib_notify_owner", owner, message="Land!")
    assert told["channels"] == [
        {"channel": "webhook", "delivered": False, "error": "The webhook answered with status 500."}
    ]
    assert len(heard) == 1
    assert "status 500" in await crew.wrong("crib_configure_notifications", owner, action="test", channel="webhook")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "set"}, "needs a channel"),
        ({"action": "set", "channel": "webhook"}, "takes a URL"),
        ({"action": "set", "channel": "webhook", "config": {"url": "ftp://x"}}, "only https"),
        ({"action": "set", "channel": "webhook", "config": {"url": "http://169.254.169.254/"}}, "was refused"),
        ({"action": "set", "channel": "webhook", "config": {"url": "https://u:p@example.com/"}}, "user name"),
        ({"action": "set", "channel": "desktop"}, "No program for desktop"),
        ({"action": "remove", "channel": "webhook"}, "No webhook is set"),
        ({"action": "test", "channel": "desktop"}, "No desktop is set"),
    ],
)
async def test_channels_that_cannot_be_are_refused(
    crew: Crew, owner: Principal, arguments: dict[str, Json], words: str
) -> None:
    assert words in await crew.wrong("crib_configure_notifications", owner, **arguments)


async def test_an_agent_proposes_a_channel_and_a_person_decides(crew: Crew, hook: Hook) -> None:
    cook = (await crew.session("cook")).principal
    arguments: Mapping[str, Json] = {
        "action": "set", "channel": "webhook", "config": {"url": "https://hooks.example.com/x"},
    }  # fmt: skip
    configure = "crib_configure_notifications"
    refused, asked = await answered(crew, "no, never", crew.wrong(configure, cook, **arguments))
    assert "did not agree: no, never" in refused
    assert "https://hooks.example.com/x" in asked["questions"][0]["question"], "the person sees the whole address"
    agreed, _ = await answered(crew, "Yes", crew.ok(configure, cook, **arguments))
    assert agreed["channels"][0]["setBy"] == "cook"
    local = {**arguments, "config": {"url": hook.url}}
    assert "was refused" in await crew.wrong("crib_configure_notifications", cook, **local)
    scheduled = replace(cook, source="scheduler")
    assert "cannot ask a person" in await crew.wrong("crib_configure_notifications", scheduled, **arguments)


async def test_the_desktop_shows_a_notice_with_the_program_that_is_there(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done > {shown}\n')
    program.chmod(0o700)
    environment = Environment({"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    async with open_crib(environment=environment) as crib:
        crew = Crew(crib, ClaudePlayed())
        owner = crib.owner("cli")
        await crew.ok("crib_configure_notifications", owner, action="set", channel="desktop")
        told = await crew.ok("crib_notify_owner", owner, message="<b>$(date) --help", title="-x")
        assert told["channels"] == [{"channel": "desktop", "delivered": True}]
        assert shown.read_text().splitlines() == ["[--app-name=Toolcrib]", "[--]", "[-x]", "[&lt;b&gt;$(date) --help]"]
        program.write_text("#!/bin/sh\necho no display >&2; exit 1\n")
        said = await crew.wrong("crib_configure_notifications", owner, action="test", channel="desktop")
        assert "no display" in said


async def test_a_question_is_answered_by_a_person_and_is_in_the_transcript(crew: Crew) -> None:
    heard = notices(crew)
    crew.script("ask", do("crib_ask_owner", question="Which way?", options=["North", "South"], context="Fog."), HEARD)
    session = await crew.session("cook")
    events, asked = await answered(crew, "North", crew.turn(session.id, "[[script:ask]]"))
    assert '"answer":"North"' in texts(events)[-1]
    assert asked["sessionId"] == session.id
    assert asked["questions"] == [
        {"question": "Which way?\n\nFog.", "header": "cook", "options": [{"label": "North"}, {"label": "South"}]}
    ]
    kinds = [event.kind for event in events]
    assert kinds.index("question_prompt") < kinds.index("question_answered") < kinds.index("tool_result")
    assert "waiting" in [event.data["state"] for event in events if event.kind == "session_status"]
    assert heard[0].data["title"] == "cook asks"


async def test_who_has_no_session_asks_too(crew: Crew) -> None:
    caller = crew.crib.as_agent("cook", "ide")
    said, asked = await answered(crew, "Aye.", crew.ok("crib_ask_owner", caller, question="Ready?"))
    assert said == {"answer": "Aye."}
    assert (asked["sessionId"], asked["questions"][0]["header"]) == ("", "cook")
    assert await crew.crib.sessions.questions() == ()


async def test_nobody_answering_is_an_error_with_the_next_step(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    said = await crew.wrong("crib_ask_owner", cook, question="Anybody?", timeout_minutes=0.002)
    assert "No person answered within 0.002 minutes" in said
    assert "Hint: Continue with what is safe" in said
    assert await crew.crib.sessions.questions() == ()
    for wrong in (
        {"question": ""},
        {"question": "x", "timeout_minutes": 241},
        {"question": "x", "options": ["o"] * 11},
    ):
        await crew.wrong("crib_ask_owner", cook, **wrong)


async def test_only_a_person_answers(crew: Crew) -> None:
    await crew.crib.zoo.create(agent("clever"), by="test")
    cook = (await crew.session("cook")).principal
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: crew.use("crib_ask_owner", cook, question="May I?"))
        question = await crew.question()
        for who in (cook, (await crew.session("clever")).principal, crew.crib.as_agent("clever", "cli")):
            with pytest.raises(Exception, match="only a person may"):
                await crew.crib.sessions.answer(question.id, {"May I?": "yes"}, by=who)
        tasks.cancel_scope.cancel()
