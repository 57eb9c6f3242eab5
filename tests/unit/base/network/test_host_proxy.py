"""Which hosts a list allows, and how the proxy answers malformed and forbidden requests."""

import asyncio
import base64
from collections.abc import Sequence
from urllib.parse import urlsplit

import pytest

from toolcrib.base.network.host_proxy import HostProxy, parse_host, show_host
from toolcrib.model.errors import InvalidRequest

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("entry", "host", "port", "covered"),
    [
        ("example.com", "example.com", 443, True),
        ("Example.COM.", "example.com", 443, True),
        ("example.com", "evil-example.com", 443, False),
        ("example.com", "a.example.com", 443, False),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("10.0.0.0/8", "10.1.2.3", 80, True),
        ("10.0.0.0/8", "11.1.2.3", 80, False),
        ("[::1]:80", "::1", 80, True),
        ("::1", "::1", 80, True),
    ],
)
def test_entry_covers_exactly_the_named_hosts(entry: str, host: str, port: int, covered: bool) -> None:
    assert parse_host(entry).names(host, port) is covered
    assert parse_host(show_host(parse_host(entry))) == parse_host(entry)


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "a b", "http://x", "a/b", "0x7f.1", "1.2.3", "-a", "a\nb", "a" * 300, "ä.de"]
)
def test_invalid_host_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_host(text)


class RecordingProxy(HostProxy):
    """A proxy that resolves every name to one address, with the hosts that it reported."""

    def __init__(self, hosts: Sequence[str] | None, address: str = "127.0.0.1") -> None:
        async def resolve(host: str, port: int) -> tuple[str, ...]:
            return (address,)

        self.seen: list[tuple[str, bool]] = []
        entries = [parse_host(each) for each in hosts] if hosts is not None else None
        super().__init__(entries, lambda host, is_reached: self.seen.append((host, is_reached)), resolve)

    async def send(self, request: str, *, token: bool = True) -> str:
        """Send a request and return the first line of the response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        parsed = urlsplit(self.variables()["HTTPS_PROXY"])
        given = base64.b64encode(f"{parsed.username}:{parsed.password}".encode()).decode()
        head = f"{request}\r\nHost: x\r\n" + (f"Proxy-Authorization: Basic {given}\r\n" if token else "")
        writer.write(f"{head}\r\n".encode())
        line = await asyncio.wait_for(reader.readline(), 20)
        writer.close()
        return line.decode().strip()


async def test_listed_name_does_not_open_a_private_address() -> None:
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    request = f"CONNECT rebound.example.com:{port} HTTP/1.1"
    async with listening, RecordingProxy(["*.example.com"]) as proxy:
        assert (await proxy.send(request)).startswith("HTTP/1.1 403")
        assert proxy.seen == [("127.0.0.1", False)]  # the entry that would allow it
        async with RecordingProxy(["*.example.com", "127.0.0.1"]) as allowed:
            assert (await allowed.send(request)).startswith("HTTP/1.1 200")
            assert allowed.seen == [(f"rebound.example.com:{port}", True)]


async def test_metadata_services_are_refused_even_if_listed() -> None:
    for address in ("169.254.169.254", "100.100.100.200"):
        async with RecordingProxy([address, "*.example.com"], address) as proxy:
            assert (await proxy.send(f"CONNECT {address}:80 HTTP/1.1")).startswith("HTTP/1.1 403")
            assert (await proxy.send("CONNECT a.example.com:80 HTTP/1.1")).startswith("HTTP/1.1 403")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET / HTTP/1.1", "400"),
        ("GET https://example.com/ HTTP/1.1", "400"),
        ("GET http://user@example.com/ HTTP/1.1", "400"),
        ("CONNECT example.com HTTP/1.1", "400"),
        ("CONNECT example.com:99999 HTTP/1.1", "400"),
        ("CONNECT  example.com:1 HTTP/1.1", "400"),
        ("CONNECT evil.test:443#@example.com HTTP/1.1", "400"),
        ("CONNECT example.com.evil.test:443 HTTP/1.1", "403"),
        ("GET http://2130706433/ HTTP/1.1", "403"),
    ],
)
async def test_malformed_and_forbidden_requests_are_refused(request_line: str, status: str) -> None:
    async with RecordingProxy(["example.com"], "192.0.2.1") as proxy:
        assert (await proxy.send(request_line)).split()[1] == status


async def test_request_without_the_token_is_refused() -> None:
    async with RecordingProxy(["127.0.0.1"]) as proxy:
        assert (await proxy.send("CONNECT 127.0.0.1:9 HTTP/1.1", token=False)).split()[1] == "407"
        assert proxy.seen == []
