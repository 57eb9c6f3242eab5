"""A transport that sends what belongs together in one piece.

uvicorn writes the head of an answer and its body apart. On loopback each write runs the whole way through the system,
the client's end included, and is the dearest thing that happens to a small answer. Here writes are held until the
answer is complete, or until the turn of the loop is over, which is soon enough for streams.

Above: `http` puts it between uvicorn and the socket. It must never change the order of bytes, nor keep any back.
"""

import asyncio
from typing import Any

LARGE = 65_536


class Cork(asyncio.Transport):
    """Holds writes back until `flush`, which comes at the end of the turn at the latest."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hold this for the end of the turn."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)

    def flush(self) -> None:
        """Send what is held."""
        if not self._held:
            return
        held, self._held = self._held, []
        if len(held) > 1 and sum(map(len, held)) > LARGE:
            self._transport.writelines(held)  # joining would copy more than a second write costs
        else:
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        """Send what is held, then close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what is held is lost, as it would be anywhere on the way."""
        self._held.clear()
        self._transport.abort()

    def write_eof(self) -> None:
        """Send what is held, then close the way out."""
        self.flush()
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        """Whether the way out can be closed alone."""
        return self._transport.can_write_eof()

    def is_closing(self) -> bool:
        """Whether the connection is ending."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Take nothing more in."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take things in again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the transport knows of itself."""
        return self._transport.get_extra_info(name, default)
