"""What the small servers of this folder have in common: how to say a message, hear one and do the old handshake.

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
    """Write bytes to the output, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(message: Message) -> None:
    """Say a message, as a line."""
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def reply(request: Message, result: object) -> None:
    """Answer a request."""
    say({"id": request["id"], "result": result})


def text_reply(request: Message, text: str) -> None:
    """Answer a call with one text."""
    reply(request, {"content": [{"type": "text", "text": text}]})


def refuse(request: Message, code: int = -32601, message: str = "Method not found") -> None:
    """Answer a request with an error."""
    say({"id": request["id"], "error": {"code": code, "message": message}})


def moan(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def messages() -> Iterator[Message]:
    """Everything the client says."""
    for line in sys.stdin.buffer:
        yield json.loads(line)


def requests() -> Iterator[Message]:
    """The requests of the client after the handshake, which is done here."""
    for message in messages():
        if message.get("method") == "server/discover":
            refuse(message)
        elif message.get("method") == "initialize":
            reply(message, INITIALIZED)
        elif "id" in message:
            yield message


def arguments(request: Message) -> Message:
    """The arguments of a call."""
    return request["params"].get("arguments", {})
