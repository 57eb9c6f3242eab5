"""Uses every feature that the crib translates between the eras. The first argument is its own era: legacy or modern.

`ask` asks its client the question in its argument and returns the answer as structured content.

"""

import sys
from collections.abc import Iterator
from itertools import count

from upstreams.protocol import INITIALIZED, Message, messages, refuse, reply, send

KEY = "io.modelcontextprotocol/"
CAPABILITIES: Message = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
ICONS = [{"src": "data:image/svg+xml;base64,PHN2Zy8+", "mimeType": "image/svg+xml", "sizes": ["any"]}]
OUTPUT: Message = {"type": "object", "properties": {"answer": {"type": "object"}}, "required": ["answer"]}
FORM: Message = {"type": "object", "properties": {"name": {"type": "string"}}}
SAMPLE = [{"role": "user", "content": {"type": "text", "text": "Say yes."}}]
QUESTIONS: dict[str, Message] = {
    "form": {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Who are you?", "requestedSchema": FORM},
    },
    "url": {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Sign in.", "url": "https://example.com/in", "elicitationId": "e1"},
    },
    "sampling": {"method": "sampling/createMessage", "params": {"messages": SAMPLE, "maxTokens": 10}},
    "roots": {"method": "roots/list", "params": {}},
}
TOOLS = [
    {"name": "ask", "title": "Ask", "inputSchema": {"type": "object"}, "outputSchema": OUTPUT, "icons": ICONS},
    {"name": "link", "inputSchema": {"type": "object"}},
]
LISTS: dict[str, Message] = {
    "tools/list": {"tools": TOOLS},
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}], "icons": ICONS}]},
    "resources/list": {"resources": [{"uri": "note://one", "name": "one", "icons": ICONS}]},
    "resources/templates/list": {"resourceTemplates": []},
}
LINK: Message = {"type": "resource_link", "uri": "note://one", "name": "one", "mimeType": "text/plain"}


class Server:
    """The state of one process."""

    def __init__(self, era: str) -> None:
        self.is_modern = era == "modern"
        self.input: Iterator[Message] = messages()
        self.ids = count(1000)

    def serve(self) -> None:
        """Answer requests until the input ends."""
        for request in self.input:
            method, params = request.get("method"), request.get("params", {})
            if method in LISTS:
                reply(request, LISTS[method])
                continue
            match method:
                case "server/discover" if self.is_modern:
                    info = {KEY + "serverInfo": {"name": "translated_features", "version": "1"}}
                    reply(request, {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "_meta": info})
                case "initialize" if not self.is_modern:
                    reply(request, {**INITIALIZED, "capabilities": CAPABILITIES})
                case "completion/complete":
                    reply(request, {"completion": {"values": [f"{params['argument']['value']}da"]}})
                case "tools/call" if params["name"] == "link":
                    reply(request, {"content": [LINK]})
                case "tools/call":
                    self.ask(request, params)
                case _ if "id" in request and "method" in request:
                    refuse(request)
                case _:
                    pass

    def ask(self, request: Message, params: Message) -> None:
        """Ask the client in the way of the era, then return the answer."""
        question = QUESTIONS[params["arguments"]["what"]]
        if not self.is_modern:
            sent = next(self.ids)
            send({"id": sent, **question})
            answer = next(message for message in self.input if message.get("id") == sent)
            self.answer(request, answer.get("result") or {"error": answer.get("error")})
        elif "inputResponses" in params:
            self.answer(request, params["inputResponses"]["q"])
        else:
            reply(request, {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"})

    def answer(self, request: Message, answer: Message) -> None:
        """Answer a call with structured content."""
        content = [{"type": "text", "text": "answered"}]
        reply(request, {"content": content, "structuredContent": {"answer": answer}})


if __name__ == "__main__":
    Server(sys.argv[1]).serve()
