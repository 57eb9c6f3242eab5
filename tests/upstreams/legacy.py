"""Offers tools, prompts and resources in the old era, in the way its first word says.

`plain`: its own tools, a prompt, a resource and a template. `many N`: N tools on pages of 500. `crowd N`: its own tools
and then those. `endless`: every page names a new one. `repeats`: the second page names itself. `flawed`: good tools
among bad ones. `leaves STEP`: exits when it is asked for STEP. `stays silent STEP`: never answers STEP.

Its tools: `echo` gives its arguments back; `pid` tells its process; `grow` adds a tool and says that the list changed,
as often as it is told to; `exit` exits; `sleep` never answers; `deafen` answers nothing from then on; `log` says two
messages before it answers; `update` says that a resource changed; `ask` asks the client something and tells the answer;
`abilities` tells what the client said it can do, what it was told besides, and the token that it was given; `guess` is
there only for clients that can sample.
"""

import os
import sys
from collections.abc import Iterator

from upstreams.protocol import Message, arguments, messages, moan, refuse, reply, say, text_reply

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
    """A schema nested this deep."""
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
        """Answer everything, until the input ends."""
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
        """Give a page of the list."""
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
        """The tools there are now."""
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
        """Give the arguments back."""
        reply(request, {"content": [], "structuredContent": arguments(request), "futureMember": [1]})

    def run_guess(self, request: Message) -> None:
        """Answer, if the client can sample."""
        if "sampling" in self.abilities:
            text_reply(request, "heads")
        else:
            refuse(request, -32602, "Unknown tool")

    def run_pid(self, request: Message) -> None:
        """Tell the process."""
        text_reply(request, str(os.getpid()))

    def run_grow(self, request: Message) -> None:
        """Add tools."""
        for _ in range(arguments(request).get("times", 1)):
            self.extra += 1
            say({"method": "notifications/tools/list_changed"})
        text_reply(request, str(self.extra))

    def run_exit(self, request: Message) -> None:
        """Exit."""
        moan(f"token={os.environ.get('API_TOKEN')}")
        sys.exit(4)

    def run_sleep(self, request: Message) -> None:
        """Never answer."""

    def run_deafen(self, request: Message) -> None:
        """Never answer anything again."""
        self.is_deaf = True

    def run_log(self, request: Message) -> None:
        """Say something beside the answer."""
        for level in ("debug", "warning"):
            say({"method": "notifications/message", "params": {"level": level, "data": level}})
        text_reply(request, "logged")

    def run_update(self, request: Message) -> None:
        """Say that a resource changed."""
        say({"method": "notifications/resources/updated", "params": {"uri": "note://one"}})
        text_reply(request, "updated")

    def run_ask(self, request: Message) -> None:
        """Ask the client."""
        self.asking[f"question {len(self.asking)}"] = request
        params: Message = {"message": arguments(request).get("text"), "requestedSchema": SCHEMA}
        say({"id": list(self.asking)[-1], "method": "elicitation/create", "params": params})

    def run_abilities(self, request: Message) -> None:
        """Tell what the client said."""
        token = os.environ.get("OAUTH_ACCESS_TOKEN")
        known = {"abilities": self.abilities, "told": self.told, "token": token}
        reply(request, {"content": [], "structuredContent": known})


def tool(name: str) -> Message:
    """A tool that is as it should be."""
    return {"name": name, "description": f"The tool {name}.", "inputSchema": SCHEMA}


if __name__ == "__main__":
    Server(sys.argv[1], sys.argv[2:]).serve()
