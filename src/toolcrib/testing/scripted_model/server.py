"""The scripted model as a server: an Anthropic-compatible Messages API on loopback.

Point a coding agent at `ScriptedModel.url`. Clients may disconnect at any time. Closing ends all threads and
connections, however long a script wants to wait.
"""

import json
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.testing.scripted_model.reply import ModelReply, named_tools, reply
from toolcrib.testing.scripted_model.script import Refusal, ScriptPace, Scripts


class StreamEvent(NamedTuple):
    """One event: its kind and its data, which repeats the kind."""

    kind: str
    data: JsonObject

    def encode(self) -> bytes:
        """Return the event in `text/event-stream` format."""
        return f"event: {self.kind}\ndata: {json.dumps(self.data)}\n\n".encode()


def stream_events(message: JsonObject, chunk: int) -> Iterator[StreamEvent]:
    """Yield the events of a message, with deltas of `chunk` characters."""
    usage = {**message["usage"], "output_tokens": 1}
    yield _event("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
    for index, block in enumerate(message["content"]):
        empty, deltas = _pieces(block, chunk)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield _event("message_delta", delta=stop, usage=message["usage"])
    yield _event("message_stop")


def _event(kind: str, **fields: object) -> StreamEvent:
    return StreamEvent(kind, {"type": kind, **fields})


def _pieces(block: JsonObject, chunk: int) -> tuple[JsonObject, list[JsonObject]]:
    """Return the initial block and its deltas."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, _split("text_delta", "text", text, chunk)
        case {"type": "tool_use", "input": arguments}:
            return {**block, "input": {}}, _split("input_json_delta", "partial_json", json.dumps(arguments), chunk)
        case {"type": "thinking", "thinking": str(thought), "signature": str(signature)}:
            signed: JsonObject = {"type": "signature_delta", "signature": signature}
            spoken = _split("thinking_delta", "thinking", thought, chunk)
            return {**block, "thinking": "", "signature": ""}, [*spoken, signed]
        case _:
            return block, []


def _split(kind: str, field: str, whole: str, chunk: int) -> list[JsonObject]:
    return [{"type": kind, field: whole[at : at + chunk]} for at in range(0, len(whole), chunk)]


logger = logging.getLogger(__name__)

BODY_BYTES = 256 * 1_048_576
"""Maximum size of a request body in bytes."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A recorded request. `background`: made by the runtime itself, without a script."""

    method: str
    path: str
    at: float
    kind: Literal["main", "background"] = "background"
    script: str | None = None
    step: int = 0
    model: str | None = None
    tools: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()


class ScriptedModel:
    """`with ScriptedModel({"s": [step, …]}) as model:`, then point `ANTHROPIC_BASE_URL` at `model.url`.

    `scripts` may be added at any time. `requests` records all requests in order; `bodies` those to the Messages API.
    Raises `ConfigError` (`script.invalid`) for invalid scripts.
    """

    def __init__(self, scripts: Mapping[str, Json] | None = None, *, port: int = 0) -> None:
        self.scripts = Scripts(scripts)
        self.requests: list[ModelRequest] = []
        self.bodies: list[JsonObject] = []
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The base URL while open."""
        if self._server is None:
            raise RuntimeError("The scripted model is not open: use `with`.")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def background(self) -> list[ModelRequest]:
        """The requests made by runtimes themselves."""
        return [request for request in self.requests if request.kind == "background"]

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", self._port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="scripted-model")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.close()
            self._thread.join()
            self._server = self._thread = None

    def answer(self, path: str, body: JsonObject) -> ModelReply:
        """Record a request to the Messages API and return the reply."""
        answered = reply(self.scripts, body)
        model: Json = body.get("model")
        self.bodies.append(body)
        self.requests.append(
            ModelRequest(
                "POST",
                path,
                time.time(),
                "background" if answered.place.script is None else "main",
                answered.place.script,
                answered.place.step,
                model if isinstance(model, str) else None,
                named_tools(body),
                named_tools(body, deferred=True),
            )
        )
        return answered


class _Server(socketserver.ThreadingTCPServer):
    """One thread per connection; closing ends all of them."""

    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], model: ScriptedModel) -> None:
        self.closing = threading.Event()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, partial(_Handler, model, self.closing))

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def close(self) -> None:
        """Stop accepting connections, close open ones, and wait for their threads."""
        self.shutdown()
        self.closing.set()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.error("A request to the scripted model failed", exc_info=sys.exception())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, model: ScriptedModel, closing: threading.Event, *connection: Any) -> None:
        self._model = model
        self._closing = closing
        super().__init__(*connection)

    def handle(self) -> None:
        with suppress(ConnectionError):  # some tests disconnect in the middle
            super().handle()

    def finish(self) -> None:
        with suppress(ConnectionError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)

    def do_GET(self) -> None:
        self._note()
        self._send_json({"data": [], "has_more": False} if self.path.startswith("/v1/models") else {})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self._body()
        if isinstance(body, Refusal):
            self.close_connection = True
            self._note()
            return self._refuse(body)
        path = urlsplit(self.path).path
        if path == "/v1/messages":
            return self._answer(self._model.answer(self.path, body), streams=body.get("stream") is True)
        self._note()
        if path == "/v1/messages/count_tokens":
            return self._send_json({"input_tokens": max(1, len(json.dumps(body)) // 4)})
        return self._refuse(Refusal(404, "not_found_error", f"There is no {path} here."))

    def _note(self) -> None:
        self._model.requests.append(ModelRequest(self.command, self.path, time.time()))

    def _body(self) -> JsonObject | Refusal:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES:
            return Refusal(400, "invalid_request_error", "The length of the body is missing or too large.")
        try:
            body: Json = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        return body if is_object(body) else Refusal(400, "invalid_request_error", "The body is not a JSON object.")

    def _answer(self, answered: ModelReply, *, streams: bool) -> None:
        step = answered.step
        if self._wait_ms(step.pace.delay_ms):
            return
        if step.refusal is not None:
            self._refuse(step.refusal)
        elif answered.message is None:
            self._wait_ms((step.hang_s or 0) * 1000)
            self.close_connection = True
        elif streams:
            self._send_stream(answered.message, step.pace)
        elif step.pace.cut:
            self._send_json(answered.message, missing=1)
        else:
            self._send_json(answered.message)

    def _wait_ms(self, milliseconds: float) -> bool:
        """Wait, at most until the model is closed; return whether it was closed."""
        if milliseconds and self._closing.wait(milliseconds / 1000):
            self.close_connection = True
        return self._closing.is_set()

    def _refuse(self, refusal: Refusal) -> None:
        error = {"type": refusal.error, "message": refusal.message}
        self._send_json({"type": "error", "error": error}, refusal.status)

    def _send_json(self, value: JsonObject, status: int = 200, *, missing: int = 0) -> None:
        """Send JSON; with `missing`, close the connection before the last bytes."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) - missing])
        if missing:
            self.close_connection = True

    def _send_stream(self, message: JsonObject, pace: ScriptPace) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in stream_events(message, pace.chunk):
            if pace.cut and event.kind == "content_block_stop":
                self.close_connection = True
                return
            data = event.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            if event.kind == "content_block_delta" and self._wait_ms(pace.chunk_delay_ms):
                return
        self.wfile.write(b"0\r\n\r\n")
