"""Tools of ACP sessions: the crib's tools over the endpoint with the session's secret, and the agent's own tools."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import httpx2
import pytest

from integration.agents.sessions.acp.host import Scripted, listening
from integration.agents.sessions.acp.turns import create, kinds, only, text, turn
from toolcrib import Crib
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.store.audit import Filters
from toolcrib.testing.environments import bare_environment

pytestmark = pytest.mark.anyio

ECHO: JsonObject = {"tool": "mcp__toolcrib__lab_echo", "input": {"text": "a"}}
REPEAT_RESULT: JsonObject = {"blocks": [{"text": "Heard: {{last_tool_result}}"}]}
HELLO: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
async def crib(scripted: Scripted, tmp_path: Path, no_leaked_children: None) -> AsyncGenerator[Crib]:
    """Run a crib with the scripted agent in its settings file."""
    environment = Environment({**bare_environment(tmp_path / "user"), "OTHER_SECRET": "x", "MY_KEY": "key-of-mine"})
    scripted.script("echo", [{"blocks": [{"text": "Looking."}, ECHO]}, REPEAT_RESULT])
    toml = scripted.toml(more='variables = ["MY_*"]\nenv = { COLOR = "no" }')
    async with listening(tmp_path, environment, toml) as opened:
        yield opened


async def test_approval_belongs_to_the_call_that_the_agent_announced(crib: Crib) -> None:
    session = await create(crib)
    events = await turn(crib, session, "echo")
    assert kinds(events) == [
        "user_message", "text_message", "tool_call_start", "tool_call_end", "approval_required", "approval_resolved",
        "tool_result", "text_message", "done",
    ]  # fmt: skip
    start, required = only(events, "tool_call_start"), only(events, "approval_required")
    assert required["toolCallId"] == start["toolCallId"] == only(events, "tool_result")["toolCallId"]
    assert (start["server"], start["tool"]) == ("lab", "echo")
    assert "pong a" in text(events)
    records = await crib.audit.find(Filters(server="lab"))
    assert {(record["door"], record["principal"]["session"]) for record in records} == {("session", session)}
    assert events[-1].data["costUsd"] == 0.25


async def test_denial_reaches_the_model_with_its_reason(crib: Crib) -> None:
    events = await turn(crib, await create(crib), "echo", "deny", "not on a Friday")
    assert only(events, "tool_result")["isError"] is True
    assert "not on a Friday" in text(events)


async def test_changed_mode_applies_at_the_next_call_of_the_same_process(crib: Crib, scripted: Scripted) -> None:
    session = await create(crib, "acceptEdits")
    assert "approval_required" not in kinds(await turn(crib, session, "echo"))
    first = scripted.seen()["headers"]
    await crib.sessions.change(session, mode="dontAsk")
    refused = await turn(crib, session, "echo")
    assert "dontAsk" in text(refused)
    await crib.sessions.change(session, mode="default")
    assert "approval_required" in kinds(await turn(crib, session, "echo"))
    assert scripted.seen()["headers"] == first


async def test_concurrent_calls_are_matched_by_their_arguments(crib: Crib, scripted: Scripted) -> None:
    calls = [{**ECHO, "input": {"text": each}} for each in ("one", "two", "three")]
    scripted.script("many", [{"blocks": calls}, {"blocks": [{"text": "done"}]}])
    events = await turn(crib, await create(crib, "acceptEdits"), "many")
    arguments = {e.data["toolCallId"]: e.data["arguments"]["text"] for e in events if e.kind == "tool_call_end"}
    results = {e.data["toolCallId"]: e.data["content"][0]["text"] for e in events if e.kind == "tool_result"}
    assert {arguments[id]: result for id, result in results.items()} == {
        each: f"pong {each}" for each in ("one", "two", "three")
    }


async def test_large_result_is_shortened_and_read_on_without_asking(crib: Crib, scripted: Scripted) -> None:
    lines = "\n".join(f"line {number}" for number in range(20_000))
    scripted.script("large", [{"blocks": [{**ECHO, "input": {"text": lines}}]}, REPEAT_RESULT])
    session = await create(crib)
    shown = only(await turn(crib, session, "large"), "tool_result")["content"][0]["text"]
    assert len(shown) < 5_000
    handle = re.findall(r"Handle: (\S+)\.", shown)[0]
    read: JsonObject = {"tool": "mcp__toolcrib__read_result", "input": {"handle": handle, "lines": "15001"}}
    scripted.script("read", [{"blocks": [read]}, REPEAT_RESULT])
    events = await turn(crib, session, "read")
    assert "approval_required" not in kinds(events)
    assert (only(events, "tool_call_start")["server"], only(events, "tool_call_start")["tool"]) == (
        "toolcrib", "read_result",
    )  # fmt: skip
    assert only(events, "tool_result")["content"] == [{"type": "text", "text": "15001: line 15000"}]
    assert "Heard: 15001: line 15000" in text(events)


async def test_session_secret_opens_only_its_tools_and_ends_with_the_session(crib: Crib, scripted: Scripted) -> None:
    session = await create(crib)
    await turn(crib, session, "echo")
    seen = scripted.seen()
    headers = {**seen["headers"], "Accept": "application/json, text/event-stream"}
    base = seen["url"].removesuffix("/mcp")
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60) as client:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        initialize: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        answer = await client.post("/mcp", json=initialize)
        assert answer.status_code == 200
        mcp = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        other: JsonObject = {"name": "lab_echo", "arguments": {}}
        between = await client.post("/mcp", json={**HELLO, "method": "tools/call", "params": other}, headers=mcp)
        assert "between two messages" in between.text
        for path in ("/api/tools", "/api/sessions", "/api/approvals", "/api/tokens", "/mcp/servers/lab", "/"):
            assert (await client.get(path)).status_code == 404, path
        assert (await client.get("/mcp?cwd=/")).status_code == 403
        opened, cut = anyio.Event(), anyio.Event()

        async def listen() -> None:
            async with client.stream("GET", "/mcp", headers=mcp) as stream:
                assert stream.status_code == 200
                opened.set()
                with pytest.raises(httpx2.HTTPError):
                    async for _ in stream.aiter_bytes():
                        pass
                    raise httpx2.ReadError("the stream has ended")
            cut.set()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await opened.wait()
                await crib.sessions.close(session)
                await cut.wait()
        assert (await client.post("/mcp", json=initialize)).status_code == 401


async def test_agent_gets_only_its_configured_variables(crib: Crib, scripted: Scripted) -> None:
    await turn(crib, await create(crib, "acceptEdits"), "echo")
    seen = scripted.seen()
    variables, secret = seen["environment"], seen["headers"]["Authorization"].removeprefix("Bearer ")
    assert (variables["MY_KEY"], variables["COLOR"]) == ("key-of-mine", "no")
    assert "OTHER_SECRET" not in variables
    assert secret not in str(variables)
    assert secret not in (crib.home.root / "toolcrib.db").read_bytes().decode("latin-1")


async def test_own_tool_of_the_agent_is_approved_and_recorded(crib: Crib, scripted: Scripted, tmp_path: Path) -> None:
    touch: JsonObject = {"tool": "Bash", "input": {"command": "touch made"}}
    scripted.script("bash", [{"blocks": [touch]}, REPEAT_RESULT])
    session = await create(crib)
    refused = await turn(crib, session, "bash", "deny", "not here")
    assert not (tmp_path / "project" / "made").exists()
    assert "not here" in str(only(refused, "tool_result")["content"])
    events = await turn(crib, session, "bash")
    required = only(events, "approval_required")
    assert (required["server"], required["tool"], required["arguments"]) == ("claude_code", "Bash", touch["input"])
    assert required["toolCallId"] == only(events, "tool_call_start")["toolCallId"]
    assert (tmp_path / "project" / "made").exists()
    records = await crib.audit.find(Filters(server="claude_code"))
    assert [record["phase"] for record in records].count("outcome") >= 1


async def test_reading_inside_the_project_runs_unasked_and_outside_asks(
    crib: Crib, scripted: Scripted, tmp_path: Path
) -> None:
    for name, path in (("inside", tmp_path / "project" / "a"), ("outside", tmp_path / "b")):
        scripted.script(name, [{"blocks": [{"tool": "Read", "input": {"filePath": str(path)}}]}, REPEAT_RESULT])
    session = await create(crib)
    assert "approval_required" not in kinds(await turn(crib, session, "inside"))
    assert only(await turn(crib, session, "outside"), "approval_required")["tool"] == "Read"


async def test_command_titled_like_a_crib_tool_is_treated_as_a_command(crib: Crib, scripted: Scripted) -> None:
    forged: JsonObject = {"tool": "Bash", "input": {"command": "true", "title": "mcp__toolcrib__lab_echo"}}
    scripted.script("forged", [{"blocks": [forged]}, REPEAT_RESULT])
    events = await turn(crib, await create(crib), "forged", "deny")
    assert only(events, "approval_required")["tool"] == "Bash"
    assert only(events, "tool_result")["isError"] is True


async def test_interrupt_withdraws_the_pending_approval(crib: Crib) -> None:
    session = await create(crib)
    log = await crib.sessions.events(session)
    await crib.sessions.send(session, "Go on. [[script:echo]]")
    resolved: list[str] = []
    with anyio.fail_after(60):
        async for batch in log.follow(0):
            for event in batch:
                if event.kind == "approval_required":
                    assert await crib.sessions.interrupt(session)
                if event.kind == "approval_resolved":
                    resolved.append(event.data["decision"])
            if batch[-1].kind == "done":
                assert batch[-1].data["reason"] == "interrupted"
                break
    assert resolved == ["withdrawn"]
    assert text(await turn(crib, session, "echo"))


async def test_code_mode_lists_three_tools_whose_calls_are_approved(crib: Crib, scripted: Scripted) -> None:
    given = {"id": "coder", "name": "Coder", "toolPermissions": ["lab/*"], "listing": "code"}
    await crib.zoo.create(AgentInput.model_validate(given), by="owner")
    program: JsonObject = {"code": "print(await lab_echo(text='a'))"}
    scripted.script("run", [{"blocks": [{"tool": "mcp__toolcrib__run_code", "input": program}]}, REPEAT_RESULT])
    new = NewSession("api", agent="coder", runner="scripted", mode="default")
    events = await turn(crib, (await crib.sessions.create(new)).id, "run")
    assert (only(events, "tool_call_start")["server"], only(events, "tool_call_start")["tool"]) == (
        "toolcrib", "run_code",
    )  # fmt: skip
    assert only(events, "approval_required")["toolCallId"] == only(events, "tool_call_start")["toolCallId"]
    assert "pong a" in text(events)
    assert scripted.seen()["url"].endswith("/mcp?tools=code")
    records = await crib.audit.find(Filters(server="lab"))
    assert {(record["door"], record["tool"]) for record in records} == {("session", "echo")}
