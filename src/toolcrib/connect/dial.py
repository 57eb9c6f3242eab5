"""From a host to a connection: resolve the name, judge each address, dial exactly one that was judged.

The name is not resolved again, so an answer that changes in between changes nothing.

Above: `web` and `http`, the two clients. Below: `urls`, which judges. It must never dial an address that was not
judged.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from toolcrib.connect.urls import as_address, is_loopback, may_dial
from toolcrib.errors import Denied

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a name and a port to the addresses of that name."""
Judge = Callable[[str], bool]
"""Whether this address may be dialled."""
Connect = Callable[[str, int], Awaitable[socket.socket]]
"""Opens a socket to an address and a port. Raises `OSError`."""

_T = TypeVar("_T")

_STAGGER = 0.25
_QUIET_BEFORE_PROBES = 30
_BETWEEN_PROBES = 10
_PROBES = 3


async def system_addresses(host: str, port: int) -> tuple[str, ...]:
    """The addresses the system knows for a name."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(row[4][0]) for row in found))


def judge_for(scheme: str, *, local_allowed: bool) -> Judge:
    """How addresses are judged. Without encryption nobody proves who he is, so http leads to this machine only."""
    if scheme != "https":
        return is_loopback
    return lambda address: may_dial(address, local_allowed=local_allowed)


async def judged_addresses(resolve: Resolve, host: str, port: int, judge: Judge) -> list[str]:
    """Where a host leads and may be followed. Raises `OSError` if nowhere, `address.refused` if it may not be."""
    try:
        found = await resolve(host, port) if as_address(host) is None else (host,)
    except OSError as error:
        raise OSError(f"The name {host} cannot be resolved: {error.strerror or error}.") from error
    judged = [address for address in found if judge(address)]
    if found and not judged:
        raise Denied("address.refused", f"{host} leads to {found[0]}, which may not be contacted.")
    if not judged:
        raise OSError(f"The name {host} has no address.")
    return judged


async def first_standing(
    addresses: Sequence[str],
    connect: Callable[[str], Awaitable[_T]],
    discard: Callable[[_T], Awaitable[None]],
    expected: tuple[type[Exception], ...] = (OSError,),
) -> _T:
    """The first connection that stands. Each address has a head start over the next: a dead one costs little.

    If all of them fail as `expected`, raises what the first one failed with.
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
    except BaseException:  # whoever wanted it has left in the moment in which it stood
        with anyio.CancelScope(shield=True):
            for connection in opened:
                await discard(connection)
        raise
    if opened:
        return opened[0]
    raise failures[0]


async def open_socket(address: str, port: int) -> socket.socket:
    """A connected socket that sends at once, and notices within a minute that the other side has vanished."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # The protocol is named: event loops look at it before they set options.
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
