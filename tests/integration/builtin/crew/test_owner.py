"""Notices and questions to the owner: in the console, on the command line, by webhook and on the desktop."""

from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import anyio
import orjson
import pytest
from anyio.abc import SocketAttribute, SocketStream

from integration.builtin.crew.crews import REPEAT_RESULT, TIMEOUT, Crew, PlayedClaude, agent_input, call_step, texts
from toolcrib.base.settings import Environment
from toolcrib.model.events import Event
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.testing import crib as open_crib

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Hook:
    """A local webhook that stores posted bodies and answers with a status."""

    def __init__(self) -> None:
        self.status = 204
        self.bodies: list[JsonObject] = []
        self.url = ""
        self._changed = anyio.Event()

    async def wait_for_posts(self, number: int) -> None:
        """Wait until this many notices were posted."""
        with anyio.fail_after(TIMEOUT):
            while len(self.bodies) < number:
                await self._changed.wait()

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
            changed, self._changed = self._changed, anyio.Event()
            changed.set()
            await stream.send(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % self.status)


@pytest.fixture
async def hook() -> AsyncGenerator[Hook]:
    """Run a webhook."""
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
    """Return the owner at the command line."""
    return crew.crib.owner("cli")


def collect_notices(crew: Crew) -> list[Event]:
    """Return a list that collects the notices of the feed."""
    notices: list[Event] = []
    crew.crib.feed.listen(lambda event: notices.append(event) if event.kind == "notice" else None)
    return notices


async def with_answer(crew: Crew, answer_text: str, call: Awaitable[T]) -> tuple[T, JsonObject]:
    """Answer the question that the work asks a person; return the work's result and the question."""
    asked: list[JsonObject] = []

    async def answer() -> None:
        asked.append(await _answer(crew, answer_text))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        return await call, asked[0]
    raise AssertionError("The work was cancelled.")


async def _answer(crew: Crew, answer_text: str) -> JsonObject:
    question = await crew.question()
    answers = {str(each["question"]): answer_text for each in question.questions}
    await crew.crib.sessions.answer(question.id, answers, by=crew.crib.owner("cli"))
    return question.to_json()


async def test_notice_is_published_with_its_agent_and_session(crew: Crew) -> None:
    notices = collect_notices(crew)
    cook = (await crew.session("cook")).principal
    result = await crew.result_of("crib_notify_owner", cook, message="Soup is ready.", title="Galley", level="warning")
    assert result == {"shown": True, "channels": []}
    assert [event.data for event in notices] == [
        {
            "level": "warning",
            "message": "Soup is ready.",
            "title": "Galley",
            "agentId": "cook",
            "sessionId": cook.session,
        }
    ]
    assert "1 to 4000" in await crew.error_of("crib_notify_owner", cook, message=" ")


async def test_webhook_set_by_a_person_receives_every_notice(crew: Crew, owner: Principal, hook: Hook) -> None:
    set_up = await crew.result_of(
        "crib_configure_notifications", owner, action="set", channel="webhook", config={"url": hook.url}
    )
    (channel,) = set_up["channels"]
    assert channel["url"].endswith("/…")
    assert "secret" not in str(set_up), "the rest of the address may be a secret"
    assert "secret" not in str(await crew.result_of("crib_configure_notifications", owner, action="list"))
    result = await crew.result_of("crib_notify_owner", owner, message="Land!", title="Mast")
    assert result["channels"] == [{"channel": "webhook", "delivered": True}]
    (body,) = hook.bodies
    assert (body["message"], body["title"], body["text"]) == ("Land!", "Mast", "Mast: Land!")

    crew.crib.feed.publish("notice", {"level": "warning", "message": "A schedule rests."})
    await hook.wait_for_posts(2)
    assert hook.bodies[1]["message"] == "A schedule rests."
    await crew.result_of("crib_configure_notifications", owner, action="test", channel="webhook")
    assert len(hook.bodies) == 3
    gone = await crew.result_of("crib_configure_notifications", owner, action="remove", channel="webhook")
    assert gone["channels"] == []


async def test_secrets_in_notices_are_masked_for_the_webhook(crew: Crew, owner: Principal, hook: Hook) -> None:
    """Both known secrets and recognized formats are masked, in notices of agents and of the feed."""
    crew.crib.secrets.add("open-sesame 42")
    await crew.result_of(
        "crib_configure_notifications", owner, action="set", channel="webhook", config={"url": hook.url}
    )
    key = "ghp_" + "aB3dE6gH9jK2" * 3
    await crew.result_of("crib_notify_owner", owner, message=f"Used {key} and open-sesame 42.", title="Mast")
    crew.crib.feed.publish("notice", {"level": "warning", "message": f"{key} expires."})
    await hook.wait_for_posts(2)
    assert [body["message"] for body in hook.bodies] == ["Used *** and ***.", "*** expires."]


async def test_failed_webhook_is_reported_and_the_notice_is_still_shown(
    crew: Crew, owner: Principal, hook: Hook
) -> None:
    notices = collect_notices(crew)
    await crew.result_of(
        "crib_configure_notifications", owner, action="set", channel="webhook", config={"url": hook.url}
    )
    hook.status = 500
    result = await crew.result_of("crib_notify_owner", owner, message="Land!")
    assert result["channels"] == [
        {"channel": "webhook", "delivered": False, "error": "The webhook answered with status 500."}
    ]
    assert len(notices) == 1
    assert "status 500" in await crew.error_of("crib_configure_notifications", owner, action="test", channel="webhook")


@pytest.mark.parametrize(
    ("arguments", "answer_text"),
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
async def test_invalid_notification_channels_are_refused(
    crew: Crew, owner: Principal, arguments: dict[str, Json], answer_text: str
) -> None:
    assert answer_text in await crew.error_of("crib_configure_notifications", owner, **arguments)


async def test_channel_proposed_by_an_agent_needs_a_persons_consent(crew: Crew, hook: Hook) -> None:
    cook = (await crew.session("cook")).principal
    arguments: Mapping[str, Json] = {
        "action": "set", "channel": "webhook", "config": {"url": "https://hooks.example.com/x"},
    }  # fmt: skip
    configure = "crib_configure_notifications"
    refused, asked = await with_answer(crew, "no, never", crew.error_of(configure, cook, **arguments))
    assert "did not agree: no, never" in refused
    assert "https://hooks.example.com/x" in asked["questions"][0]["question"], "the person sees the whole address"
    agreed, _ = await with_answer(crew, "Yes", crew.result_of(configure, cook, **arguments))
    assert agreed["channels"][0]["setBy"] == "cook"
    local = {**arguments, "config": {"url": hook.url}}
    assert "was refused" in await crew.error_of("crib_configure_notifications", cook, **local)
    scheduled = replace(cook, source="scheduler")
    assert "cannot ask a person" in await crew.error_of("crib_configure_notifications", scheduled, **arguments)


async def test_desktop_notice_is_shown_by_the_installed_program(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done > {shown}\n')
    program.chmod(0o700)
    environment = Environment({"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    async with open_crib(environment=environment) as crib:
        crew = Crew(crib, PlayedClaude())
        owner = crib.owner("cli")
        await crew.result_of("crib_configure_notifications", owner, action="set", channel="desktop")
        result = await crew.result_of("crib_notify_owner", owner, message="<b>$(date) --help", title="-x")
        assert result["channels"] == [{"channel": "desktop", "delivered": True}]
        assert shown.read_text().splitlines() == ["[--app-name=Toolcrib]", "[--]", "[-x]", "[&lt;b&gt;$(date) --help]"]
        program.write_text("#!/bin/sh\necho no display >&2; exit 1\n")
        answers = await crew.error_of("crib_configure_notifications", owner, action="test", channel="desktop")
        assert "no display" in answers


async def test_question_is_answered_by_a_person_and_is_in_the_transcript(crew: Crew) -> None:
    notices = collect_notices(crew)
    crew.script(
        "ask",
        call_step("crib_ask_owner", question="Which way?", options=["North", "South"], context="Fog."),
        REPEAT_RESULT,
    )
    session = await crew.session("cook")
    events, asked = await with_answer(crew, "North", crew.turn(session.id, "[[script:ask]]"))
    assert '"answer":"North"' in texts(events)[-1]
    assert asked["sessionId"] == session.id
    assert asked["questions"] == [
        {"question": "Which way?\n\nFog.", "header": "cook", "options": [{"label": "North"}, {"label": "South"}]}
    ]
    kinds = [event.kind for event in events]
    assert kinds.index("question_prompt") < kinds.index("question_answered") < kinds.index("tool_result")
    assert "waiting" in [event.data["state"] for event in events if event.kind == "session_status"]
    assert notices[0].data["title"] == "cook asks"


async def test_agent_without_a_session_can_ask_the_owner(crew: Crew) -> None:
    caller = crew.crib.as_agent("cook", "ide")
    answers, asked = await with_answer(crew, "Aye.", crew.result_of("crib_ask_owner", caller, question="Ready?"))
    assert answers == {"answer": "Aye."}
    assert (asked["sessionId"], asked["questions"][0]["header"]) == ("", "cook")
    assert await crew.crib.sessions.questions() == ()


async def test_unanswered_question_is_an_error_with_a_hint(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    answers = await crew.error_of("crib_ask_owner", cook, question="Ready?", timeout_minutes=0.002)
    assert "No person answered within 0.002 minutes" in answers
    assert "Hint: Continue with what is safe" in answers
    assert await crew.crib.sessions.questions() == ()
    for invalid in (
        {"question": ""},
        {"question": "x", "timeout_minutes": 241},
        {"question": "x", "options": ["o"] * 11},
    ):
        await crew.error_of("crib_ask_owner", cook, **invalid)


async def test_only_a_person_can_answer_a_question(crew: Crew) -> None:
    await crew.crib.zoo.create(agent_input("clever"), by="test")
    cook = (await crew.session("cook")).principal
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: crew.call("crib_ask_owner", cook, question="May I?"))
        question = await crew.question()
        for principal in (cook, (await crew.session("clever")).principal, crew.crib.as_agent("clever", "cli")):
            with pytest.raises(Exception, match="only a person may"):
                await crew.crib.sessions.answer(question.id, {"May I?": "yes"}, by=principal)
        tasks.cancel_scope.cancel()
