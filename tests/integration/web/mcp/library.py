"""A source in the test process with every MCP feature, which also sends requests to its clients."""

from collections.abc import Callable, Sequence
from functools import partial

from toolcrib.model.errors import NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.protocol import INVALID_PARAMS, URL_ELICITATION_REQUIRED
from toolcrib.model.sources import CallContext, Client, ContentMethod, Notice, ProtocolError, RunCall
from toolcrib.model.tools import CallResult, ContentItem, ProtocolFault, ServerKind, Tool, ToolRef

OBJECT: JsonObject = {"type": "object", "properties": {}}
SHELF: JsonObject = {
    "type": "object",
    "properties": {
        "shelf": {"type": "string", "x-mcp-header": "Shelf"},
        "row": {"type": "integer", "x-mcp-header": "Row"},
    },
}
QUESTION: JsonObject = {
    "message": "Who reads?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
ROOM = "library://room"


class Library:
    """Prompts, resources, templates and tools. `requests` records all requests but calls."""

    kind: ServerKind = "upstream"

    def __init__(self, name: str = "library") -> None:
        self.name = name
        self.requests: list[tuple[str, JsonObject]] = []
        self.clients: list[Client | None] = []
        self.books = ["emma"]
        self.listeners: list[Callable[[Notice], None]] = []
        self.refresh_catalog: Callable[[], object] = lambda: None

    def listen(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Register a listener, as the pool does."""
        self.listeners.append(listener)
        return partial(self.listeners.remove, listener)

    def notify(self, kind: str, params: JsonObject, session: str | None = None) -> None:
        """Send a notification outside of any call."""
        for listener in self.listeners:
            listener(Notice(kind, self.name, params, session))

    def add_book(self, book: str) -> None:
        """Add a book and announce the changed list."""
        self.books.append(book)
        self.refresh_catalog()

    def tools(self) -> Sequence[Tool]:
        """Return one tool for each behaviour."""
        schemas = {"find": SHELF}
        names = ("ask_name", "ask_twice", "fail", "find", "log", "look", "want_name")
        return [
            Tool(ToolRef(self.name, name), f"The tool {name}.", schemas.get(name, OBJECT), self.kind) for name in names
        ]

    def prompts(self) -> Sequence[ContentItem]:
        """One."""
        definition: JsonObject = {"name": "greet", "arguments": [{"name": "who", "required": True}], "x-extra": 1}
        return [ContentItem(self.name, "greet", definition)]

    def resources(self) -> Sequence[ContentItem]:
        """Return the room and the books."""
        uris = [ROOM, *(f"library://books/{book}" for book in self.books)]
        return [ContentItem(self.name, uri, {"uri": uri, "name": uri.rpartition("/")[2]}) for uri in uris]

    def templates(self) -> Sequence[ContentItem]:
        """Return the template for pages of books."""
        template = "library://books/{book}/pages/{page}"
        return [ContentItem(self.name, template, {"uriTemplate": template, "name": "page"})]

    def problems(self) -> Sequence[Problem]:
        """None."""
        return ()

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Prepare a call."""
        if tool not in {each.ref.tool for each in self.tools()}:
            raise NotFound("tool.unknown", f"No {tool}.")
        return partial(self._run, tool, arguments)

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Answer as a modern server, with members that the legacy era does not have."""
        self.requests.append((method, params))
        self.clients.append(context.client)
        match method:
            case "resources/read":
                return self._read(params["uri"])
            case "prompts/get":
                who: Json = params.get("arguments", {}).get("who")
                content: JsonObject = {"type": "text", "text": f"Hello {who}"}
                return {"resultType": "complete", "messages": [{"role": "user", "content": content}]}
            case "completion/complete":
                return {"completion": {"values": [f"{params['argument']['value']}mma"], "hasMore": False}}
            case _:
                return {}

    def _read(self, uri: str) -> JsonObject:
        if "missing" in uri:
            raise ProtocolError(INVALID_PARAMS, f"Unknown resource: {uri}", {"uri": uri})
        content: JsonObject = {"uri": uri, "mimeType": "text/plain", "text": f"{self.name}: {uri}"}
        return {"resultType": "complete", "ttlMs": 7, "cacheScope": "public", "contents": [content]}

    async def _run(self, tool: str, arguments: JsonObject, context: CallContext) -> CallResult:
        client = context.client
        self.clients.append(client)
        assert client is not None
        match tool:
            case "ask_name" | "ask_twice":
                return await self._ask(tool, client)
            case "want_name":
                return _request_input(client)
            case "fail":
                fault = ProtocolFault(
                    arguments.get("code", URL_ELICITATION_REQUIRED), "Sign in first", {"elicitations": []}
                )
                return CallResult(({"type": "text", "text": "MCP error: Sign in first"},), is_error=True, fault=fault)
            case "log":
                assert client.tell is not None
                for level in ("debug", "info", "error"):
                    await client.tell("notifications/message", {"level": level, "data": f"{level}!"})
                return CallResult.text("logged")
            case "find":
                return CallResult.text(f"found {arguments}")
            case _:
                return CallResult.of_wire({"resultType": "complete", "content": [], "_meta": {"own/key": 1}})

    async def _ask(self, tool: str, client: Client) -> CallResult:
        if client.ask is None:
            return CallResult.error("Nobody can be asked.")
        names: list[str] = []
        for _ in range(2 if tool == "ask_twice" else 1):
            try:
                answer = await client.ask("elicitation/create", QUESTION)
            except ProtocolError as error:
                return CallResult.error(f"refused with {error.code}")
            names.append(str(answer.get("content", {}).get("name", answer["action"])))
        return CallResult.text(f"Hello {' and '.join(names)}")


def _request_input(client: Client) -> CallResult:
    """Ask as the modern era does: with a result that requests a second call."""
    if client.responses is None:
        asked = {"who": {"method": "elicitation/create", "params": {"mode": "form", **QUESTION}}}
        wire: JsonObject = {"resultType": "input_required", "inputRequests": asked, "requestState": "page 7"}
        return CallResult.of_wire(wire)
    return CallResult.text(f"Hello {client.responses['who']['content']['name']}, you are on {client.state}")
