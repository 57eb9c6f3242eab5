"""Bodies of requests to `/mcp`: read whole, and replayed for the SDK."""

from starlette.types import Message, Receive

from toolcrib.model.jsonrpc import RpcError
from toolcrib.model.protocol import PARSE_ERROR


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request. Raises `RpcError` if the client disconnects before its end."""
    body, more = b"", True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":  # a partial body must never be taken for a whole one
            raise RpcError(PARSE_ERROR, "The request ended before its body was complete.")
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return body


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays a body that was already read, then continues with the original."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed
