"""Shared code of these servers: reading and writing messages, and the legacy handshake.

The servers run as modules (`python -m upstreams.exits_early call`) and use only the standard library. Each module
names its ways to misbehave. Whatever a test needs to know, such as process ids, is the result of a tool.

"""

import json
import sys
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

INITIALIZED: Message = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "upstream", "version": "1"},
    "instructions": "Be kind.",
}


def write(data: bytes) -> None:
    """Write bytes and flush."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message: Message) -> None:
    """Send a message as a line."""
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def reply(request: Message, result: object) -> None:
    """Answer a request."""
    send({"id": request["id"], "result": result})


def text_reply(request: Message, text: str) -> None:
    """Answer a call with a text."""
    reply(request, {"content": [{"type": "text", "text": text}]})


def refuse(request: Message, code: int = -32601, message: str = "Method not found") -> None:
    """Answer a request with an error."""
    send({"id": request["id"], "error": {"code": code, "message": message}})


def write_error(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def messages() -> Iterator[Message]:
    """Yield all messages of the client."""
    for line in sys.stdin.buffer:
        yield json.loads(line)


def requests() -> Iterator[Message]:
    """Do the handshake, and yield the client's requests after it."""
    for message in messages():
        if message.get("method") == "server/discover":
            refuse(message)
        elif message.get("method") == "initialize":
            reply(message, INITIALIZED)
        elif "id" in message:
            yield message


def arguments(request: Message) -> Message:
    """Return the arguments of a call."""
    return request["params"].get("arguments", {})
