"""Speaks the modern era only: asks by its result, says what changed on the request that is held open for it.

Its tools: `who` gives the request's params back; `ask` wants an answer before it gives one, `forever` never has enough
of them, `bulky` wants too much kept; `change` and `update` say that the list or a resource changed, `hang_up` ends the
request that is held open; `log` says something beside its answer.
"""

from upstreams.protocol import Message, messages, refuse, reply, say, text_reply

KEY = "io.modelcontextprotocol/"
NAMES = ("who", "ask", "forever", "bulky", "change", "update", "hang_up", "log")
DISCOVERED: Message = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "prompts": {}},
    "_meta": {KEY + "serverInfo": {"name": "modern", "version": "1"}},
    "instructions": "Ask less.",
}
QUESTION: Message = {"method": "elicitation/create", "params": {"message": "Why?"}}


class Server:
    """The state of one process."""

    def __init__(self) -> None:
        self.listening: list[Message] = []
        self.extra = 0

    def serve(self) -> None:
        """Answer everything, until the input ends."""
        for message in messages():
            match message.get("method"):
                case "server/discover":
                    reply(message, DISCOVERED)
                case "tools/list":
                    names = (*NAMES, *(f"grown {number}" for number in range(self.extra)))
                    reply(message, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
                case "resources/list":
                    reply(message, {"resources": [{"uri": "note://one", "name": "one"}]})
                case "subscriptions/listen":
                    self.listening = [message]
                    self.tell("notifications/subscriptions/acknowledged", notifications={})
                case "tools/call" | "prompts/get":
                    self.call(message)
                case _ if "id" in message:
                    refuse(message)
                case _:
                    pass

    def tell(self, method: str, **params: object) -> None:
        """Say something on the request that is held open."""
        for request in self.listening:
            say({"method": method, "params": {**params, "_meta": {KEY + "subscriptionId": request["id"]}}})

    def call(self, request: Message) -> None:
        """Run a tool, or give the one prompt, which asks as well."""
        params = request["params"]
        match params["name"]:
            case "ask" if "inputResponses" in params:
                answer = {"answers": params["inputResponses"], "state": params.get("requestState")}
                reply(request, {"content": [], "structuredContent": answer})
            case "ask" | "forever" | "bulky" as name:
                state = "s" * 100_000 if name == "bulky" else "state"
                asked = {"resultType": "input_required", "inputRequests": {"why": QUESTION}, "requestState": state}
                reply(request, asked)
            case "change":
                self.extra += 1
                self.tell("notifications/tools/list_changed")
                text_reply(request, "changed")
            case "update":
                self.tell("notifications/resources/updated", uri="note://one")
                text_reply(request, str(self.listening[0]["params"]["notifications"]))
            case "hang_up":
                for held in self.listening:
                    reply(held, {"resultType": "complete"})
                self.listening = []
                self.extra += 1
                text_reply(request, "hung up")
            case "log":
                say({"method": "notifications/message", "params": {"level": "info", "data": "hello"}})
                text_reply(request, "logged")
            case _:
                reply(request, {"content": [], "structuredContent": params})


if __name__ == "__main__":
    Server().serve()
