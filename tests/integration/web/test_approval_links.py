"""Approval links: answered over HTTP from another device, only at the configured address."""

import base64
import hashlib
import hmac
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import orjson
import pytest
from anyio.abc import SocketAttribute, SocketStream

from integration.web.crib import Running, running_crib
from long_tests import takes_long
from toolcrib.agents.notify import delivery
from toolcrib.base.settings import Settings
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

ADDRESS = "https://phone.example"
PHONE = {"host": "phone.example", "accept": "text/html", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
BUTTON = {"host": "phone.example", "accept": "text/html", "origin": ADDRESS, "sec-fetch-site": "same-origin"}
SECRET = "a-secret-of-the-webhook"


async def pending(client: httpx2.AsyncClient) -> JsonObject:
    """Return the pending approval as soon as there is one."""
    while True:
        found = (await client.get("/api/approvals", params={"status": "pending"})).json()
        if found:
            return found[0]
        await anyio.sleep(0.01)


class PendingCall:
    """A call that requires approval, and its link."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.id = ""
        self.path = ""
        self.answer: JsonObject = {}

    async def call(self) -> None:
        """Call the tool and keep the answer."""
        async with self.running.client() as client:
            body = {"arguments": {"text": "<b>a\u202eb</b>"}}
            answer = await client.post("/api/tools/bench/echo/call", params={"mode": "default"}, json=body)
            self.answer = answer.json()

    async def link(self) -> None:
        """Wait for the approval and make its link."""
        async with self.running.client() as client:
            found = await pending(client)
            self.id = found["id"]
            made = (await client.post(f"/api/approvals/{self.id}/link")).json()
        assert made["url"].startswith(f"{ADDRESS}/approve/{self.id}.")
        assert (made["approvalId"], made["expiresAt"]) == (self.id, found["expiresAt"])
        self.path = made["url"].removeprefix(ADDRESS)

    async def status(self) -> str:
        """Return the status of the approval."""
        async with self.running.client() as client:
            return (await client.get(f"/api/approvals/{self.id}")).json()["status"]


@pytest.fixture
async def reachable(tmp_path: Path) -> AsyncGenerator[Running]:
    """A crib with an address for links."""
    settings = Settings(home=tmp_path / "home", approval_address=ADDRESS, approval_reminder=1, webhook_secret=SECRET)
    async with running_crib(settings.home, settings=settings) as running:
        yield running


@asynccontextmanager
async def open_pending_call(running: Running) -> AsyncGenerator[tuple[PendingCall, httpx2.AsyncClient]]:
    """A pending call and a device without a credential; the call must have ended after the block."""
    pending_call = PendingCall(running)
    with anyio.fail_after(30):
        async with running.client(token=False) as device, anyio.create_task_group() as tasks:
            tasks.start_soon(pending_call.call)
            await pending_call.link()
            yield pending_call, device


async def test_approval_link_changes_nothing_when_opened_and_approves_once(reachable: Running) -> None:
    async with open_pending_call(reachable) as (pending_call, device):
        for method in ("GET", "HEAD", "GET"):
            opened = await device.request(method, pending_call.path, headers=PHONE)
            assert opened.status_code == 200
        assert "&lt;b&gt;a\\u{202e}b&lt;/b&gt;" in opened.text
        assert "bench/echo" in opened.text
        assert "script" not in opened.headers["content-security-policy"]
        assert "default-src 'none'" in opened.headers["content-security-policy"]
        assert opened.headers["cache-control"] == "no-store"
        assert await pending_call.status() == "pending"
        done = await device.post(pending_call.path, data={"decision": "approve"}, headers=BUTTON)
        assert (done.status_code, "Approved" in done.text) == (200, True)
        again = await device.post(pending_call.path, data={"decision": "deny"}, headers=BUTTON)
        assert (again.status_code, "already approved by approval link" in again.text) == (409, True)
        assert (await device.get(pending_call.path, headers=PHONE)).status_code == 409
    assert pending_call.answer["isError"] is False
    async with reachable.client() as client:
        records = (await client.get("/api/audit", params={"limit": 100})).json()
        shown = (await client.get(f"/api/approvals/{pending_call.id}")).json()
    assert shown["decidedBy"] == "approval link"
    mine = [each for each in records if each["tool"] == "approvals.answer"]
    assert {each["arguments"]["id"] for each in mine} == {pending_call.id}
    assert {(each["door"], each["principal"]["name"]) for each in mine} == {("link", "approval link")}


@takes_long
async def test_link_command_prints_a_working_link(reachable: Running) -> None:
    home = str(reachable.holding.crib.home.root)
    async with open_pending_call(reachable) as (pending_call, device):
        for options in ((), ("--json",)):
            command = [sys.executable, "-m", "toolcrib", "approvals", "link", pending_call.id, "--home", home, *options]
            printed = (await anyio.run_process(command)).stdout.decode().strip()
            url: str = orjson.loads(printed)["url"] if options else printed
            assert (await device.get(url.removeprefix(ADDRESS), headers=PHONE)).status_code == 200
        await device.post(pending_call.path, data={"decision": "deny"}, headers=BUTTON)


async def test_denial_by_link_reaches_the_caller_with_its_reason(reachable: Running) -> None:
    async with open_pending_call(reachable) as (pending_call, device):
        await device.post(pending_call.path, data={"decision": "deny", "reason": "Not today."}, headers=BUTTON)
    assert "Not today." in str(pending_call.answer)


async def test_invalid_links_hosts_and_origins_are_refused(reachable: Running) -> None:
    yes = {"decision": "approve"}
    async with open_pending_call(reachable) as (pending_call, device):
        edited = await device.get(
            pending_call.path[:-1] + ("A" if pending_call.path[-1] != "A" else "B"), headers=PHONE
        )
        assert (edited.status_code, "was changed or shortened" in edited.text) == (403, True)
        own = f"127.0.0.1:{reachable.port}"
        for headers in (
            {**BUTTON, "origin": "https://other.example"},
            {"host": "phone.example"},
            {**BUTTON, "host": own, "origin": f"http://{own}"},
            {**BUTTON, "host": "other.example", "origin": "https://other.example"},
        ):
            assert (await device.post(pending_call.path, data=yes, headers=headers)).status_code == 403, headers
        assert (await device.post(pending_call.path, data={"decision": "always"}, headers=BUTTON)).status_code == 400
        for path in ("/", "/api/approvals", "/mcp", "/login", "/healthz", "/approve", "/static/console.css"):
            assert (await device.get(path, headers=PHONE)).status_code == 403, path
        assert await pending_call.status() == "pending"
        await device.post(pending_call.path, data={"decision": "deny"}, headers=BUTTON)


async def test_links_are_refused_without_a_configured_address(running: Running) -> None:
    pending_call = PendingCall(running)
    with anyio.fail_after(30):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(pending_call.call)
            path = f"/api/approvals/{(await pending(client))['id']}"
            refused = await client.post(f"{path}/link")
            assert (refused.status_code, refused.json()["code"]) == (409, "approval.no_address")
            await client.post(path, json={"decision": "deny"})


class Receiver:
    """A webhook on loopback that stores its requests."""

    def __init__(self, failing: int = 0) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._failing = failing
        self._received = anyio.Event()

    async def until(self, condition: Callable[[list[JsonObject]], bool]) -> list[JsonObject]:
        """Return the request bodies once they satisfy the condition."""
        while not condition(bodies := [orjson.loads(body) for _, body in self.requests]):
            await self._received.wait()
        return bodies

    async def serve(self, stream: SocketStream) -> None:
        """Answer one request."""
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            lines = [line.decode().partition(": ") for line in head.split(b"\r\n")[1:]]
            headers = {name.lower(): value for name, _, value in lines}
            while len(body) < int(headers["content-length"]):
                body += await stream.receive()
            self.requests.append((headers, body))
            status = b"503 Busy" if len(self.requests) <= self._failing else b"204 No Content"
            received, self._received = self._received, anyio.Event()
            received.set()
            await stream.send(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")


async def test_webhook_gets_the_signed_link_and_a_reminder(reachable: Running) -> None:
    receiver = Receiver()
    crib = reachable.holding.crib
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, receiver.serve)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/hook"
        arguments = {"action": "set", "channel": "webhook", "config": {"url": url}}
        await crib.call("crew/crib_configure_notifications", arguments, principal=crib.owner("cli"))
        async with open_pending_call(reachable) as (pending_call, device):
            bodies = await receiver.until(lambda bodies: len(bodies) == 2)
            assert [each["event"] for each in bodies] == ["approval_required", "approval_reminder"]
            for (headers, raw), body in zip(receiver.requests, bodies, strict=True):
                assert body["link"] == f"{ADDRESS}{pending_call.path}"
                assert body["link"] in body["text"]
                assert "202e" not in raw.decode()
                signed = sign_again(raw, headers)
                assert headers["webhook-signature"] == signed
            await device.post(pending_call.path, data={"decision": "approve"}, headers=BUTTON)
        tasks.cancel_scope.cancel()


def sign_again(body: bytes, headers: dict[str, str]) -> str:
    """Return the signature that a receiver computes, as Standard Webhooks describes it."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()


async def test_failing_webhook_is_retried_and_delays_no_call(
    reachable: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "WAITS", (0.01, 0.02, 600))
    receiver = Receiver(failing=2)
    crib = reachable.holding.crib
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, receiver.serve)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/hook"
        arguments = {"action": "set", "channel": "webhook", "config": {"url": url, "form": "slack"}}
        await crib.call("crew/crib_configure_notifications", arguments, principal=crib.owner("cli"))
        async with open_pending_call(reachable) as (pending_call, device):
            bodies = await receiver.until(lambda bodies: len(bodies) == 3)
            assert f"<{ADDRESS}{pending_call.path}|" in bodies[0]["blocks"][-1]["text"]["text"]
            assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
            assert len({body for _, body in receiver.requests}) == 1
            await device.post(pending_call.path, data={"decision": "approve"}, headers=BUTTON)
        receiver = Receiver(failing=1000)
        monkeypatch.setattr(delivery, "WAITS", (600,))
        async with open_pending_call(reachable) as (pending_call, device):
            await device.post(pending_call.path, data={"decision": "approve"}, headers=BUTTON)
        tasks.cancel_scope.cancel()
