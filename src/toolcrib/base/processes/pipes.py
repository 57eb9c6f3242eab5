"""Non-blocking reads and writes on a child's pipes: one system call per read or write.

asyncio's transports cost a multiple of this per message, and hide how much is unsent. Must never block, or let unsent
data grow without limit.
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
    """Passes on the data of a pipe until it ends."""

    def __init__(self, pipe: FileIO, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._on_data = on_data
        self._on_end = on_end
        self.is_done = False
        """Whether reading has finished: the pipe has ended, or was paused for good."""
        self._is_held = False
        os.set_blocking(self._descriptor, False)
        self._loop.add_reader(self._descriptor, self.read)

    def read(self) -> bool:
        """Read one chunk. Returns False if there was none."""
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
        """Read what is in the pipe now: its writer has exited, but another process may hold the pipe open."""
        for _ in range(max(1, limit // CHUNK)):
            if not self.read():
                return

    def hold(self) -> None:
        """Stop reading until `release`: the full pipe blocks the writer."""
        if not self.is_done and not self._is_held:
            self._is_held = True
            self._loop.remove_reader(self._descriptor)

    def release(self) -> None:
        """Resume reading."""
        if not self.is_done and self._is_held:
            self._is_held = False
            self._loop.add_reader(self._descriptor, self.read)

    def pause(self) -> None:
        """Stop reading for good."""
        if not self.is_done:
            self.is_done = True
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Close the pipe."""
        self.pause()
        self._pipe.close()


class PipeWriter:
    """Writes as much as the pipe accepts, and the rest when it accepts more.

    `on_stuck` is called if the reader has accepted nothing for `patience` seconds or too much is unsent, `on_broken` if
    it has closed its end; each at most once.
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
        """Send data now or later. Does nothing after `close`: callers have been notified by then."""
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
        """Close the pipe; unsent data is lost."""
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
