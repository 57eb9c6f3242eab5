"""A minimal MCP server: one JSON message per line, spec 2025-11-25, tools only.

Unknown requests are answered with an error and never end the server.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Arguments = Mapping[str, str]

VERSION = "2025-11-25"


class DemoRefusal(Exception):
    """An error message for the model."""


@dataclass(frozen=True, slots=True)
class DemoTools:
    """A tool: name, description, string arguments with their descriptions, and handler."""

    name: str
    description: str
    run: Callable[[Arguments], str]
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    optional: frozenset[str] = frozenset()
    read_only: bool = False

    def shape(self) -> dict[str, Any]:
        """Return the tool as in `tools/list`."""
        properties = {name: {"type": "string", "description": words} for name, words in self.arguments.items()}
        required = [name for name in self.arguments if name not in self.optional]
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": {"type": "object", "properties": properties, "required": required},
            "annotations": {"readOnlyHint": self.read_only},
        }


def serve(name: str, offers: Sequence[DemoTools]) -> None:
    """Answer requests until standard input ends."""
    by_name = {offer.name: offer for offer in offers}
    for line in sys.stdin.buffer:
        asked: dict[str, Any] = json.loads(line)
        if "id" in asked:
            _write({"jsonrpc": "2.0", "id": asked["id"], **_answer(name, by_name, asked)})


def _answer(name: str, offers: Mapping[str, DemoTools], asked: Mapping[str, Any]) -> dict[str, Any]:
    method = asked.get("method")
    given: dict[str, Any] = asked.get("params") or {}
    if method == "initialize":
        server_info = {"name": name, "title": f"Kestrel {name}", "version": "1.0"}
        return {"result": {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": server_info}}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": [offer.shape() for offer in offers.values()]}}
    if method == "tools/call" and given.get("name") in offers:
        return {"result": _call(offers[given["name"]], given.get("arguments") or {})}
    return {"error": {"code": -32601, "message": f"There is no {method} here."}}


def _call(offer: DemoTools, arguments: Arguments) -> dict[str, Any]:
    missing = [name for name in offer.arguments if name not in arguments and name not in offer.optional]
    try:
        if missing:
            raise DemoRefusal(f"{', '.join(missing)} is missing.")
        return {"content": [{"type": "text", "text": offer.run(arguments)}], "isError": False}
    except DemoRefusal as refused:
        return {"content": [{"type": "text", "text": str(refused)}], "isError": True}


def _write(message: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()
