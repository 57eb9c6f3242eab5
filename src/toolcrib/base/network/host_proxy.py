"""The HTTP proxy of one sandboxed server: it reaches the hosts that the owner listed, and nothing else.

The crib resolves the names, so a server needs no DNS. A name must resolve to a public address; an address of this
machine or a private network must be listed itself. The proxy listens on loopback and requires a token, so that other
programs cannot use it.

Must never connect to an address that is not listed or public, and never read more of a request than its limit.
"""

import asyncio
import base64
import contextlib
import re
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final, Self
from urllib.parse import urlsplit

import anyio

from toolcrib.base.network.dial import Resolve, allowed_addresses, first_connected, open_socket, system_addresses
from toolcrib.base.network.urls import as_address, is_loopback, is_public, may_dial
from toolcrib.model.errors import Denied, InvalidRequest

MAX_HOSTS: Final = 200
_HEAD_LIMIT: Final = 32 * 1024
_HEAD_WAIT: Final = 30.0
_DIAL_WAIT: Final = 30.0
_CONNECTIONS: Final = 128
_CHUNK: Final = 64 * 1024
_NAME = re.compile(r"(?:\*\.)?(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){0,30}")
_HOP_BY_HOP: Final = ("proxy-", "connection:", "keep-alive:")

Seen = Callable[[str, bool], None]
"""Receives each host that is asked for, with its port unless it is usual, and whether it was reached."""


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One entry of a list: a name, `*.name` for its subdomains, or an address or network; `port` None is any port."""

    host: str
    port: int | None = None

    def names(self, host: str, port: int) -> bool:
        """Return whether the entry covers a host as it is written."""
        if self.port not in (None, port):
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return self.host == host or self.covers(host, port)

    def covers(self, address: str, port: int) -> bool:
        """Return whether the entry is an address or network that contains an address."""
        parsed = as_address(address)
        if parsed is None or self.port not in (None, port) or not (self.host[0].isdigit() or ":" in self.host):
            return False
        with contextlib.suppress(ValueError):
            return parsed in ip_network(self.host)
        return False


def parse_host(text: str) -> HostEntry:
    """Return an entry of a list of hosts. Raises `sandbox.invalid`."""
    host, port = _split(text.strip().lower().rstrip("."))
    try:
        network = ip_network(host)
        return HostEntry(str(network) if "/" in host else str(ip_address(host)), port)
    except ValueError:
        pass
    is_number = re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]) is not None
    if len(host) > 253 or is_number or not _NAME.fullmatch(host):
        hint = "Write a name, `*.name` for its subdomains, or an address, with `:PORT` to allow one port only."
        raise InvalidRequest("sandbox.invalid", f"{text[:100]!r} is not a host.", hint)
    return HostEntry(host, port)


def show_host(entry: HostEntry) -> str:
    """Return the entry as it is written in a list."""
    host = f"[{entry.host}]" if ":" in entry.host and entry.port else entry.host
    return f"{host}:{entry.port}" if entry.port else host


def _split(text: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"\[([0-9a-f:.]+)\](?::(\d{1,5}))?|([^:]*):(\d{1,5})", text)
    if found is None:
        return text, None
    port = int(found[2] or found[4] or 0)
    return found[1] or found[3], port if 0 < port < 65536 else None


class _NotListed(Exception):
    """A host that may not be contacted. `entry` is its address if the name is listed and the address is not."""

    def __init__(self, entry: str = "") -> None:
        super().__init__(entry)
        self.entry = entry


class HostProxy:
    """Listens while it is entered. `hosts` None allows every public host: used to record which ones a server needs."""

    def __init__(self, hosts: Sequence[HostEntry] | None, on_seen: Seen, resolve: Resolve = system_addresses) -> None:
        self._hosts = hosts
        self._on_seen = on_seen
        self._resolve = resolve
        self._token = secrets.token_urlsafe(24)
        self._expected = "basic " + base64.b64encode(f"crib:{self._token}".encode()).decode()
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*self._open, return_exceptions=True)

    def variables(self) -> Mapping[str, str]:
        """Return the variables that make programs use the proxy."""
        address = f"http://crib:{self._token}@127.0.0.1:{self.port}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        return {**dict.fromkeys(names, address), "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) <= _CONNECTIONS:
                await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the client has gone, or never sent a request
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with anyio.fail_after(_HEAD_WAIT):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head[:-4].split("\r\n")
        given = [
            field.partition(":")[2].strip() for field in fields if field.lower().startswith("proxy-authorization:")
        ]
        if len(given) != 1 or not secrets.compare_digest(_scheme_lowered(given[0]), _scheme_lowered(self._expected)):
            await _refuse(writer, "407 Proxy Authentication Required", 'Proxy-Authenticate: Basic realm="toolcrib"\r\n')
            return
        target = _target(line)
        if target is None:
            await _refuse(writer, "400 Bad Request")
            return
        host, port, request = target
        shown = show_host(HostEntry(host, None if port in (80, 443) else port))
        try:
            upstream_reader, upstream_writer = await self._dial(host, port)
        except _NotListed as refusal:
            self._on_seen(refusal.entry or shown, False)
            why = f"{shown} resolves to {refusal.entry}" if refusal.entry else shown
            await _refuse(writer, "403 Forbidden", body=f"The sandbox does not allow this host: {why}.\n")
            return
        except (OSError, TimeoutError):
            await _refuse(writer, "502 Bad Gateway", body=f"{shown} cannot be reached.\n")
            return
        self._on_seen(shown, True)
        try:
            if request is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                kept = [field for field in fields if not field.lower().startswith(_HOP_BY_HOP)]
                upstream_writer.write("\r\n".join([request, *kept, "Connection: close", "", ""]).encode("latin-1"))
            await _relay(reader, writer, upstream_reader, upstream_writer)
        finally:
            upstream_writer.close()

    async def _dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host. Raises `_NotListed` if it may not be contacted."""
        hosts, refused = self._hosts, list[str]()
        if hosts is not None and not any(entry.names(host, port) for entry in hosts):
            raise _NotListed

        def check(address: str) -> bool:
            if hosts is None or is_public(address):
                return may_dial(address, local_allowed=hosts is None)
            is_named = host == "localhost" and is_loopback(address)
            is_listed = is_named or any(entry.covers(address, port) for entry in hosts)
            refused.append(address)
            return is_listed and may_dial(address, local_allowed=True)

        with anyio.fail_after(_DIAL_WAIT):
            try:
                addresses = await allowed_addresses(self._resolve, host, port, check)
            except Denied:
                raise _NotListed(refused[0] if refused else "") from None
            opened = await first_connected(addresses, lambda address: open_socket(address, port), _close_socket)
            return await asyncio.open_connection(sock=opened, limit=_HEAD_LIMIT)


def _scheme_lowered(value: str) -> str:
    scheme, _, rest = value.partition(" ")
    return f"{scheme.lower()} {rest.strip()}"


def _target(line: str) -> tuple[str, int, str | None] | None:
    """Return host, port and, unless it is `CONNECT`, the request line for the host. None if it cannot be read."""
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    method, target, version = words
    if method == "CONNECT" and re.search(r"[/?#@\\]", target):
        return None
    try:
        parsed = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parsed.hostname, parsed.port
    except ValueError:
        return None
    if not host or not host.isascii() or any(character.isspace() for character in host) or parsed.username is not None:
        return None
    host = host.removesuffix(".")
    address = as_address(host)
    host = str(address) if address is not None else host
    if method == "CONNECT":
        return (host, port, None) if port else None
    if parsed.scheme != "http":
        return None
    path = f"{parsed.path or '/'}{'?' + parsed.query if parsed.query else ''}"
    return host, port or 80, f"{method} {path} {version}"


async def _close_socket(opened: socket.socket) -> None:
    opened.close()


async def _refuse(writer: asyncio.StreamWriter, status: str, fields: str = "", body: str = "") -> None:
    text = f"HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain\r\nContent-Length: {len(body.encode())}\r\n"
    writer.write(f"{text}Connection: close\r\n\r\n{body}".encode())
    await writer.drain()


async def _relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    upstream_reader: asyncio.StreamReader,
    upstream_writer: asyncio.StreamWriter,
) -> None:
    """Copy both ways until both ends have finished, or one has failed."""

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(_CHUNK):
                sink.write(data)
                await sink.drain()
            if sink.can_write_eof():
                sink.write_eof()
        except OSError:
            both.cancel_scope.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(copy, reader, upstream_writer)
        both.start_soon(copy, upstream_reader, writer)
