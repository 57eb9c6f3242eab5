"""Planted secrets, which servers repeat wherever they can, appear in no output of the crib.

Output is every page and route, the feed, exported telemetry, the database and the files of the home.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from httpx2 import AsyncClient

from http_clients import PLAIN
from integration.host.telemetry.receiver import Receiver, receiver
from integration.host.telemetry.test_otlp import QUICK
from integration.upstream.http.harness import Request, raw_server
from lab import eventually
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.json import JsonObject
from toolcrib.web.run import Holding, hold

pytestmark = pytest.mark.anyio

VARIABLE = "amber otter 4417 quietly"
KEYRING = "copper heron 5528 loudly"
HEADER = "d41f7c20-1a2b-4c3d-8e4f-a5b6c7d8e9f0"
OWN = "silver badger 6639 slowly"
"""None of them looks like a secret: they are masked because of their origin."""

GOSSIP = r"""
import json, os, sys

known = " and ".join(os.environ.get(name, "none") for name in ("SERVICE_PASSWORD", "STORED_PASSWORD"))
print(f"starting with {known}", file=sys.stderr, flush=True)
tool = {"name": "gossip", "description": "Repeats.", "inputSchema": {"type": "object"}}
failing = {**tool, "name": "fail"}

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked["method"], asked.get("id")
    if id is None:
        continue
    if method == "initialize":
        info = {"name": "gossip", "version": "1"}
        capabilities = {"tools": {}, "logging": {}}
        send({"id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [tool, failing]}})
    elif method == "tools/call":
        log = {"level": "error", "data": f"called with {known}"}
        send({"method": "notifications/message", "params": log})
        print(f"calling with {known}", file=sys.stderr, flush=True)
        if asked["params"]["name"] == "fail":
            send({"id": id, "error": {"code": -32000, "message": f"failed with {known}"}})
        else:
            send({"id": id, "result": {"content": [{"type": "text", "text": f"result {known}"}], "isError": True}})
    else:
        send({"id": id, "error": {"code": -32601, "message": f"{method} is unknown, {known}"}})
"""


def _stored(home: Path) -> str:
    with closing(sqlite3.connect(home / "toolcrib.db")) as database:
        return "\n".join(database.iterdump())


def _files(home: Path) -> dict[str, str]:
    """Return the files of the home, except those that hold secrets on purpose."""
    own = {"token", "mcp.json", "credentials.json", "key", "secrets.sealed"}
    found = [each for each in home.rglob("*") if each.is_file() and each.name not in own and ".db" not in each.name]
    return {str(each.relative_to(home)): each.read_bytes().decode("utf-8", "replace") for each in found}


PAGES = (
    "/", "/servers", "/servers/gossip", "/servers/gossip/setup", "/servers/gossip/log", "/servers/gossip/uses",
    "/servers/remote", "/servers/remote/setup", "/servers/remote/log", "/secrets", "/tools", "/activity", "/waiting",
    "/settings", "/access", "/access/tokens", "/connect", "/sessions",
)  # fmt: skip
ROUTES = (
    "/api/servers", "/api/servers/gossip", "/api/servers/remote", "/api/servers/-/problems", "/api/audit",
    "/api/audit/export", "/api/settings", "/api/status", "/api/tools", "/api/tools/problems", "/api/tokens",
    "/api/approvals", "/api/secrets", "/api/secrets/stored", "/api/policy/problems", "/api/connect", "/api/nodes",
    "/metrics",
)  # fmt: skip


async def _read_all(client: AsyncClient) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in ROUTES:
        answer = await client.get(path)
        found[path] = f"{answer.status_code} {answer.text}"
    for path in PAGES:
        answer = await client.get(path, headers={"accept": "text/html"})
        found[f"page {path}"] = f"{answer.status_code} {answer.text}"
    async with client.stream("GET", "/api/events", params={"after": 0}) as events:
        with anyio.move_on_after(0.5):
            async for piece in events.aiter_text():
                found["events"] = found.get("events", "") + piece
    return found


def _leaks(places: Mapping[str, str], secrets: Mapping[str, str]) -> list[str]:
    return [f"{name} in {place}" for place, text in places.items() for name, value in secrets.items() if value in text]


async def _plant(folder: Path, remote: str) -> tuple[Settings, Environment]:
    home = prepare_home(folder / "home")
    program = folder / "gossip.py"
    program.write_text(GOSSIP)
    servers: JsonObject = {
        "gossip": {
            "command": sys.executable,
            "args": ["-S", str(program)],
            "env": {"SERVICE_PASSWORD": VARIABLE, "STORED_PASSWORD": "${keyring:PLANTED}"},
        },
        "remote": {"type": "http", "url": remote, "headers": {"Authorization": f"Bearer {HEADER}"}},
    }
    (home.root / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    settings = Settings(home=home.root, port=0, otel=True, approval_address="https://phone.example")
    return settings, Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin", "OWN_PASSWORD": OWN, **QUICK})


async def _use(holding: Holding, client: AsyncClient) -> dict[str, str]:
    """Call the tools that repeat secrets, and return the secrets created meanwhile."""
    await client.put("/api/secrets/PLANTED", json={"value": KEYRING})
    for name in ("gossip", "remote"):
        await client.post(f"/api/servers/{name}/test")
    for tool in ("gossip", "fail"):
        await client.post(f"/api/tools/gossip/{tool}/call", json={"arguments": {"said": f"{VARIABLE} {OWN}"}})
    token = (await client.post("/api/tokens", json={"name": "app", "source": "api"})).json()["secret"]

    async def ask() -> None:
        body = {"arguments": {"said": VARIABLE}}
        await client.post("/api/tools/gossip/gossip/call", params={"mode": "default"}, json=body)

    link = ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        pending: list[JsonObject] = []
        while not pending:
            pending = (await client.get("/api/approvals", params={"status": "pending"})).json()
        link = (await client.post(f"/api/approvals/{pending[0]['id']}/link")).json()["url"]
        await client.post(f"/api/approvals/{pending[0]['id']}", json={"decision": "approve"})
    assert link
    made = {"the token of an app": token, "an approval link": link.rpartition(".")[2]}
    return {**made, "the owner's token": owner_token(holding.crib.home)}


async def test_planted_secrets_appear_in_no_output(tmp_path: Path) -> None:
    async def refuse(request: Request, writer: asyncio.StreamWriter) -> None:
        secret = request.headers["authorization"].encode()
        answer = b"Rejected " + secret
        writer.write(b"HTTP/1.1 500 Bad\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
        await writer.drain()

    async with receiver() as collector, raw_server(refuse) as remote:
        settings, environment = await _plant(tmp_path, remote.url)
        environment = Environment({**environment, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        async with hold(settings, kind="serve", environment=environment) as holding:
            headers = {"authorization": f"Bearer {owner_token(holding.crib.home)}"}
            async with AsyncClient(base_url=holding.info.url, headers=headers, timeout=20, verify=PLAIN) as client:
                made = await _use(holding, client)
                secrets = {"a variable": VARIABLE, "a stored secret": KEYRING, "a header": HEADER, "own": OWN, **made}
                places = await _read_all(client)
            await eventually(lambda: len(collector.spans) > 2)
        assert _reached(places, collector) == []
        places |= {"telemetry": str([collector.spans, collector.logs, collector.metrics])}
        places |= {"database": _stored(settings.home), **_files(settings.home)}
    assert _leaks(places, secrets) == []


def _reached(places: Mapping[str, str], collector: Receiver) -> list[str]:
    """Return the routes and pages that failed; raise if the others lack what could hold a secret."""
    empty = [path for path, text in places.items() if not text.startswith("200 ") and path != "events"]
    assert "*** ***" in places["/api/audit/export"]
    assert "notifications/message" in places["page /servers/gossip/log"]
    assert "approval_required" in places["events"]
    assert collector.spans
    return empty
