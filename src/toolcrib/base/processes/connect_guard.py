"""Answers the `connect` calls of a sandboxed process on Linux: it gets a socket to one address, or an error.

The process waits in the kernel until the crib has answered (seccomp user notification). The crib connects a socket of
its own and puts it in place of the process's, so what the process does with its memory meanwhile has no effect.

Must never let the kernel run the call itself: it would read the address again.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

import anyio

from toolcrib.base.network.dial import open_socket

_RECEIVE: Final = 0xC0502100
_SEND: Final = 0xC0182101
_IS_VALID: Final = 0x40082102
_PLACE: Final = 0x40182103
_REQUEST: Final = struct.Struct("=QIIiIQ6Q")
_ANSWER: Final = struct.Struct("=QqiI")
_PLACEMENT: Final = struct.Struct("=QIIII")
_AT_NUMBER: Final = 1
_LONGEST_ADDRESS: Final = 128
_IN_FLIGHT: Final = 64
_WAIT: Final = 10.0

Refused = Callable[[str, int], None]
"""Receives the address and port of a refused connection."""


class ConnectGuard:
    """Owns the listener of one process and its descendants. `channel` is the end that the launcher sends it to."""

    def __init__(self, allowed: tuple[str, int], on_refused: Refused) -> None:
        self._allowed = allowed
        self._on_refused = on_refused
        self._own, self._theirs = socket.socketpair()
        self._own.setblocking(False)
        self._listener = -1
        self._connecting: set[asyncio.Task[None]] = set()

    @property
    def channel(self) -> int:
        """The descriptor to pass to the launcher."""
        return self._theirs.fileno()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._own, self._receive_listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.remove_reader(self._own)
        self._own.close()
        self._theirs.close()
        self._close_listener()
        for task in self._connecting:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*self._connecting, return_exceptions=True)

    def _receive_listener(self) -> None:
        try:
            _, descriptors, _, _ = socket.recv_fds(self._own, 1, 1)
        except BlockingIOError:
            return
        except OSError:
            descriptors = []
        self._loop.remove_reader(self._own)
        if descriptors:
            self._listener = descriptors[0]
            self._loop.add_reader(self._listener, self._on_notification)

    def _close_listener(self) -> None:
        """Close the listener; calls that wait, and later ones, fail."""
        if self._listener >= 0:
            self._loop.remove_reader(self._listener)
            os.close(self._listener)
            self._listener = -1

    def _on_notification(self) -> None:
        received = bytearray(_REQUEST.size)
        try:
            ioctl(self._listener, _RECEIVE, received)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINTR):
                self._close_listener()  # every process with this filter has ended
            return
        identity, process, _, _, _, _, descriptor, address, length, *_ = _REQUEST.unpack(received)
        if len(self._connecting) >= _IN_FLIGHT:
            self._answer(identity, errno.EAGAIN)
            return
        wanted = _read_address(process, address, length)
        if wanted != self._allowed:
            if wanted is not None:
                self._on_refused(*wanted)
            self._answer(identity, errno.EACCES)
            return
        task = self._loop.create_task(self._connect(identity, process, descriptor))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, identity: int, process: int, descriptor: int) -> None:
        """Connect a socket and put it in place of the process's."""
        number = errno.ECONNREFUSED
        try:
            with anyio.move_on_after(_WAIT):
                with await open_socket(*self._allowed) as connected:
                    flags = _flags(process, descriptor)
                    connected.setblocking(not flags & os.O_NONBLOCK)
                    close_on_exec = os.O_CLOEXEC if flags & os.O_CLOEXEC else 0
                    ioctl(self._listener, _IS_VALID, struct.pack("=Q", identity))
                    placement = (identity, _AT_NUMBER, connected.fileno(), descriptor, close_on_exec)
                    ioctl(self._listener, _PLACE, _PLACEMENT.pack(*placement))
                    number = 0
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None) or errno.EACCES
        finally:
            self._answer(identity, number)

    def _answer(self, identity: int, number: int) -> None:
        if self._listener >= 0:
            with suppress(OSError):  # the process has ended
                ioctl(self._listener, _SEND, _ANSWER.pack(identity, 0, -number, 0))


def _read_address(process: int, address: int, length: int) -> tuple[str, int] | None:
    """Return the address and port in the memory of a process, or None if it is not an Internet address."""
    try:
        with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            data = memory.read(min(length, _LONGEST_ADDRESS))
    except (OSError, ValueError, OverflowError):
        return None
    family = int.from_bytes(data[:2], "little")
    port = int.from_bytes(data[2:4], "big")
    if family == socket.AF_INET and len(data) >= 8:
        return str(ip_address(data[4:8])), port
    if family == socket.AF_INET6 and len(data) >= 24:
        return str(ip_address(data[8:24])), port
    return None


def _flags(process: int, descriptor: int) -> int:
    """Return the flags of a descriptor of another process. Raises `OSError` or `ValueError`."""
    lines = Path(f"/proc/{process}/fdinfo/{descriptor}").read_text().splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
