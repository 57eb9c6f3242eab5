"""Sessions over HTTP: created, listed, messaged, changed, forked, exported and deleted."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import orjson
import pytest
from anyio.abc import TaskStatus

from integration.web.crib import Running
from integration.web.session_client import BOUND, SCRIPTS, SessionClient, frames, kinds, open_session_client
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sessions(running: Running, tmp_path: Path) -> AsyncGenerator[SessionClient]:
    """A crib whose sessions play scripts."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with open_session_client(running, cwd) as sessions:
        yield sessions


async def test_message_is_accepted_at_once_and_answered_in_the_events(sessions: SessionClient) -> None:
    id = await sessions.create()
    sent = await sessions.send(id, "[[script:hello]]")
    assert sent.keys() == {"messageId", "queued", "seq"}
    events = await sessions.until_done(id)
    assert kinds(events) == ["user_message", "text_delta", "text_message", "done"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["sessionId"] for event in events} == {id}
    assert (events[0]["messageId"], events[0]["seq"]) == (sent["messageId"], sent["seq"])
    states = [event["state"] for event in events if event["kind"] == "session_status"]
    assert states == ["starting", "running", "idle"]
    assert events[-1]["reason"] == "completed"


async def test_session_has_the_requested_properties(sessions: SessionClient) -> None:
    body = {"agentId": "reviewer", "mode": "plan", "title": "Look", "model": "m1", "source": "scheduler"}
    limits = {"turns": 3, "costUsd": 0.5, "seconds": 60}
    id = await sessions.create(**body, limits=limits)
    shown = await sessions.request("GET", f"/api/sessions/{id}")
    assert {key: shown[key] for key in body} == body
    assert shown["limits"] == limits
    assert (shown["state"], shown["cwd"], shown["runner"]) == ("idle", str(sessions.cwd), "played")
    assert (shown["costUsd"], shown["inputTokens"], shown["lastSeq"]) == (0, 0, 0)


async def test_session_records_its_location_and_source(sessions: SessionClient) -> None:
    body = {"runner": "played", "cwd": str(sessions.cwd)}
    answer = await sessions.client.post("/api/sessions", json=body)
    assert answer.headers["location"] == f"/api/sessions/{answer.json()['id']}"
    assert answer.json()["source"] == "api"
    from_cli = await sessions.client.post(
        "/api/sessions", json={"runner": "played"}, params={"source": "cli", "cwd": str(sessions.cwd)}
    )
    assert (from_cli.json()["source"], from_cli.json()["cwd"]) == ("cli", str(sessions.cwd))
    url = await sessions.client.post("/api/login")
    async with sessions.running.client(token=False) as browser:
        await browser.get(url.json()["url"])
        sent = await browser.post("/api/sessions", json=body, headers={"origin": sessions.running.url})
    assert sent.json()["source"] == "web"


async def test_session_without_an_agent_uses_that_of_its_project(sessions: SessionClient) -> None:
    below = sessions.cwd / "src"
    below.mkdir()
    await sessions.request("POST", "/api/projects", {"path": str(sessions.cwd), "agentId": "reviewer"}, 201)
    id = await sessions.create(cwd=str(below))
    assert (await sessions.request("GET", f"/api/sessions/{id}"))["agentId"] == "reviewer"
    other = await sessions.create(cwd=str(sessions.cwd.parent))
    assert (await sessions.request("GET", f"/api/sessions/{other}")).get("agentId") is None


async def test_session_id_can_be_abbreviated(sessions: SessionClient) -> None:
    id = await sessions.create()
    assert (await sessions.request("GET", f"/api/sessions/{id[:9]}"))["id"] == id
    await sessions.create()
    problem = await sessions.request("GET", "/api/sessions/zz", status=404)
    assert problem["code"] == "session.unknown"


@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        ({"cwd": "relative"}, "session.cwd", 422),
        ({"cwd": "/nowhere/at/all"}, "session.cwd", 422),
        ({"agentId": "missing"}, "agent.unknown", 404),
        ({"runner": "nothing"}, "runner.unknown", 404),
        ({"mode": "yolo"}, "request.invalid", 422),
        ({"limits": {"turns": 0}}, "request.invalid", 422),
        ({"surprise": 1}, "request.invalid", 422),
    ],
)
async def test_invalid_session_is_refused(sessions: SessionClient, body: JsonObject, code: str, status: int) -> None:
    request = {"runner": "played", "cwd": str(sessions.cwd), **body}
    problem = await sessions.request("POST", "/api/sessions", request, status)
    assert problem["code"] == code
    assert await sessions.request("GET", "/api/sessions") == []


async def test_unknown_session_is_404_on_every_route(sessions: SessionClient) -> None:
    path = "/api/sessions/00000000-0000-0000-0000-000000000000"
    for method, tail, body in [
        ("GET", "", None), ("PATCH", "", {"title": "x"}), ("DELETE", "", None), ("POST", "/fork", {}),
        ("POST", "/messages", {"content": "x"}), ("POST", "/interrupt", None), ("GET", "/events", None),
        ("GET", "/transcript", None), ("POST", "/questions/q", {"answers": {"a": "b"}}),
    ]:  # fmt: skip
        problem = await sessions.request(method, path + tail, body, 404)
        assert problem["code"] == "session.unknown", (method, tail)


async def test_token_cannot_reach_sessions(sessions: SessionClient) -> None:
    id = await sessions.create()
    for token in ({"source": "api", "mayApprove": True}, {"source": "cli"}, {"source": "ide"}):
        made = await sessions.request("POST", "/api/tokens", {"name": f"t-{token['source']}", **token}, 201)
        headers = {"authorization": f"Bearer {made['secret']}"}
        for path in ("/api/sessions", f"/api/sessions/{id}", f"/api/sessions/{id}/events"):
            answer = await sessions.client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (404, "route.unknown")


async def test_empty_or_oversized_message_is_refused(sessions: SessionClient) -> None:
    id = await sessions.create()
    for content in ("", "  \n", "x" * 1_000_001):
        problem = await sessions.request("POST", f"/api/sessions/{id}/messages", {"content": content}, 422)
        assert problem["code"] == "session.message"
    assert (await sessions.request("GET", f"/api/sessions/{id}"))["lastSeq"] == 0


async def test_message_during_an_answer_is_queued(sessions: SessionClient) -> None:
    id = await sessions.create(mode="acceptEdits")
    first = await sessions.send(id, "[[script:wait]]")
    with anyio.fail_after(BOUND):
        await sessions.running.bench.started.wait()
    second = await sessions.send(id, "[[script:hello]]")
    assert (first["queued"], second["queued"]) == (False, True)
    sessions.running.bench.release.set()
    before = await sessions.until_done(id)
    events = before + await sessions.until_done(id, before[-1]["seq"])
    order = [(event["kind"], event.get("messageId")) for event in events]
    assert order.index(("user_message", second["messageId"])) < order.index(("done", None))
    assert kinds(events).count("done") == 2
    assert [event["text"] for event in events if event["kind"] == "text_message"] == [
        "Waited.",
        "Hello there, how are you today?",
    ]


async def test_interrupt_ends_the_answer_and_runs_queued_messages(sessions: SessionClient) -> None:
    id = await sessions.create(mode="acceptEdits")
    assert await sessions.request("POST", f"/api/sessions/{id}/interrupt") == {"interrupted": False}
    await sessions.send(id, "[[script:wait]]")
    with anyio.fail_after(BOUND):
        await sessions.running.bench.started.wait()
        await sessions.send(id, "[[script:hello]]")
        assert await sessions.request("POST", f"/api/sessions/{id}/interrupt") == {"interrupted": True}
        await sessions.running.bench.cancelled.wait()
    before = await sessions.until_done(id)
    assert before[-1]["reason"] == "interrupted"
    after = await sessions.until_done(id, before[-1]["seq"])
    assert after[-1]["reason"] == "completed"


async def test_patch_changes_mode_model_and_title_only(sessions: SessionClient) -> None:
    id = await sessions.create(title="Before")
    await sessions.send(id, "[[script:hello]]")
    last = (await sessions.until_done(id))[-1]["seq"]
    changed = await sessions.request("PATCH", f"/api/sessions/{id}", {"mode": "plan"})
    assert (changed["mode"], changed["title"]) == ("plan", "Before")
    status = await sessions.until_kind(id, "session_status", last)
    assert status["mode"] == "plan"
    changed = await sessions.request("PATCH", f"/api/sessions/{id}", {"title": "After", "model": "m2"})
    assert (changed["mode"], changed["title"], changed["model"]) == ("plan", "After", "m2")
    assert await sessions.request("PATCH", f"/api/sessions/{id}", {}) == await sessions.request(
        "GET", f"/api/sessions/{id}"
    )
    for wrong in ({"mode": "yolo"}, {"title": None}, {"title": ""}, {"source": "web"}, {"cwd": "/"}):
        assert (await sessions.request("PATCH", f"/api/sessions/{id}", wrong, 422))["code"] == "request.invalid"


async def test_changed_mode_applies_to_the_next_call(sessions: SessionClient) -> None:
    id = await sessions.create(mode="plan")
    await sessions.send(id, "[[script:wait]]")
    denied = await sessions.until_kind(id, "tool_result")
    assert denied["isError"]
    last = (await sessions.until_done(id))[-1]["seq"]
    await sessions.request("PATCH", f"/api/sessions/{id}", {"mode": "bypassPermissions"})
    sessions.running.bench.release.set()
    await sessions.send(id, "[[script:wait]]")
    assert not (await sessions.until_kind(id, "tool_result", last))["isError"]


async def test_fork_copies_the_conversation_and_leaves_the_original_unchanged(sessions: SessionClient) -> None:
    id = await sessions.create(title="One", mode="acceptEdits", source="ide")
    await sessions.send(id, "[[script:echo]]")
    events = await sessions.until_done(id)
    fork = await sessions.request("POST", f"/api/sessions/{id}/fork", {"title": "Two"}, 201)
    assert (fork["title"], fork["forkedFrom"], fork["source"]) == ("Two", id, "ide")
    copied = await sessions.until_done(fork["id"])
    assert [{**event, "sessionId": id} for event in copied] == events
    await sessions.send(fork["id"], "[[script:hello]]")
    more = await sessions.until_done(fork["id"], copied[-1]["seq"])
    assert kinds(more) == ["user_message", "text_delta", "text_message", "done"]
    assert (await sessions.request("GET", f"/api/sessions/{id}"))["lastSeq"] == events[-1]["seq"]
    bare = await sessions.client.post(f"/api/sessions/{id}/fork")
    assert (bare.status_code, bare.json()["title"]) == (201, "One (fork)")


async def test_sessions_are_filtered_and_listed_by_last_use(sessions: SessionClient, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    first, second = await sessions.create(title="first"), await sessions.create(title="second", agentId="reviewer")
    third = await sessions.create(title="third", cwd=str(other))
    await sessions.send(first, "[[script:hello]]")
    await sessions.until_done(first)

    async def listed(**params: str | int) -> list[str]:
        answer = await sessions.client.get("/api/sessions", params=params)
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()]

    assert await listed() == [first, third, second]
    assert await listed(cwd=str(other)) == [third]
    assert await listed(cwd="") == [first, third, second]
    assert await listed(agentId="reviewer") == [second]
    assert await listed(limit=1) == [first]
    assert await listed(state="idle") == [first, third, second]
    assert await listed(state="failed") == []
    link = tmp_path / "link"
    link.symlink_to(other)
    assert await listed(cwd=str(link)) == [third]
    assert (await sessions.client.get("/api/sessions", params={"cwd": "other"})).status_code == 422


def write_transcript(home: Path, cwd: Path, id: str, lines: list[JsonObject]) -> None:
    """Write a transcript in the format of Claude Code."""
    folder = home / ".claude" / "projects" / "".join(c if c.isalnum() else "-" for c in str(cwd))
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps({"cwd": str(cwd), "timestamp": "2026-01-02T03:04:05Z", **line}) + "\n" for line in lines)
    (folder / f"{id}.jsonl").write_text(text + '{"half a line', encoding="utf-8")


TRANSCRIPT_ID = "11111111-2222-3333-4444-555555555555"
TRANSCRIPT: list[JsonObject] = [
    {"type": "user", "uuid": "u1", "isMeta": True, "message": {"content": "<command-name>x</command-name>"}},
    {"type": "user", "uuid": "u2", "message": {"content": "Mend the door"}},
    {"type": "assistant", "uuid": "a1", "message": {"content": [{"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "door"}}]}},
    {"type": "user", "uuid": "u3", "message": {"content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "oak"}]}},
]  # fmt: skip


async def test_transcripts_of_claude_code_are_listed_and_read(sessions: SessionClient, tmp_path: Path) -> None:
    write_transcript(tmp_path, sessions.cwd, TRANSCRIPT_ID, TRANSCRIPT)
    id = await sessions.create()
    answer = await sessions.client.get("/api/sessions", params={"cwd": str(sessions.cwd), "found": "true"})
    found = {each["id"]: each for each in answer.json()}
    assert found.keys() == {id, TRANSCRIPT_ID}
    assert (found[TRANSCRIPT_ID]["origin"], found[TRANSCRIPT_ID]["title"], found[TRANSCRIPT_ID]["cwd"]) == (
        "claude_code",
        "Mend the door",
        str(sessions.cwd),
    )
    everywhere = await sessions.client.get("/api/sessions", params={"found": "true"})
    assert TRANSCRIPT_ID in {each["id"] for each in everywhere.json()}
    lines = (await sessions.client.get(f"/api/sessions/{TRANSCRIPT_ID}/transcript")).content.splitlines()
    assert kinds([orjson.loads(line) for line in lines]) == [
        "user_message", "text_message", "tool_call_start", "tool_call_end", "tool_result",
    ]  # fmt: skip
    resumed = await sessions.create(resume=TRANSCRIPT_ID)
    again = await sessions.client.get("/api/sessions", params={"cwd": str(sessions.cwd), "found": "true"})
    assert {each["id"] for each in again.json()} == {id, resumed}


async def test_session_count_includes_transcripts_once(sessions: SessionClient, tmp_path: Path) -> None:
    write_transcript(tmp_path, sessions.cwd, TRANSCRIPT_ID, TRANSCRIPT)
    await sessions.create()

    async def count() -> int:
        path = "/api/tools/toolcrib/get_session_count/call"
        answer = await sessions.client.post(path, json={"arguments": {}}, params={"cwd": str(sessions.cwd)})
        assert answer.json()["structuredContent"]["cwd"] == str(sessions.cwd)
        return answer.json()["structuredContent"]["count"]

    assert await count() == 2
    await sessions.create(resume=TRANSCRIPT_ID)
    assert await count() == 2
    await sessions.create()
    assert await count() == 3


async def test_transcript_has_the_events_line_by_line(sessions: SessionClient) -> None:
    sessions.runner.scripts["many"] = [
        {"blocks": [{"tool": "mcp__bench__echo", "input": {"text": "`````", "times": number}}]} for number in range(40)
    ] + [{"blocks": [{"text": "Enough."}]}]
    id = await sessions.create(mode="acceptEdits")
    await sessions.send(id, "[[script:many]]")
    events = await sessions.until_done(id)
    answer = await sessions.client.get(f"/api/sessions/{id}/transcript")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [orjson.loads(line) for line in answer.content.splitlines()] == events
    assert answer.content.endswith(b"\n")


async def test_markdown_transcript_escapes_its_content(
    sessions: SessionClient,
) -> None:
    sessions.runner.scripts["ticks"] = [
        {"blocks": [{"tool": "mcp__bench__echo", "input": {"text": "```\n# Not a title\n"}}]},
        {"blocks": [{"text": "Done."}]},
    ]
    id = await sessions.create(mode="acceptEdits", title="A\ntitle")
    await sessions.send(id, "[[script:ticks]]")
    await sessions.until_done(id)
    answer = await sessions.client.get(f"/api/sessions/{id}/transcript", params={"format": "markdown"})
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.text.startswith("# A title\n\n## You\n\n[[script:ticks]]\n")
    assert "\n````\n```\n# Not a title\n\n````\n" in answer.text
    assert answer.text.endswith("## Agent\n\nDone.\n")


async def test_deleted_session_is_gone_and_its_readers_are_notified(sessions: SessionClient) -> None:
    id = await sessions.create(mode="acceptEdits")
    await sessions.send(id, "[[script:wait]]")
    seen: list[JsonObject] = []

    async def read(*, task_status: TaskStatus[None]) -> None:
        async with sessions.client.stream("GET", f"/api/sessions/{id}/events", params={"after": 0}) as stream:
            task_status.started()
            seen.extend(frames(await stream.aread()))

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            await tasks.start(read)
            await sessions.running.bench.started.wait()
            assert await sessions.request("DELETE", f"/api/sessions/{id}", status=204) is None
        await sessions.running.bench.cancelled.wait()
    assert (seen[-1]["kind"], seen[-1]["state"]) == ("session_status", "closed")
    assert (await sessions.request("GET", f"/api/sessions/{id}", status=404))["code"] == "session.unknown"
    assert (await sessions.request("GET", f"/api/sessions/{id}/transcript", status=404))["code"] == "session.unknown"
    assert await sessions.request("GET", "/api/sessions") == []


async def test_session_changes_are_published_in_the_feed(sessions: SessionClient) -> None:
    crib = sessions.running.holding.crib
    published: list[Event] = []
    stop = crib.feed.listen(published.append)
    id = await sessions.create()
    await sessions.send(id, "[[script:hello]]")
    await sessions.until_done(id)
    stop()
    states = [event.data["session"]["state"] for event in published if event.kind == "session_changed"]
    assert states[0] == "idle"
    assert {"running", "idle"} <= set(states)
    assert {event.data["session"]["id"] for event in published if event.kind == "session_changed"} == {id}
    after = published[0].seq - 1
    with anyio.fail_after(BOUND):
        async with sessions.client.stream("GET", "/api/events", params={"after": after}) as stream:
            async for piece in stream.aiter_bytes():
                assert b"event: session_changed" in piece
                break


async def test_runtime_failure_is_an_event_and_a_state_with_the_reason(sessions: SessionClient) -> None:
    sessions.runner.scripts["broke"] = [{"status": 529, "error": "overloaded_error", "message": "Too much to do."}]
    id = await sessions.create()
    await sessions.send(id, "[[script:broke]]")
    events = await sessions.until_done(id)
    (error,) = [event for event in events if event["kind"] == "error"]
    assert error["message"] == "Too much to do."
    assert events[-1]["reason"] == "failed"
    shown = await sessions.request("GET", f"/api/sessions/{id}")
    assert (shown["state"], shown["reason"]) == ("failed", "Too much to do.")
    sessions.runner.scripts["broke"] = SCRIPTS["hello"]
    await sessions.send(id, "[[script:broke]]")
    assert (await sessions.until_done(id, events[-1]["seq"]))[-1]["reason"] == "completed"


async def test_concurrent_sessions_do_not_mix(sessions: SessionClient) -> None:
    most = sessions.running.holding.crib.settings.max_sessions
    ids = [await sessions.create(mode="acceptEdits") for _ in range(most)]
    sessions.runner.scripts["own"] = [
        {"blocks": [{"tool": "mcp__bench__echo", "input": {"text": "x"}}]},
        {"blocks": [{"text": "{{last_tool_result}}"}]},
    ]

    async def one(id: str) -> None:
        await sessions.send(id, f"{id} [[script:own]]")
        events = await sessions.until_done(id)
        assert {event["sessionId"] for event in events} == {id}
        assert [event["content"] for event in events if event["kind"] == "user_message"] == [f"{id} [[script:own]]"]

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            for id in ids:
                tasks.start_soon(one, id)
