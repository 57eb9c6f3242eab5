"""A modern server: asks in its results, and notifies over the subscription request.

`who` returns the request's params. `ask` requires an answer first, `forever` always requires another one, and `bulky`
has too much state. `change` and `update` notify that the list or a resource changed. `hang_up` ends the subscription.
`log` sends a log message before it answers.

"""

from upstreams.protocol import Message, messages, refuse, reply, send, text_reply

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
        """Answer requests until the input ends."""
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
                    self.notify("notifications/subscriptions/acknowledged", notifications={})
                case "tools/call" | "prompts/get":
                    self.call(message)
                case _ if "id" in message:
                    refuse(message)
                case _:
                    pass

    def notify(self, method: str, **params: object) -> None:
        """Send a notification over the subscription."""
        for request in self.listening:
            send({"method": method, "params": {**params, "_meta": {KEY + "subscriptionId": request["id"]}}})

    def call(self, request: Message) -> None:
        """Run a tool, or answer the only prompt, which also asks."""
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
                self.notify("notifications/tools/list_changed")
                text_reply(request, "changed")
            case "update":
                self.notify("notifications/resources/updated", uri="note://one")
                text_reply(request, str(self.listening[0]["params"]["notifications"]))
            case "hang_up":
                for held in self.listening:
                    reply(held, {"resultType": "complete"})
                self.listening = []
                self.extra += 1
                text_reply(request, "hung up")
            case "log":
                send({"method": "notifications/message", "params": {"level": "info", "data": "hello"}})
                text_reply(request, "logged")
            case _:
                reply(request, {"content": [], "structuredContent": params})


if __name__ == "__main__":
    Server().serve()
