"""One answer on the wire: its head leaves in one piece with its body, or at once where the body has no known end.

uvicorn writes the two apart and looks at every header twice. On loopback each write runs the whole way through the
system, the client's end included, and is the dearest thing that happens to a small answer.

Above: `http` makes one per request. Below: uvicorn's cycle, which also reads the body of the request. It must never
send a header that could be taken for two, nor more or less than the length that it announced.
"""

from uvicorn._types import ASGISendEvent, HTTPResponseBodyEvent, HTTPResponseStartEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

LARGE = 65_536
"""Bytes of a body from which on copying it costs more than a second write."""
_NO_BODY = frozenset({204, 304})
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\r\n"})


class Answer(RequestResponseCycle):
    """A request that is being answered."""

    _head = b""

    async def send(self, message: ASGISendEvent) -> None:
        """Take one message of the answer."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._send_body(message)
        elif message["type"] == "http.response.start" and not self.response_started:
            self._start(message)
        else:
            raise RuntimeError(f"The message {message['type']!r} does not belong here.")

    def _start(self, message: HTTPResponseStartEvent) -> None:
        status, headers = message["status"], [*self.default_headers, *message.get("headers", ())]
        lines = [STATUS_LINE[status]]
        for name, value in headers:
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive = False
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in _NO_BODY:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if not len(lines) == head.count(b"\n") == head.count(b"\r") or head.translate(None, _CONTROLS) != head:
            raise RuntimeError("A header has characters that no header can have.")
        self.response_started = True
        self.waiting_for_100_continue = False
        self._head = head + b"\r\n"
        if self.chunked_encoding:
            self._write(b"")

    def _send_body(self, message: HTTPResponseBodyEvent) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body, self.expected_content_length = b"", 0
        elif self.chunked_encoding:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = body if more else body + b"0\r\n\r\n"
        else:
            self.expected_content_length -= len(body)
        if self.expected_content_length < 0 or (self.expected_content_length and not more):
            raise RuntimeError("The body is not as long as its Content-Length says.")
        self._write(body)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head and len(data) > LARGE:
            self.transport.write(head)
            self.transport.write(data)
        elif head or data:
            self.transport.write(head + data)
