"""A legacy server with tools, prompts and resources. The first argument selects its behaviour.

`plain`: its own tools, a prompt, a resource and a template. `many N`: N tools in pages of 500. `crowd N`: its own tools
and N more. `endless`: every page has a next page. `repeats`: the second page is its own next page. `flawed`: valid
tools among invalid ones. `leaves STEP`: exits at a request. `stays silent STEP`: never answers a request.

Tools: `echo` returns its arguments; `pid` returns its process id; `grow` adds tools and notifies, once per tool; `exit`
exits; `sleep` never answers; `deafen` stops answering for good; `log` sends two log messages before it answers;
`update` notifies that a resource changed; `ask` asks the client and returns the answer; `abilities` returns the
client's capabilities, its notifications and the server's token; `guess` exists only for clients that can sample.

"""

import os
import sys
from collections.abc import Iterator

from upstreams.protocol import Message, arguments, messages, refuse, reply, send, text_reply, write_error

SCHEMA: Message = {"type": "object", "properties": {"text": {"type": "string"}}}
ABILITIES: Message = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
}
NAMES = ("echo", "pid", "grow", "exit", "sleep", "deafen", "log", "update", "ask", "abilities")
FIXED: dict[str, Message] = {
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "resources/list": {"resources": [{"uri": "note://one", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note://{name}", "name": "note"}]},
    "ping": {},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "logging/setLevel": {},
}


def deep(levels: int) -> Message:
    """Return a schema with this many levels."""
    schema: Message = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


FLAWED: list[object] = [
    {"name": "good", "description": "fine", "inputSchema": SCHEMA, "future": [1], "_meta": {"a": 1}},
    "no object",
    {"description": "no name"},
    {"name": ""},
    {"name": 3},
    {"name": "good", "description": "again"},
    {"name": "no schema"},
    {"name": "no properties", "inputSchema": {"type": "object"}},
    {"name": "odd schema", "inputSchema": "text"},
    {"name": "odd type", "inputSchema": {"type": "string"}},
    {"name": "deep", "inputSchema": deep(300)},
    {"name": "bulky", "inputSchema": {**SCHEMA, "description": "x" * 1_100_000}},
    {"name": "wordy", "description": "w" * 70_000, "inputSchema": SCHEMA},
    {"name": "remote", "inputSchema": {**SCHEMA, "$ref": "http://127.0.0.1:9/schema.json"}},
    {"name": "x" * 2_000, "inputSchema": SCHEMA},
    {"name": "last", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True, "destructiveHint": True}},
]


class Server:
    """The state of one process."""

    def __init__(self, way: str, words: list[str]) -> None:
        self.way = way
        self.words = words
        self.extra = 0
        self.is_deaf = False
        self.abilities: Message = {}
        self.told: list[str] = []
        self.asking: dict[str, Message] = {}

    def serve(self) -> None:
        """Answer requests until the input ends."""
        for message in messages():
            if "method" not in message:
                answer = {key: value for key, value in message.items() if key in ("result", "error")}
                reply(self.asking[message["id"]], {"content": [], "structuredContent": answer})
            elif "id" not in message:
                self.told.append(message["method"])
            elif not self.is_deaf:
                self.answer(message)

    def answer(self, request: Message) -> None:
        """Answer one request."""
        method = request["method"]
        self.told.append(method)
        if method in self.words[-1:]:
            if self.way == "leaves":
                sys.exit(3)
            if self.way == "stays":
                return
        if method == "initialize":
            self.abilities = request["params"]["capabilities"]
            greeting = {"protocolVersion": "2025-11-25", "capabilities": ABILITIES, "instructions": "Be kind."}
            reply(request, {**greeting, "serverInfo": {"name": "legacy", "title": "Legacy", "version": "1"}})
        elif method == "tools/list":
            self.list_tools(request)
        elif method == "tools/call":
            self.call(request)
        elif method == "prompts/get":
            reply(request, {"messages": [], "futureMember": request["params"]})
        elif method in FIXED:
            reply(request, FIXED[method])
        else:
            refuse(request)

    def list_tools(self, request: Message) -> None:
        """Answer with a page of the list."""
        cursor = int(request["params"].get("cursor", 0))
        if self.way == "endless":
            reply(request, {"tools": [tool(f"tool {cursor}")], "nextCursor": str(cursor + 1)})
        elif self.way == "repeats":
            reply(request, {"tools": [tool(f"tool {cursor}")], "nextCursor": "1"})
        elif self.way == "flawed":
            reply(request, {"tools": FLAWED})
        elif self.way in ("many", "crowd"):
            own = tuple(self.names()) if self.way == "crowd" else ()
            names, end = (*own, *(f"tool {number}" for number in range(int(self.words[0])))), cursor + 500
            page = [tool(name) for name in names[cursor:end]]
            reply(request, {"tools": page} | ({"nextCursor": str(end)} if end < len(names) else {}))
        else:
            reply(request, {"tools": [tool(name) for name in self.names()]})

    def names(self) -> Iterator[str]:
        """Return the names of the current tools."""
        yield from NAMES
        if "sampling" in self.abilities:
            yield "guess"
        for number in range(self.extra):
            yield f"grown {number + 1}"

    def call(self, request: Message) -> None:
        """Run a tool."""
        run = getattr(self, f"run_{request['params']['name']}", None)
        if run is None:
            refuse(request, -32602, "Unknown tool")
        else:
            run(request)

    def run_echo(self, request: Message) -> None:
        """Return the arguments."""
        reply(request, {"content": [], "structuredContent": arguments(request), "futureMember": [1]})

    def run_guess(self, request: Message) -> None:
        """Answer, if the client can sample."""
        if "sampling" in self.abilities:
            text_reply(request, "heads")
        else:
            refuse(request, -32602, "Unknown tool")

    def run_pid(self, request: Message) -> None:
        """Return the process id."""
        text_reply(request, str(os.getpid()))

    def run_grow(self, request: Message) -> None:
        """Add tools."""
        for _ in range(arguments(request).get("times", 1)):
            self.extra += 1
            send({"method": "notifications/tools/list_changed"})
        text_reply(request, str(self.extra))

    def run_exit(self, request: Message) -> None:
        """Exit."""
        write_error(f"token={os.environ.get('API_TOKEN')}")
        sys.exit(4)

    def run_sleep(self, request: Message) -> None:
        """Never answer."""

    def run_deafen(self, request: Message) -> None:
        """Stop answering for good."""
        self.is_deaf = True

    def run_log(self, request: Message) -> None:
        """Send log messages, then answer."""
        for level in ("debug", "warning"):
            send({"method": "notifications/message", "params": {"level": level, "data": level}})
        text_reply(request, "logged")

    def run_update(self, request: Message) -> None:
        """Notify that a resource changed."""
        send({"method": "notifications/resources/updated", "params": {"uri": "note://one"}})
        text_reply(request, "updated")

    def run_ask(self, request: Message) -> None:
        """Ask the client and return its answer."""
        self.asking[f"question {len(self.asking)}"] = request
        params: Message = {"message": arguments(request).get("text"), "requestedSchema": SCHEMA}
        send({"id": list(self.asking)[-1], "method": "elicitation/create", "params": params})

    def run_abilities(self, request: Message) -> None:
        """Return the client's capabilities."""
        token = os.environ.get("OAUTH_ACCESS_TOKEN")
        known = {"abilities": self.abilities, "told": self.told, "token": token}
        reply(request, {"content": [], "structuredContent": known})


def tool(name: str) -> Message:
    """Return a valid tool."""
    return {"name": name, "description": f"The tool {name}.", "inputSchema": SCHEMA}


if __name__ == "__main__":
    Server(sys.argv[1], sys.argv[2:]).serve()
