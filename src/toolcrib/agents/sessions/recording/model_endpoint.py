"""A model's HTTP API on loopback for one runtime: passes requests on and records them, or answers from a recording.

A runtime is pointed here with `ANTHROPIC_BASE_URL`. The path has a random part, so that no other program on this
machine can use it.

Must never pass a request on while it replays.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter
from typing import Any, Final, Protocol

import anyio
import httpx2
import orjson
import uvicorn

from toolcrib.agents.sessions.recording.model_answers import message_of_body, message_of_stream, stream_of_message
from toolcrib.base.network.web import Web
from toolcrib.model.json import Json, JsonObject, is_object

logger = logging.getLogger(__name__)

DEFAULT_MODEL_URL: Final = "https://api.anthropic.com"
MESSAGES: Final = "/v1/messages"
_COUNT: Final = "/v1/messages/count_tokens"
_LARGEST: Final = 256 * 1_048_576
_TIMEOUT: Final = httpx2.Timeout(30, read=900)
_NOT_PASSED_ON: Final = frozenset(
    {b"host", b"content-length", b"connection", b"accept-encoding", b"transfer-encoding", b"keep-alive"}
)
_NOT_RETURNED: Final = frozenset(
    {"content-length", "transfer-encoding", "connection", "content-encoding", "keep-alive"}
)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class ModelTraffic(Protocol):
    """What the endpoint does with requests."""

    def answer(self, request: JsonObject) -> JsonObject | None:
        """Return a recorded answer; None passes the request on. Raises `ModelRefusal`."""
        ...

    def answered(self, request: JsonObject, message: JsonObject, duration_ms: float) -> None:
        """Take note of an answer that was passed on."""
        ...


class ModelRefusal(Exception):
    """The endpoint does not answer a request; the runtime gets the message as an error of the API."""


@asynccontextmanager
async def model_endpoint(traffic: ModelTraffic, upstream: str | None, web: Web) -> AsyncGenerator[str]:
    """Yield the URL of an endpoint. Without `upstream`, requests that `traffic` does not answer are refused."""
    token = secrets.token_urlsafe(24)
    app = _Endpoint(traffic, f"/{token}", upstream.rstrip("/") if upstream is not None else None, web)
    config = uvicorn.Config(app, log_config=None, lifespan="off", access_log=False, ws="none", timeout_keep_alive=60)
    server = _Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]), name="model-endpoint")
        try:
            while not server.started:  # noqa: ASYNC110 uvicorn has no event for it
                await anyio.sleep(0.005)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/{token}"
        finally:
            # A cancelled server would leave its closed socket in the event loop.
            server.should_exit = server.force_exit = True
            with anyio.CancelScope(shield=True):
                await asyncio.wait([serving])


class _Server(uvicorn.Server):
    """A server that leaves signals to the crib."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Endpoint:
    """The ASGI application."""

    def __init__(self, traffic: ModelTraffic, prefix: str, upstream: str | None, web: Web) -> None:
        self._traffic = traffic
        self._prefix = prefix
        self._upstream = upstream
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if scope["type"] != "http" or not path.startswith(f"{self._prefix}/"):
            await _send_json(send, 404, _error("not_found_error", "There is nothing here."))
            return
        path = path.removeprefix(self._prefix)
        body = await _read(receive)
        request = _parse_object(body)
        try:
            recorded = self._traffic.answer(request) if path == MESSAGES else None
        except ModelRefusal as refusal:
            await _send_json(send, 400, _error("invalid_request_error", str(refusal)))
            return
        if recorded is not None:
            await _send_message(send, recorded, streams=request.get("stream") is True)
        elif self._upstream is None:
            await _send_json(send, 200, _other_answer(path, body))
        else:
            await self._pass_on(scope, path, body, request, send)

    async def _pass_on(self, scope: Scope, path: str, body: bytes, request: JsonObject, send: Send) -> None:
        query = scope["query_string"].decode("ascii")
        url = f"{self._upstream}{path}" + (f"?{query}" if query else "")
        headers = {
            key.decode("latin-1"): value.decode("latin-1")
            for key, value in scope["headers"]
            if key not in _NOT_PASSED_ON
        }
        started, received, status = perf_counter(), bytearray(), 502
        has_begun = False
        try:
            async with (
                self._web.client(local_allowed=True, timeout=_TIMEOUT, max_body=_LARGEST) as client,
                client.stream(scope["method"], url, headers=headers, content=body) as response,
            ):
                status = response.status_code
                await _begin(send, status, _returned_headers(response.headers))
                has_begun = True
                async for piece in response.aiter_raw():
                    received += piece
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (httpx2.HTTPError, OSError) as error:
            logger.info("A request to the model failed: %s", error)
            if not has_begun:
                await _send_json(send, 502, _error("api_error", f"The model cannot be reached: {error}"))
            return
        await send({"type": "http.response.body", "body": b""})
        if path == MESSAGES and status == 200:
            self._note(request, bytes(received), round((perf_counter() - started) * 1000, 3))

    def _note(self, request: JsonObject, body: bytes, duration_ms: float) -> None:
        message = message_of_stream(body) if request.get("stream") is True else message_of_body(body)
        if message is not None:
            self._traffic.answered(request, message, duration_ms)


def _other_answer(path: str, body: bytes) -> JsonObject:
    """Return an answer to what runtimes request besides messages."""
    if path == _COUNT:
        return {"input_tokens": max(1, len(body) // 4)}
    return {"data": [], "has_more": False}


def _parse_object(body: bytes) -> JsonObject:
    try:
        value: Json = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        value = {}
    return value if is_object(value) else {}


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > _LARGEST:
            return bytes(body)


def _returned_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(key.encode(), value.encode()) for key, value in headers.items() if key.lower() not in _NOT_RETURNED]


async def _begin(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def _send_message(send: Send, message: JsonObject, *, streams: bool) -> None:
    if not streams:
        await _send_json(send, 200, message)
        return
    await _begin(send, 200, [(b"content-type", b"text/event-stream")])
    for piece in stream_of_message(message):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _send_json(send: Send, status: int, value: JsonObject) -> None:
    await _begin(send, status, [(b"content-type", b"application/json")])
    with contextlib.suppress(OSError):
        await send({"type": "http.response.body", "body": orjson.dumps(value)})


def _error(kind: str, message: str) -> JsonObject:
    return {"type": "error", "error": {"type": kind, "message": message}}
