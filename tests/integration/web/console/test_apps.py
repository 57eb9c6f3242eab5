"""MCP Apps in the console without a browser: the frame, its headers, and requests of its page."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.web.console.console_client import ConsoleClient, open_console
from integration.web.console.test_sessions import send
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.json import JsonObject
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).resolve().parents[3]
SCHEMA: JsonObject = {"inputSchema": {"type": "object"}}
OFFER: JsonObject = {
    "tools": [
        {"name": "show", **SCHEMA, "_meta": {"ui": {"resourceUri": "ui://panel"}}},
        {"name": "refresh", **SCHEMA, "_meta": {"ui": {"visibility": ["app"]}}},
    ],
    "contents": {"ui://panel": {"mimeType": "text/html;profile=mcp-app", "blob": "PHA+aGk8L3A+"}},
}
DONE: JsonObject = {"blocks": [{"text": "Done."}]}
SCRIPT: JsonObject = {
    "go": [{"blocks": [{"tool": "mcp__panels__show", "input": {}}]}, DONE],
    "hidden": [{"blocks": [{"tool": "mcp__panels__refresh", "input": {}}]}, DONE],
}


@pytest.fixture
async def console(tmp_path: Path) -> AsyncGenerator[ConsoleClient]:
    home = tmp_path / "home"
    home.mkdir()
    file = tmp_path / "panels.json"
    file.write_text(json.dumps(OFFER), encoding="utf-8")
    arguments = ["-S", "-m", "upstreams.json_file", str(file)]
    entry = {"command": sys.executable, "args": arguments, "env": {"PYTHONPATH": str(TESTS)}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"panels": entry}}), encoding="utf-8")
    async with open_console(home) as opened:
        opened.crib.runners.add(PlayedRunner(SCRIPT))
        yield opened


async def call_show(console: ConsoleClient, cwd: Path) -> str:
    """Call the tool with an app in a session; return the session's id."""
    await console.client.post("/api/servers/panels/test")
    wanted = NewSession("web", str(cwd), mode="acceptEdits", runner="played")
    session = await console.crib.sessions.create(wanted)
    await send(console, session.id, "[[script:go]]")
    return session.id


async def request(console: ConsoleClient, id: str, method: str, params: JsonObject) -> Any:
    answer = await console.client.post(f"/apps/{id}/requests", json={"method": method, "params": params})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_app_of_a_call_is_shown_in_a_sandbox(console: ConsoleClient, tmp_path: Path) -> None:
    session = await call_show(console, tmp_path)
    button = next(
        each for each in (await console.page(f"/sessions/{session}")).all("button") if each.text == "Show app of panels"
    )
    shown = await console.send(button.attributes["hx-post"], live=True)
    frame = shown.one("iframe")
    answer = await console.client.get(frame.attributes["data-src"])
    assert answer.text == "<p>hi</p>"
    policies = "; ".join(answer.headers.get_list("content-security-policy"))
    assert "sandbox allow-scripts allow-forms;" in policies
    assert "default-src 'none'" in policies
    assert "connect-src 'none'" in policies
    assert "'self'" not in policies.replace("frame-ancestors 'self'", "")
    assert answer.headers["connection-allowlist"] == "()"
    gone = await console.client.get("/app-pages/unknown", headers={"accept": "text/html"})
    assert gone.status_code == 404
    assert "frame-ancestors 'none'" in gone.headers["content-security-policy"]


async def test_tool_for_apps_only_is_hidden_from_models(console: ConsoleClient, tmp_path: Path) -> None:
    session = await call_show(console, tmp_path)
    await send(console, session, "[[script:hidden]]")
    calls = [each for each in (await console.json(f"/sessions/{session}"))["items"] if each["kind"] == "call"]
    assert [each["result"]["isError"] for each in calls] == [False, True]
    assert "There is no tool" in calls[1]["result"]["content"][0]["text"]


async def test_request_of_an_app_needs_approval_and_a_lasting_one_adds_a_rule(
    console: ConsoleClient, tmp_path: Path
) -> None:
    session = await call_show(console, tmp_path)
    call = next(each for each in (await console.json(f"/sessions/{session}"))["items"] if each["kind"] == "call")
    view = await console.send_json(call["app"])
    crib = console.crib
    for body in (b"", b"x", b"[]", b'{"method": 5}', b'{"method": "tools/call", "params": []}'):
        assert (await console.client.post(f"/apps/{view['id']}/requests", content=body)).status_code == 400, body
    wrong = await request(console, view["id"], "tools/call", {"name": "refresh", "arguments": []})
    assert "must be a string" in wrong["error"]["message"]
    answers: list[Any] = []
    async with anyio.create_task_group() as tasks:

        async def refresh() -> None:
            answers.append(await request(console, view["id"], "tools/call", {"name": "refresh"}))

        tasks.start_soon(refresh)
        with anyio.fail_after(20):
            while not (pending := await crib.approvals.find(status="pending")):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert pending[0].principal.name == "app of panels"
        card = await console.part(f"/apps/{view['id']}/approvals")
        assert "The app of panels asks:" in card.text
        await console.send(f"/waiting/approvals/{pending[0].id}", {"decision": "always"}, 204, live=True)
    assert answers[0]["result"]["content"][0]["text"] == "called refresh"
    again = await request(console, view["id"], "tools/call", {"name": "refresh"})
    assert again["result"]["content"][0]["text"] == "called refresh"
    rules = await console.page("/access/rules")
    assert "the app of panels (source web)" in rules.text
