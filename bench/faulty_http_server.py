"""An HTTP server with one faulty MCP server per path: `python -m bench.faulty_http_server`.

Each path is a modern MCP server with the tool `echo`; discovery and listing work. A call to `/resets` ends the
connection without an answer, `/cuts` ends it in the middle of one, `/hangs` never answers, and `/refuses` requires a
sign-in. The program prints one ready line, as `serve --json` does.
"""

import asyncio
import json
from typing import Any

from bench.light_upstream import INFO, KEPT
from bench.tool_schemas import ECHO_SCHEMA, Shape

DISCOVERED: Shape = {
    **KEPT,
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
}
LISTED: Shape = {**KEPT, "tools": [{"name": "echo", "description": "Echo the text.", "inputSchema": ECHO_SCHEMA}]}
CUT = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n"
MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def answer_of(request: dict[str, Any]) -> bytes:
    """Return the whole answer to a request that is not a call."""
    answer: Shape = {"jsonrpc": "2.0", "id": request.get("id")}
    match request["method"]:
        case "server/discover":
            answer["result"] = DISCOVERED
        case "tools/list":
            answer["result"] = LISTED
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def misbehave(path: str, writer: asyncio.StreamWriter) -> None:
    """Answer a call in the way of its path."""
    match path:
        case "/resets":
            writer.transport.abort()
        case "/cuts":
            writer.write(CUT)
            await writer.drain()
            writer.transport.abort()
        case "/refuses":
            writer.write(REFUSED)
        case _:
            pass


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Handle one connection, request by request."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            verb, path, _ = head.split(" ", 2)
            body = await reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0] or 0))
            if verb != "post":
                writer.write(MISSING)
            elif (request := json.loads(body))["method"] == "tools/call":
                await misbehave(path, writer)
            else:
                writer.write(answer_of(request))
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Listen, print the ready line, and serve."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    print(json.dumps({"event": "ready", "mcp": url}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
