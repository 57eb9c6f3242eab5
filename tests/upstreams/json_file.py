"""Offers the contents of a JSON file, which it reads again for every request.

The first argument is the file. Its members are `tools`, `prompts`, `resources`, `templates`, `instructions` and
`contents`. A tool answers with its name, a prompt with one message, and a resource with its member of `contents` or a
fixed text.

"""

import json
import sys
from pathlib import Path

from upstreams.protocol import INITIALIZED, Message, messages, refuse, reply, text_reply

CAPABILITIES: Message = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
}
MEMBERS = {"templates": "resourceTemplates"}


def serve(file: Path) -> None:
    """Answer requests until the input ends."""
    for request in messages():
        method = request.get("method", "")
        offered: Message = json.loads(file.read_text(encoding="utf-8"))
        if "id" not in request:
            continue
        if method == "initialize":
            introduction = {key: value for key, value in offered.items() if key in ("instructions", "serverInfo")}
            reply(request, {**INITIALIZED, "capabilities": CAPABILITIES, **introduction})
        elif method in LISTS:
            name = LISTS[method]
            reply(request, {MEMBERS.get(name, name): offered.get(name, [])})
        elif method == "tools/call":
            text_reply(request, f"called {request['params']['name']}")
        elif method == "prompts/get":
            reply(request, {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello."}}]})
        elif method == "resources/read":
            uri = request["params"]["uri"]
            content: Message = offered.get("contents", {}).get(uri, {"text": "content"})
            reply(request, {"contents": [{"uri": uri, **content}]})
        else:
            refuse(request)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
