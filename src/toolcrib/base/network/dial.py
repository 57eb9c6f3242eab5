"""Opens connections: resolves the host, checks each address, and connects to a checked address.

The name is not resolved again, so a changed DNS answer has no effect. Must never connect to an unchecked address.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from toolcrib.base.network.urls import as_address, is_loopback, may_dial
from toolcrib.model.errors import Denied

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a name and a port to addresses."""
AddressCheck = Callable[[str], bool]
"""Returns whether an address may be contacted."""
Connect = Callable[[str, int], Awaitable[socket.socket]]
"""Opens a socket to an address and a port. Raises `OSError`."""

_T = TypeVar("_T")

_STAGGER = 0.25
_QUIET_BEFORE_PROBES = 30
_BETWEEN_PROBES = 10
_PROBES = 3


async def system_addresses(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses that the system resolves a name to."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(row[4][0]) for row in found))


def address_check(scheme: str, *, local_allowed: bool) -> AddressCheck:
    """Return the check for addresses. Without TLS the peer is not authenticated, so http is limited to loopback."""
    if scheme != "https":
        return is_loopback
    return lambda address: may_dial(address, local_allowed=local_allowed)


async def allowed_addresses(resolve: Resolve, host: str, port: int, check: AddressCheck) -> list[str]:
    """Return the allowed addresses of a host. Raises `OSError` for none, `address.refused` if all are refused."""
    try:
        found = await resolve(host, port) if as_address(host) is None else (host,)
    except OSError as error:
        raise OSError(f"The name {host} cannot be resolved: {error.strerror or error}.") from error
    allowed = [address for address in found if check(address)]
    if found and not allowed:
        raise Denied("address.refused", f"{host} resolves to {found[0]}, which may not be contacted.")
    if not allowed:
        raise OSError(f"The name {host} has no address.")
    return allowed


async def first_connected(
    addresses: Sequence[str],
    connect: Callable[[str], Awaitable[_T]],
    discard: Callable[[_T], Awaitable[None]],
    expected: tuple[type[Exception], ...] = (OSError,),
) -> _T:
    """Return the first connection that succeeds. Attempts are staggered, so a dead address costs little.

    If all fail with an `expected` exception, raises the first one.
    """
    opened: list[_T] = []
    failures: list[Exception] = []

    async def attempt(address: str, over: anyio.Event) -> None:
        try:
            connection = await connect(address)
        except expected as error:
            failures.append(error)
            over.set()
            return
        if opened:
            await discard(connection)
            return
        opened.append(connection)
        attempts.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as attempts:
            for address in addresses:
                over = anyio.Event()
                attempts.start_soon(attempt, address, over)
                with anyio.move_on_after(_STAGGER):
                    await over.wait()
    except BaseException:  # the caller was cancelled just as a connection opened
        with anyio.CancelScope(shield=True):
            for connection in opened:
                await discard(connection)
        raise
    if opened:
        return opened[0]
    raise failures[0]


async def open_socket(address: str, port: int) -> socket.socket:
    """Return a connected socket without send delay, which detects a vanished peer within a minute."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Set the protocol explicitly: event loops check it before they set options.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBING.items():
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.IPPROTO_TCP, option, value)
        await asyncio.get_running_loop().sock_connect(opened, (address, port))
    except BaseException:
        opened.close()
        raise
    return opened


_PROBING = {
    getattr(socket, name): value
    for name, value in (
        ("TCP_KEEPIDLE", _QUIET_BEFORE_PROBES),
        ("TCP_KEEPALIVE", _QUIET_BEFORE_PROBES),
        ("TCP_KEEPINTVL", _BETWEEN_PROBES),
        ("TCP_KEEPCNT", _PROBES),
    )
    if hasattr(socket, name)
}
