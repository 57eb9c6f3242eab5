"""The redirect URI of a sign-in: a local listener that accepts one browser's response.

It reads only the request line and headers and responds with fixed text, because the issuer's response is untrusted.
`take` decides whether a response belongs to the sign-in. Unrecognized responses change nothing, so no page can end a
sign-in by guessing.

Must never listen on anything but loopback.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import anyio.abc

PATH = "/callback"

_ADDRESS = "127.0.0.1"
_LONGEST = 16 * 1024
_SECONDS = 10.0
_FAREWELL = 2.0
Arrival = Literal["code", "error", "foreign"]
"""What a browser delivered: a code, an error of the issuer, or nothing that belongs to this sign-in."""

Take = Callable[[str], Arrival]
"""Takes the query of a redirect and classifies it."""

_PAGES: dict[Arrival, tuple[str, str]] = {
    "code": ("200 OK", "Toolcrib received the answer. Close this page; Toolcrib shows whether the sign-in succeeded."),
    "error": ("200 OK", "The sign-in was denied. You are not signed in. Close this page and return to Toolcrib."),
    "foreign": ("400 Bad Request", "This page belongs to no sign-in that is in progress."),
}
_UNKNOWN_PAGE = ("404 Not Found", _PAGES["foreign"][1])


class ReturnAddress:
    """A bound port. It only serves while a response is awaited; earlier connections queue."""

    def __init__(self, listener: anyio.abc.Listener[anyio.abc.SocketStream]) -> None:
        self._listener = listener
        self._host = f"{_ADDRESS}:{listener.extra(anyio.abc.SocketAttribute.local_port)}"

    @property
    def uri(self) -> str:
        """The exact redirect URI."""
        return f"http://{self._host}{PATH}"

    async def serve(self, take: Take, answered: anyio.Event) -> None:
        """Serve requests until `answered` is set."""

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
    """Bind a local port for the block; 0 means any. Raises `OSError`."""
    async with await anyio.create_tcp_listener(local_host=_ADDRESS, local_port=port) as listener:
        yield ReturnAddress(listener)


async def _answer(stream: anyio.abc.SocketStream, host: str, take: Take) -> None:
    try:
        query = _query(await _head(stream), host)
        page = _page(*(_PAGES[take(query)] if query is not None else _UNKNOWN_PAGE))
        # Accepting the response cancels this task, but the browser should still get its page.
        with anyio.move_on_after(_FAREWELL, shield=True):
            await stream.send(page)
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass  # the browser disconnected; its response was already taken


async def _head(stream: anyio.abc.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) <= _LONGEST:
        head += await stream.receive(4096)
    return head


def _query(head: bytes, host: str) -> str | None:
    """Return the query of a request to the redirect URI, or None for any other request."""
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
