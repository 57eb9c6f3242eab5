"""Requests from other machines: the owner's token works only locally, and proxies must be listed."""

import ipaddress
import socket
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from toolcrib import Crib, Settings
from toolcrib.gate.approvals.links import LINK_PATH
from toolcrib.model.errors import ConfigError
from toolcrib.testing.environments import bare_environment
from toolcrib.web.public import PublicAddress, PublicEntrance, public_address

pytestmark = pytest.mark.anyio
PROXY = "10.0.0.1"
STRANGER = "10.0.0.99"


class Entrance:
    """An entrance behind a proxy, and requests to it."""

    def __init__(self, crib: Crib, *proxies: str) -> None:
        networks = tuple(ipaddress.ip_network(each) for each in proxies)
        public = PublicAddress(socket.AF_INET, "10.0.0.5", None, networks)
        self._admitted: list[Scope] = []
        self._entrance = PublicEntrance(
            self._app, crib.principals, public, "127.0.0.1:4242", "https://crib.example.com"
        )

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._admitted.append(scope)

    async def send_request(self, peer: str, path: str = "/api/tools", **headers: str) -> Scope | int:
        """Return the admitted request, or the status of the refusal."""
        sent: list[Message] = []

        async def receive() -> Message:
            raise AssertionError("The entrance must not read the body.")

        async def send(message: Message) -> None:
            sent.append(message)

        given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope: Scope = {"type": "http", "method": "GET", "path": path, "client": (peer, 1), "headers": given}
        self._admitted.clear()
        await self._entrance(scope, receive, send)
        return self._admitted[0] if self._admitted else sent[0]["status"]

    async def is_admitted(self, peer: str, path: str = "/api/tools", **headers: str) -> bool:
        return not isinstance(await self.send_request(peer, path, **headers), int)


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Crib]:
    """A crib with an owner's token."""
    async with Crib(Settings(home=tmp_path / "crib", port=0), environment=bare_environment(tmp_path)) as crib:
        yield crib


def owner(crib: Crib) -> str:
    """Return the header with the owner's token."""
    return f"Bearer {crib.home.token_file.read_text(encoding='ascii').strip()}"


@pytest.mark.parametrize(
    "forwarded",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "203.0.113.9, 127.0.0.1", "127.0.0.1, 10.0.0.1", "", "nonsense"],
)
async def test_owners_token_is_refused_through_a_proxy(crib: Crib, forwarded: str) -> None:
    for proxy, entrance in ((PROXY, Entrance(crib, PROXY)), ("127.0.0.1", Entrance(crib, "127.0.0.1", PROXY))):
        given = {"x_forwarded_for": forwarded} if forwarded else {}
        assert await entrance.send_request(proxy, authorization=owner(crib), **given) == 403
        assert await entrance.is_admitted(proxy, authorization="Bearer other", **given)


async def test_forwarded_address_of_an_unlisted_proxy_is_ignored(crib: Crib) -> None:
    entrance = Entrance(crib, PROXY)
    for spoofed in ("127.0.0.1", PROXY, f"{PROXY}, 127.0.0.1"):
        assert await entrance.send_request(STRANGER, x_forwarded_for=spoofed, x_forwarded_proto="https") == 403
    direct = await entrance.send_request("127.0.0.1", authorization=owner(crib), x_forwarded_for="203.0.113.9")
    assert not isinstance(direct, int)
    assert direct["client"][0] == "127.0.0.1"
    through = await entrance.send_request(
        PROXY, x_forwarded_for=f"127.0.0.1, 203.0.113.9, {PROXY}", forwarded="for=127.0.0.1"
    )
    assert not isinstance(through, int)
    assert through["client"][0] == "203.0.113.9"


@pytest.mark.parametrize("path", ["/healthz", "/login", f"{LINK_PATH}x"])
async def test_header_of_a_node_opens_no_path_without_a_signature_check(crib: Crib, path: str) -> None:
    entrance = Entrance(crib, PROXY)
    assert await entrance.send_request(STRANGER, path, toolcrib_node="forged") == 403
    assert await entrance.is_admitted(PROXY, path) is (path != "/login")  # a person signs in on the node's machine
    assert await entrance.is_admitted(STRANGER, toolcrib_node="the guard verifies it")


async def test_host_cookie_and_origin_are_rewritten_or_refused(crib: Crib) -> None:
    entrance = Entrance(crib, PROXY)
    admitted = await entrance.send_request(
        PROXY, host="evil.example", cookie="toolcrib_4242=x", authorization="Bearer other"
    )
    assert not isinstance(admitted, int)
    assert dict(admitted["headers"]) == {b"host": b"127.0.0.1:4242", b"authorization": b"Bearer other"}
    assert await entrance.send_request(PROXY, host="crib.example.com", origin="https://evil.example") == 403
    assert await entrance.send_request(PROXY, host="crib.example.com", sec_fetch_site="cross-site") == 403


@pytest.mark.parametrize("proxies", ["0.0.0.0/0", "::/0", "10.0.0.1,0.0.0.0/0", "0.0.0.0/1", "2000::/3"])
def test_proxy_networks_that_cover_everything_are_refused(tmp_path: Path, proxies: str) -> None:
    settings = Settings(home=tmp_path, host="10.0.0.5", behind_proxy=tuple(proxies.split(",")))
    with pytest.raises(ConfigError) as raised:
        public_address(settings)
    assert raised.value.code == "bind.refused"
    assert public_address(replace(settings, behind_proxy=("10.0.0.0/8", "fd00::/8"))) is not None


@pytest.mark.parametrize("host", ["::", "0.0.0.0", "fe80::1", "::ffff:10.0.0.5", "10.0.0.5"])
def test_address_of_either_family_is_refused_without_protection(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        public_address(Settings(home=tmp_path, host=host))
    assert raised.value.code == "bind.refused"


@pytest.mark.parametrize("host", ["crib.example.com", "10.0.0.5:4242", "", "10.0.0.0/8", "0x7f.1", "127.1"])
def test_host_that_is_not_an_address_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        public_address(Settings(home=tmp_path, host=host, behind_proxy=(PROXY,)))
    assert raised.value.code == "bind.refused"
