"""Send requests to an ASGI application directly, with exactly the given headers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import anyio
import orjson
from starlette.types import ASGIApp, Message, Scope

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def json(self) -> dict[str, object]:
        """Return the body as JSON."""
        return orjson.loads(self.body)

    @property
    def code(self) -> object:
        """The code of a problem."""
        return self.json()["code"]

    def header(self, name: str) -> str | None:
        """Return the value of a header, None if it is absent; a repeated one fails."""
        values = [value for each, value in self.headers if each == name]
        assert len(values) <= 1
        return values[0] if values else None


def scope_of(method: str, target: str, headers: Iterable[tuple[str, str]], client: str = "127.0.0.1") -> Scope:
    """Return the scope of a request."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": (client, 50000),
        "server": ("127.0.0.1", 4242),
    }


async def request(
    app: ASGIApp,
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]] = (),
    body: Sequence[bytes] = (b"",),
    client: str = "127.0.0.1",
) -> Response:
    """Send one request and return its response."""
    pieces: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": number < len(body)} for number, piece in enumerate(body, 1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        if pieces:
            return pieces.pop(0)
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    with anyio.fail_after(5):
        await app(scope_of(method, target, headers, client), receive, send)
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1, "exactly one response"
    received = [(name.decode(), value.decode()) for name, value in starts[0]["headers"]]
    return Response(starts[0]["status"], received, b"".join(message.get("body", b"") for message in sent))
