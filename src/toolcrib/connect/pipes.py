"""Our ends of a child's pipes on the event loop, by the shortest road: one system call to read, one to write.

Above: `process`. Below: asyncio's loop (its transports cost a multiple of this per message, and hide how much is
unsent). It must never block, and never let what is unsent grow without bound.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from io import FileIO
from typing import Final

CHUNK: Final = 65_536
UNSENT_LIMIT: Final = 64 * 1024 * 1024


class PipeReader:
    """Hands on whatever a pipe gives until its end."""

    def __init__(self, pipe: FileIO, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._on_data = on_data
        self._on_end = on_end
        self.is_done = False
        """Whether nothing more will come: the pipe has ended, or nobody wants more of it."""
        os.set_blocking(self._descriptor, False)
        self._loop.add_reader(self._descriptor, self.read)

    def read(self) -> bool:
        """Take one chunk; False if there was none."""
        if self.is_done:
            return False
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._on_data(data)
            return True
        self.pause()
        self._on_end()
        return False

    def drain(self, limit: int) -> None:
        """Take what is in the pipe now: its writer has ended, but somebody may hold the pipe open."""
        for _ in range(max(1, limit // CHUNK)):
            if not self.read():
                return

    def pause(self) -> None:
        """Read no more."""
        if not self.is_done:
            self.is_done = True
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Close the pipe."""
        self.pause()
        self._pipe.close()


class PipeWriter:
    """Writes at once what the pipe takes, and the rest as it takes more.

    `on_stuck` is called when the other side has taken nothing for `patience` seconds or too much is unsent, and
    `on_broken` when it has closed its end; each at most once.
    """

    def __init__(
        self, pipe: FileIO, patience: float, on_stuck: Callable[[], None], on_broken: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._patience = patience
        self._on_stuck = on_stuck
        self._on_broken = on_broken
        self._unsent: deque[memoryview] = deque()
        self._size = 0
        self._taken = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        os.set_blocking(self._descriptor, False)

    def write(self, data: bytes) -> None:
        """Send, now or later. After the end this does nothing: whoever waits has been told by then."""
        if self._is_closed:
            return
        if not self._unsent:
            sent = self._send(data)
            if sent == len(data) or self._is_closed:
                return
            self._unsent.append(memoryview(data)[sent:])
            self._size = len(data) - sent
            self._loop.add_writer(self._descriptor, self._send_more)
            self._watch()
            return
        self._unsent.append(memoryview(data))
        self._size += len(data)
        if self._size > UNSENT_LIMIT:
            self.close()
            self._on_stuck()

    def close(self) -> None:
        """Close the pipe; what is unsent is lost."""
        if not self._is_closed:
            self._is_closed = True
            self._rest()
            self._unsent.clear()
            self._pipe.close()

    def _send(self, data: bytes | memoryview) -> int:
        try:
            sent = os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            self._on_broken()
            return 0
        self._taken += sent
        return sent

    def _send_more(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            sent = self._send(first)
            if self._is_closed:
                return
            self._size -= sent
            if sent < len(first):
                self._unsent[0] = first[sent:]
                return
            self._unsent.popleft()
        self._rest()

    def _rest(self) -> None:
        self._loop.remove_writer(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        self._timer = self._loop.call_later(self._patience, self._check, self._taken)

    def _check(self, taken_then: int) -> None:
        if self._taken > taken_then:
            self._watch()
            return
        self.close()
        self._on_stuck()
