"""Sessions: the list, and one live conversation with its pending approvals and questions inline."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from toolcrib.agents.sessions.conversation_view import Item
from toolcrib.agents.sessions.recording.replayed_runtime import ReplayOptions
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.host.session_replays import ReplayRequest
from toolcrib.model.approvals import Approval
from toolcrib.model.apps import app_uri
from toolcrib.model.errors import InvalidRequest, ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import MODES, Mode
from toolcrib.model.sessions import SESSION_STATES, Session, SessionState
from toolcrib.model.tools import ToolRef
from toolcrib.store.sessions import SessionFilter
from toolcrib.web.console.approval_card import card, shown_marks
from toolcrib.web.console.forms import read_query
from toolcrib.web.console.render import page
from toolcrib.web.console.responses import Console, ScreenContent, back, error_json, route

STATES: Final = {
    "starting": ("Starting…", "soft"),
    "running": ("Running", "good"),
    "waiting": ("Waiting for you", "warn"),
    "idle": ("Idle", "soft"),
    "interrupted": ("Interrupted", "warn"),
    "failed": ("Failed", "alarm"),
    "closed": ("Closed", "soft"),
}
"""Per state: label and tone."""
ENDINGS: Final = {
    "approved": "Approved",
    "denied": "Denied",
    "expired": "Expired without an answer",
    "withdrawn": "Withdrawn",
}
MODE_WORDS: Final = {
    "default": "ask before each call",
    "acceptEdits": "run tools, edit files in the project",
    "plan": "read only",
    "dontAsk": "deny calls that need approval",
    "bypassPermissions": "run everything without asking",
}
_OPTIONAL: Final[JsonObject] = dict.fromkeys(("agentId", "model", "title", "reason"))
_OF_ITEMS: Final[JsonObject] = dict.fromkeys(
    ("parentToolCallId", "server", "tool", "toolName", "arguments", "approval", "result", "answers", "hint", "costUsd")
)
"""Optional members that templates read."""
_SHOWN: Final = 50
"""Sessions on one page."""


def routes(console: Console) -> list[Route]:
    """Return the routes of sessions."""
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
        route("/sessions/{id}/replay", screen.replay, "POST"),
        route("/sessions/{id}/compare", screen.compare),
        route("/sessions/{id}/delete", screen.delete, "POST"),
    ]


class SessionsScreen:
    """Lists sessions and shows conversations."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._sessions = console.crib.sessions

    async def show(self, request: Request) -> Response:
        """List the matching sessions, most recently used first."""
        form = read_query(request)
        chosen = {name: text for name in ("q", "agent", "state") if (text := form.line(name))}
        page_number = form.page()
        wanted = SessionFilter(
            agent=chosen.get("agent"),
            state=_state(chosen.get("state")),
            words=chosen.get("q"),
            limit=_SHOWN,
            offset=(page_number - 1) * _SHOWN,
        )
        found, total = await self._sessions.list(wanted), await self._sessions.count_matching(wanted)
        crib = self._console.crib
        value: JsonObject = {
            "sessions": [_row(session) for session in found],
            "total": total,
            "first": wanted.offset + 1,
            "filters": chosen,
            "previous": _page_url(chosen, page_number - 1) if page_number > 1 else None,
            "next": _page_url(chosen, page_number + 1) if wanted.offset + len(found) < total else None,
            "here": _page_url(chosen, page_number),
            "agents": [{"id": agent.id, "name": agent.name} for agent in await crib.zoo.list()],
            "defaultAgent": self._console.default_agent,
            "cwd": str(self._console.place or ""),
        }
        shown = ScreenContent(
            "sessions",
            "Sessions",
            "sessions.html",
            value,
            "parts/session_rows.html",
            {"modes": MODE_WORDS, "states": STATES},
        )
        return await self._console.respond(request, shown)

    async def create(self, request: Request) -> Response:
        """Create a session, send the first message if given, and open it."""
        form = await request.form()
        given = {key: str(form.get(key, "")).strip() or None for key in ("agent", "cwd", "mode", "model")}
        mode = _mode(given["mode"])
        try:
            session = await self._sessions.create(
                NewSession("web", given["cwd"], given["agent"], mode, given["model"], runner=None)
            )
            if form.get("record") == "yes":
                self._console.crib.recordings.start(session.id)
            if text := str(form.get("content", "")).strip():
                await self._sessions.send(session.id, text)
        except ToolcribError as error:
            return self._console.failed(error)
        return back(f"/sessions/{session.id}")

    async def conversation(self, request: Request) -> Response:
        """Show the whole conversation of a session."""
        session = await self._find(request)
        view = await self._sessions.view(session.id)
        open_approvals = await self._open_approvals(session.id)
        value: JsonObject = {
            "session": _row(session),
            "items": [self._item(session.id, item, open_approvals) for item in view.items],
            "last": view.last,
            "servers": view.status.get("servers", []),
            "isRecorded": self._console.crib.recordings.has(session.id),
            "marks": self._marks(session),
        }
        title = session.title or "Session"
        shown = ScreenContent("sessions", title, "session.html", value, also={"modes": MODE_WORDS})
        return await self._console.respond(request, shown)

    async def items(self, request: Request) -> Response:
        """Return the items that are new or changed since `after`."""
        session = await self._find(request)
        after = int(request.query_params.get("after", "0"))
        view = await self._sessions.view(session.id)
        open_approvals = await self._open_approvals(session.id)
        items = [self._item(session.id, item, open_approvals) for item in view.since(after)]
        return HTMLResponse(page("parts/items.html", {"items": items}), headers={"x-last": str(view.last)})

    async def head(self, request: Request) -> Response:
        """Return the session's state, cost and actions."""
        session = await self._find(request)
        view = await self._sessions.view(session.id)
        recorded = self._console.crib.recordings.has(session.id)
        values = {"session": _row(session), "servers": view.status.get("servers", []), "modes": MODE_WORDS}
        values["isRecorded"] = recorded
        values["marks"] = self._marks(session)
        return HTMLResponse(page("parts/session_head.html", values))

    async def send(self, request: Request) -> Response:
        """Send a message."""
        session = await self._find(request)
        form = await request.form()
        try:
            await self._sessions.send(session.id, str(form.get("content", "")))
        except ToolcribError as error:
            return self._console.failed(error)
        return self._after(request, session.id)

    async def interrupt(self, request: Request) -> Response:
        """Interrupt the running turn."""
        session = await self._find(request)
        await self._sessions.interrupt(session.id)
        return self._after(request, session.id)

    async def change(self, request: Request) -> Response:
        """Change the mode, model or title."""
        session = await self._find(request)
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
        """Fork the session and open the copy."""
        session = await self._find(request)
        return back(f"/sessions/{(await self._sessions.fork(session.id)).id}")

    async def replay(self, request: Request) -> Response:
        """Replay the recording of the session, then compare both runs; a fork is opened instead."""
        session = await self._find(request)
        form = await request.form()
        until, prompt = str(form.get("until", "")).strip(), str(form.get("prompt", "")).strip() or None
        replays = self._console.crib.replays
        options = ReplayOptions(form.get("liveTools") == "yes", form.get("liveModel") == "yes")
        number = int(until) if until.isascii() and until.isdigit() else None
        try:
            recording = await replays.export(session.id)
            outcome = await replays.replay(recording, ReplayRequest(options, number, prompt, source="web"))
        except ToolcribError as error:
            return self._console.failed(error)
        if prompt is not None:
            return back(f"/sessions/{outcome.session.id}")
        return back(f"/sessions/{session.id}/compare?with={outcome.session.id}")

    async def compare(self, request: Request) -> Response:
        """Show two sessions side by side: prompts, calls, results and cost."""
        session = await self._find(request)
        other = request.query_params.get("with", "").strip()
        value: JsonObject = {"session": _row(session), "other": other, "comparison": None, "failure": None}
        if other:
            try:
                found = await self._console.crib.replays.compare(session.id, await self._sessions.resolve(other))
                value["comparison"] = found.to_json()
            except ToolcribError as error:
                value["failure"] = error_json(error)
        shown = ScreenContent("sessions", "Compare sessions", "session_compare.html", value)
        return await self._console.respond(request, shown)

    async def delete(self, request: Request) -> Response:
        """Delete the session."""
        session = await self._find(request)
        await self._sessions.delete(session.id)
        self._console.crib.recordings.delete(session.id)
        return back("/sessions")

    def _after(self, request: Request, id: str) -> Response:
        """Return 204 for htmx, whose page updates by events; else redirect to the session."""
        if request.headers.get("hx-request") == "true":
            return Response(status_code=204)
        return back(f"/sessions/{id}")

    async def _find(self, request: Request) -> Session:
        return await self._sessions.get(request.path_params["id"])

    async def _open_approvals(self, id: str) -> dict[str, Approval]:
        found = await self._console.crib.approvals.find(status="pending", session=id)
        return {approval.id: approval for approval in found}

    def _marks(self, session: Session) -> list[JsonObject]:
        return shown_marks(self._console.crib.gate.marks.held(session.principal))

    def _card(self, approval: Approval, *, destructive: bool) -> JsonObject:
        crib = self._console.crib
        return card(crib.approvals, approval, crib.gate.marks.held(approval.principal), destructive=destructive)

    def _item(self, session: str, item: Item, open_approvals: Mapping[str, Approval]) -> JsonObject:
        shape = _OF_ITEMS | item.to_json()
        if item.kind != "call":
            return shape
        ref = ToolRef(str(shape.get("server") or ""), str(shape.get("tool") or shape.get("toolName") or ""))
        tool = self._console.crib.catalog.snapshot.tools.get(ref)
        approval: JsonObject = shape.get("approval") or {}
        decision: Json = approval.get("decision")
        destructive = tool is not None and tool.marks.destructive
        pending = open_approvals.get(str(approval.get("approvalId"))) if decision is None else None
        has_app = tool is not None and app_uri(tool) is not None and shape.get("result") is not None
        return shape | {
            "app": f"/sessions/{session}/app?{urlencode({'call': item.id})}" if has_app else None,
            "isDestructive": destructive,
            "isOpen": pending is not None,
            "card": self._card(pending, destructive=destructive) if pending is not None else None,
            "ending": ENDINGS.get(str(decision)) if decision else None,
            "approval": {"by": None, "reason": None, "decision": None, **approval} if approval else None,
        }


def _row(session: Session) -> JsonObject:
    word, tone = STATES[session.state]
    busy = session.state in ("starting", "running", "waiting")
    return _OPTIONAL | session.to_json() | {"word": word, "tone": tone, "busy": busy}


def _state(text: str | None) -> SessionState | None:
    state: SessionState | None = next((state for state in SESSION_STATES if state == text), None)
    if text is not None and state is None:
        raise InvalidRequest("request.invalid", f"{text!r} is not a state.", f"Choose one of {', '.join(STATES)}.")
    return state


def _page_url(chosen: Mapping[str, str], number: int) -> str:
    query = {**chosen, "page": str(number)} if number > 1 else chosen
    return f"/sessions?{urlencode(query)}" if query else "/sessions"


def _mode(text: str | None) -> Mode | None:
    return next((mode for mode in MODES if mode == text), None)
