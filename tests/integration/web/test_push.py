"""Approval notifications by Web Push: subscribing, delivery and removal."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from integration.web.crib import Running, running_crib
from integration.web.test_approval_links import pending
from toolcrib.agents.notify import push_notices
from toolcrib.agents.notify.web_push import encode64
from toolcrib.base.settings import Settings
from toolcrib.model.json import JsonObject, loads

pytestmark = pytest.mark.anyio

ARGUMENT = "an-argument-that-stays-here"


class Browser:
    """A browser with its own push service on loopback. Decrypts as RFC 8188 and RFC 8291 describe."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.point = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.auth = b"sixteen bytes ok"
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.port = 0

    def subscription(self, endpoint: str | None = None) -> JsonObject:
        """Return what the browser's `PushSubscription.toJSON()` returns."""
        keys = {"p256dh": encode64(self.point), "auth": encode64(self.auth)}
        return {"endpoint": endpoint or f"http://127.0.0.1:{self.port}/push/capability", "keys": keys}

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Receive messages while the block runs."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._answer)
            yield
            tasks.cancel_scope.cancel()

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            head, _, body = received.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            while len(body) < int(headers["content-length"]):
                body += await stream.receive()
            self.requests.append((headers, body))
            status = self.statuses.pop(0) if self.statuses else 201
            await stream.send(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)

    def decrypted(self, body: bytes) -> JsonObject:
        """Return the message of a request."""
        salt, size, sender, record = body[:16], int.from_bytes(body[16:20]), body[21 : 21 + body[20]], body[86:]
        assert size == 4096
        shared = self.private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        first = _hmac(self.auth, shared)
        material = _hmac(first, b"WebPush: info\0" + self.point + sender + b"\x01")
        second = _hmac(salt, material)
        key = _hmac(second, b"Content-Encoding: aes128gcm\0\x01")[:16]
        nonce = _hmac(second, b"Content-Encoding: nonce\0\x01")[:12]
        plain = AESGCM(key).decrypt(nonce, record, None)
        assert plain.endswith(b"\x02")
        return loads(plain[:-1])

    async def received(self, count: int = 1) -> None:
        """Wait until this many messages arrived."""
        with anyio.fail_after(20):
            while len(self.requests) < count:  # noqa: ASYNC110
                await anyio.sleep(0.01)


def _hmac(key: bytes, content: bytes) -> bytes:
    made = hmac.HMAC(key, hashes.SHA256())
    made.update(content)
    return made.finalize()


@asynccontextmanager
async def signed_in(running: Running) -> AsyncGenerator[httpx2.AsyncClient]:
    """A browser that is signed in to the console."""
    headers = {"origin": running.url, "sec-fetch-site": "same-origin", "accept": "application/json"}
    async with running.client(token=False) as client:
        answer = await client.post("/login", data={"token": running.token}, headers=headers)
        assert answer.status_code == 303
        client.headers.update(headers | {"user-agent": "Firefox on a phone"})
        yield client


@asynccontextmanager
async def pending_call(running: Running) -> AsyncGenerator[str]:
    """Keep a call pending while the block runs; yield the approval's id."""

    async def call() -> None:
        async with running.client() as client:
            body = {"arguments": {"text": ARGUMENT}}
            await client.post("/api/tools/bench/echo/call", params={"mode": "default"}, json=body)

    async with running.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        id: str = (await pending(client))["id"]
        yield id
        await client.post(f"/api/approvals/{id}", json={"decision": "deny"})


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Running]:
    """A crib that accepts push services on this machine."""
    settings = Settings(home=tmp_path / "home", approval_reminder=0)
    async with running_crib(settings.home, settings=settings) as running:
        running.holding.crib.push.local_allowed = True
        yield running


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    browser = Browser()
    async with browser.listening():
        yield browser


async def test_message_names_the_tool_but_no_arguments(
    running: Running, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with signed_in(running) as client:
        key = (await client.post("/notifications/key", json={})).json()["key"]
        made = await client.post("/notifications", json=browser.subscription())
        assert made.status_code == 201
        assert "capability" not in made.text
        async with pending_call(running) as id:
            await browser.received()
    headers, body = browser.requests[0]
    page = f"/waiting#ask-{id}"
    assert browser.decrypted(body) == {"title": "Approval needed", "body": "bench/echo", "tag": id, "url": page}
    assert (headers["content-encoding"], headers["urgency"], headers["topic"]) == ("aes128gcm", "high", id)
    assert headers["authorization"].startswith("vapid t=")
    assert headers["authorization"].endswith(f", k={key}")
    assert 60 <= int(headers["ttl"]) <= 3600
    assert "capability" not in caplog.text


async def test_subscription_and_key_are_encrypted_and_survive_a_restart(tmp_path: Path, browser: Browser) -> None:
    home, keys = tmp_path / "home", list[str]()
    for is_first in (True, False):
        async with running_crib(home) as running, signed_in(running) as client:
            running.holding.crib.push.local_allowed = True
            keys.append((await client.post("/notifications/key", json={})).json()["key"])
            if is_first:
                await client.post("/notifications", json=browser.subscription())
                continue
            async with pending_call(running):
                await browser.received()
    assert keys[0] == keys[1]
    for file in home.rglob("*"):
        assert not file.is_file() or b"capability" not in file.read_bytes()


@pytest.mark.parametrize("status", [404, 410])
async def test_gone_subscription_is_removed(running: Running, browser: Browser, status: int) -> None:
    browser.statuses = [status]
    async with signed_in(running) as client:
        await client.post("/notifications", json=browser.subscription())
        async with pending_call(running):
            await browser.received()
            with anyio.fail_after(20):
                while (await client.get("/settings")).json()["browsers"]:  # noqa: ASYNC110
                    await anyio.sleep(0.01)


async def test_failed_message_is_retried(running: Running, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_notices, "WAITS", (0.0, 0.0))
    browser.statuses = [503, 429, 201]
    async with signed_in(running) as client:
        await client.post("/notifications", json=browser.subscription())
        async with pending_call(running):
            await browser.received(3)
        assert len((await client.get("/settings")).json()["browsers"]) == 1


async def test_signing_out_and_the_settings_page_remove_a_subscription(running: Running, browser: Browser) -> None:
    async with signed_in(running) as client, signed_in(running) as other:
        await other.post("/notifications", json=browser.subscription())
        await client.post("/notifications", json=browser.subscription("http://127.0.0.1:1/other"))
        shown = (await client.get("/settings", headers={"accept": "text/html"})).text
        assert shown.count("Firefox on a phone") == 2
        assert "capability" not in shown
        await other.post("/logout")
        (left,) = (await client.get("/settings")).json()["browsers"]
        assert (await client.post(f"/notifications/{left['id']}/remove")).headers["location"] == "/settings"
        assert (await client.get("/settings")).json()["browsers"] == []
        renewed = await client.post("/notifications/renew", json=browser.subscription())
        assert (renewed.status_code, renewed.json()["code"]) == (404, "notify.unknown")


async def test_only_a_signed_in_browser_can_subscribe(running: Running, browser: Browser) -> None:
    async with running.client() as owner, running.client(token=False) as stranger:
        made = await owner.post("/api/tokens", json={"name": "app", "source": "api"})
        token = {"authorization": f"Bearer {made.json()['secret']}"}
        for path in ("/notifications", "/notifications/key", "/notifications/renew", "/notifications/abc/remove"):
            shape = browser.subscription()
            assert (await stranger.post(path, json=shape)).status_code == 401
            assert (await stranger.post(path, json=shape, headers=token)).status_code in (403, 404)
            if not path.endswith("remove"):
                assert (await owner.post(path, json=shape)).status_code == 403
    assert await running.holding.crib.push.list() == []


@pytest.mark.parametrize(
    "endpoint",
    ["http://push.example/a", "http://127.0.0.1:9/a", "https://127.0.0.1/a", "https://10.0.0.1/a", "https://[::1]/a",
     "https://169.254.169.254/a", "https://user:pass@push.example/a", "ftp://push.example/a", "", None, 7],
)  # fmt: skip
async def test_endpoint_must_be_a_public_https_address(running: Running, browser: Browser, endpoint: Any) -> None:
    running.holding.crib.push.local_allowed = False
    async with signed_in(running) as client:
        answer = await client.post("/notifications", json={**browser.subscription(), "endpoint": endpoint})
        assert answer.status_code in (400, 422), answer.text
    assert await running.holding.crib.push.list() == []


async def test_name_that_resolves_to_loopback_is_not_contacted(
    running: Running, browser: Browser, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_notices, "WAITS", ())
    running.holding.crib.push.local_allowed = False
    async with signed_in(running) as client:
        made = await client.post(
            "/notifications", json=browser.subscription(f"https://localhost.example:{browser.port}/capability")
        )
        assert made.status_code == 201

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    web = running.holding.crib.push._web  # pyright: ignore[reportPrivateUsage]
    object.__setattr__(web, "resolve", resolve)
    async with pending_call(running):
        with anyio.fail_after(20):
            while "did not accept a notice: Denied" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert browser.requests == []
    assert "capability" not in caplog.text


async def test_subscription_ends_with_the_owners_token_and_after_thirty_days(
    running: Running, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = running.holding.crib.push
    made = await push.subscribe(browser.subscription(), browser="", login="a")
    monkeypatch.setattr(push_notices, "KEPT", push_notices.timedelta(0))
    assert await push.list() == []
    monkeypatch.undo()
    push.local_allowed = True
    assert await push.subscribe(browser.subscription(), browser="", login="a") != made
    monkeypatch.setattr(push, "_owner", "the next token")
    assert await push.list() == []


async def test_node_without_the_secret_ignores_the_subscriptions_of_the_others(
    running: Running, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = running.holding.crib.push
    await push.subscribe(browser.subscription(), browser="", login="a")
    with monkeypatch.context() as without_secret:
        without_secret.setattr(push, "_open_seals", None)
        async with signed_in(running) as client:
            shown = await client.get("/settings")
            assert (shown.status_code, shown.json()["browsers"]) == (200, [])
            refused = await client.post("/notifications/key", json={})
            assert (refused.status_code, refused.json()["code"]) == (409, "notify.no_push")
    assert len(await push.list()) == 1


async def test_only_the_newest_subscriptions_are_kept(running: Running, browser: Browser) -> None:
    push = running.holding.crib.push
    for number in range(push_notices.MOST_SUBSCRIPTIONS + 2):
        await push.subscribe(browser.subscription(f"http://127.0.0.1:1/{number}"), browser="", login="a")
    assert len(await push.list()) == push_notices.MOST_SUBSCRIPTIONS


def test_script_requests_the_notification_routes() -> None:
    script = Path(push_notices.__file__).parents[2] / "web/console/static/console.js"
    found: Callable[[str], bool] = script.read_text().__contains__
    assert all(found(f'"{path}"') for path in ("/notifications", "/notifications/key", "/notifications/renew"))
