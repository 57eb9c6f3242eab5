"""A modern MCP server that requires a sign-in, with the real authorization server that it trusts."""

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from integration.upstream.http.harness import DISCOVERED
from integration.upstream.oauth.authority import Authority
from toolcrib.model.json import JsonObject

TOOLS: JsonObject = {"tools": [{"name": "echo", "inputSchema": {"type": "object", "properties": {}}}]}


class ProtectedServer(Authority):
    """Answers requests that carry a valid token; `calls` counts the tool calls."""

    calls: int = 0

    async def _resource(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        if not body:
            await Response(status_code=405)(scope, receive, send)
            return
        message = orjson.loads(body)
        match message["method"]:
            case "server/discover":
                value: JsonObject = DISCOVERED
            case "tools/list":
                value = TOOLS
            case "subscriptions/listen":
                error = {"code": -32601, "message": "Method not found"}
                body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
                await Response(body, media_type="application/json")(scope, receive, send)
                return
            case _:
                self.calls += 1
                value = {"content": [{"type": "text", "text": "for members"}]}
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value})
        await Response(body, media_type="application/json")(scope, receive, send)
