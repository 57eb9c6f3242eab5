"""Sessions: the list, and one conversation as it happens, with everything that waits for a person in its place."""

from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from toolcrib.console.render import page
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import MODES, Mode
from toolcrib.model.sessions import Session
from toolcrib.model.tools import ToolRef
from toolcrib.sessions import NewSession, SessionFilter
from toolcrib.sessions.fold import Fold, Item

STATES: Final = {
    "starting": ("Starting…", "soft"),
    "running": ("Working", "good"),
    "waiting": ("Waits for you", "warn"),
    "idle": ("Idle", "soft"),
    "interrupted": ("Interrupted", "warn"),
    "failed": ("Failed", "alarm"),
    "closed": ("Closed", "soft"),
}
"""Each state in a person's word, and how grave it is."""
ENDINGS: Final = {
    "approved": "You allowed it",
    "denied": "You said no",
    "expired": "Nobody answered in time",
    "withdrawn": "No longer needed",
}
MODE_WORDS: Final = {
    "default": "ask before each call",
    "acceptEdits": "run tools, ask nothing inside the project",
    "plan": "only read, then plan",
    "dontAsk": "refuse what would be asked",
    "bypassPermissions": "run everything",
}
_OPTIONAL: Final[JsonObject] = dict.fromkeys(("agentId", "model", "title", "reason"))
_OF_ITEMS: Final[JsonObject] = dict.fromkeys(
    ("parentToolCallId", "server", "tool", "toolName", "arguments", "approval", "result", "answers", "hint", "costUsd")
)
"""What may be missing in a shape and is asked for by a page."""
_SHOWN: Final = 200
"""Sessions on the first page."""


def routes(console: Console) -> list[Route]:
    """The list, the conversation, and what is done in it."""
    screen = SessionsScreen(console)
    return [
        route("/sessions", screen.show),
        route("/sessions", screen.create, "POST"),
        route("/sessions/{id}", screen.conversation),
        route("/sessions/{id}/items", screen.items),
        route("/sessions/{id}/head", screen.head),
        route("/sessions/{id}/messages", screen.send, "POST"),
        route("/sessions/{id}/interrupt", screen.interrupt, "POST"),
        route("/sessions/{id}/change", screen.change, "POST"),
        route("/sessions/{id}/fork", screen.fork, "POST"),
        route("/sessions/{id}/delete", screen.delete, "POST"),
    ]


class SessionsScreen:
    """Conversations."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._sessions = console.crib.sessions

    async def show(self, request: Request) -> Response:
        """All sessions, the one that was last used first."""
        found = await self._sessions.list(SessionFilter(limit=_SHOWN))
        crib = self._console.crib
        value: JsonObject = {
            "sessions": [_row(session) for session in found],
            "agents": [{"id": agent.id, "name": agent.name} for agent in await crib.zoo.list()],
            "cwd": str(crib.settings.default_cwd or ""),
        }
        shown = Shown("sessions", "Sessions", "sessions.html", value, "parts/session_rows.html", {"modes": MODE_WORDS})
        return await self._console.respond(request, shown)

    async def create(self, request: Request) -> Response:
        """Make a session and go to it; a first message is sent at once."""
        form = await request.form()
        given = {key: str(form.get(key, "")).strip() or None for key in ("agent", "cwd", "mode", "model")}
        mode = _mode(given["mode"])
        try:
            session = await self._sessions.create(
                NewSession("web", given["cwd"], given["agent"], mode, given["model"], runner=None)
            )
            if text := str(form.get("content", "")).strip():
                await self._sessions.send(session.id, text)
        except ToolcribError as error:
            return self._console.failed(error)
        return back(f"/sessions/{session.id}")

    async def conversation(self, request: Request) -> Response:
        """One session, whole."""
        session = await self._found(request)
        fold = await self._folded(session.id)
        value: JsonObject = {
            "session": _row(session),
            "items": [self._item(item) for item in fold.items],
            "last": fold.last,
            "servers": fold.status.get("servers", []),
        }
        title = session.title or "Session"
        shown = Shown("sessions", title, "session.html", value, also={"modes": MODE_WORDS})
        return await self._console.respond(request, shown)

    async def items(self, request: Request) -> Response:
        """What is new or changed after a number, for a page that is open."""
        session = await self._found(request)
        after = int(request.query_params.get("after", "0"))
        fold = await self._folded(session.id)
        items = [self._item(item) for item in fold.since(after)]
        return HTMLResponse(page("parts/items.html", {"items": items}), headers={"x-last": str(fold.last)})

    async def head(self, request: Request) -> Response:
        """State, cost and what can be done, for a page that is open."""
        session = await self._found(request)
        fold = await self._folded(session.id)
        values = {"session": _row(session), "servers": fold.status.get("servers", []), "modes": MODE_WORDS}
        return HTMLResponse(page("parts/session_head.html", values))

    async def send(self, request: Request) -> Response:
        """Say something."""
        session = await self._found(request)
        form = await request.form()
        try:
            await self._sessions.send(session.id, str(form.get("content", "")))
        except ToolcribError as error:
            return self._console.failed(error)
        return self._after(request, session.id)

    async def interrupt(self, request: Request) -> Response:
        """Stop the running turn."""
        session = await self._found(request)
        await self._sessions.interrupt(session.id)
        return self._after(request, session.id)

    async def change(self, request: Request) -> Response:
        """Another mode, model or title."""
        session = await self._found(request)
        form = await request.form()
        title = str(form.get("title", "")).strip() or None
        model = str(form.get("model", "")).strip() or None
        try:
            mode = _mode(str(form.get("mode", "")) or None)
            await self._sessions.change(session.id, mode=mode, model=model, title=title)
        except ToolcribError as error:
            return self._console.failed(error)
        return self._after(request, session.id)

    async def fork(self, request: Request) -> Response:
        """A copy to go on with."""
        session = await self._found(request)
        return back(f"/sessions/{(await self._sessions.fork(session.id)).id}")

    async def delete(self, request: Request) -> Response:
        """Remove it for good."""
        session = await self._found(request)
        await self._sessions.delete(session.id)
        return back("/sessions")

    def _after(self, request: Request, id: str) -> Response:
        """A page with a script hears what happened by itself; one without is shown anew."""
        if request.headers.get("hx-request") == "true":
            return Response(status_code=204)
        return back(f"/sessions/{id}")

    async def _found(self, request: Request) -> Session:
        return await self._sessions.get(request.path_params["id"])

    async def _folded(self, id: str) -> Fold:
        fold = Fold()
        async for event in self._sessions.transcript(id):
            fold.take((event,))
        return fold

    def _item(self, item: Item) -> JsonObject:
        shape = _OF_ITEMS | item.to_json()
        if item.kind != "call":
            return shape
        ref = ToolRef(str(shape.get("server") or ""), str(shape.get("tool") or shape.get("toolName") or ""))
        tool = self._console.crib.catalog.snapshot.tools.get(ref)
        approval: JsonObject = shape.get("approval") or {}
        decision: Json = approval.get("decision")
        return shape | {
            "isDestructive": tool is not None and tool.marks.destructive,
            "isOpen": bool(approval) and decision is None,
            "ending": ENDINGS.get(str(decision)) if decision else None,
            "approval": {"by": None, "reason": None, "decision": None, **approval} if approval else None,
        }


def _row(session: Session) -> JsonObject:
    word, tone = STATES[session.state]
    busy = session.state in ("starting", "running", "waiting")
    return _OPTIONAL | session.to_json() | {"word": word, "tone": tone, "busy": busy}


def _mode(text: str | None) -> Mode | None:
    return next((mode for mode in MODES if mode == text), None)
