"""The return address of a sign-in: a listener on this machine that takes one browser's answer.

It reads a request line and nothing more, and what it shows is fixed text: the answer of an issuer is data of another
party. Whose answer it is, is told by `take`; what is not recognised changes nothing, so that no page can end a sign-in
by guessing.

Above: `signin`. Below: only sockets. It must never listen on anything but loopback.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc

PATH = "/callback"

_ADDRESS = "127.0.0.1"
_LONGEST = 16 * 1024
_SECONDS = 10.0
_FAREWELL = 2.0
_DONE = "You are signed in as far as this page can tell. Close it and go back to Toolcrib."
_NOT_OURS = "This page belongs to no sign-in that is under way."

Take = Callable[[str], bool]
"""Takes the query of an answer; says whether it belongs to the sign-in."""


class ReturnAddress:
    """A bound port. It is served only while somebody waits for the answer; a browser that is early waits too."""

    def __init__(self, listener: anyio.abc.Listener[anyio.abc.SocketStream]) -> None:
        self._listener = listener
        self._host = f"{_ADDRESS}:{listener.extra(anyio.abc.SocketAttribute.local_port)}"

    @property
    def uri(self) -> str:
        """What the issuer sends the browser to, exactly."""
        return f"http://{self._host}{PATH}"

    async def serve(self, take: Take, answered: anyio.Event) -> None:
        """Take answers until there is one."""

        async def serve(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                with anyio.move_on_after(_SECONDS):
                    await _answer(stream, self._host, take)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listener.serve, serve)
            await answered.wait()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def return_address(port: int) -> AsyncGenerator[ReturnAddress]:
    """Bind a port of this machine while the block runs; 0 means any. Raises `OSError`."""
    async with await anyio.create_tcp_listener(local_host=_ADDRESS, local_port=port) as listener:
        yield ReturnAddress(listener)


async def _answer(stream: anyio.abc.SocketStream, host: str, take: Take) -> None:
    try:
        query = _query(await _head(stream), host)
        if query is None:
            page = _page("404 Not Found", _NOT_OURS)
        else:
            page = _page("200 OK", _DONE) if take(query) else _page("400 Bad Request", _NOT_OURS)
        # The answer ends the waiting, and with it this task; the person at the browser should still be told.
        with anyio.move_on_after(_FAREWELL, shield=True):
            await stream.send(page)
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass  # the browser left; what it brought was taken


async def _head(stream: anyio.abc.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) <= _LONGEST:
        head += await stream.receive(4096)
    return head


def _query(head: bytes, host: str) -> str | None:
    """The query of a request to the return address; None for any other request."""
    request, *fields = head.decode("latin-1").split("\r\n")
    hosts = [field.partition(":")[2].strip() for field in fields if field.lower().startswith("host:")]
    method, _, rest = request.partition(" ")
    target = rest.rpartition(" ")[0]
    path, _, query = target.partition("?")
    return query if method == "GET" and path == PATH and hosts == [host] else None


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>Toolcrib</title><p>{text}".encode()
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body
