"""All pending approvals and questions, and their answers."""

from datetime import datetime
from functools import partial
from typing import Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from toolcrib.model.approvals import Scope, Verb
from toolcrib.model.errors import InvalidRequest, ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.tools import Tool
from toolcrib.web.console.approval_card import card, check_opened, read_edited, read_rule_limits
from toolcrib.web.console.render import page
from toolcrib.web.console.responses import Console, ScreenContent, back, route

_DECISIONS: Final[dict[str, tuple[Verb, Scope]]] = {
    "approve": ("approve", "once"),
    "session": ("approve", "session"),
    "always": ("approve", "always"),
    "deny": ("deny", "once"),
}


def routes(console: Console) -> list[Route]:
    """Return the routes of the list, the counter and the answers."""
    screen = WaitingScreen(console)
    return [
        route("/waiting", screen.show),
        route("/waiting/pill", screen.pill),
        route("/waiting/approvals/{id}", screen.decide, "POST"),
        route("/waiting/questions/{id}", screen.answer, "POST"),
    ]


class WaitingScreen:
    """Lists and answers pending requests."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def show(self, request: Request) -> Response:
        """List everything pending, oldest first."""
        crib = self._console.crib
        pending = sorted(await crib.approvals.find(status="pending"), key=lambda approval: approval.created_at)
        tools = crib.catalog.snapshot.tools
        value: JsonObject = {
            "approvals": [
                card(
                    crib.approvals,
                    each,
                    crib.gate.marks.held(each.principal),
                    destructive=_destroys(tools.get(each.ref)),
                )
                for each in pending
            ],
            "questions": [{"answers": None, **question.to_json()} for question in await crib.sessions.questions()],
        }
        shown = ScreenContent("waiting", "Waiting for you", "waiting.html", value, "parts/waiting_rows.html")
        return await self._console.respond(request, shown)

    async def pill(self, request: Request) -> Response:
        """Return the counter displayed on every page."""
        return HTMLResponse(page("parts/pill.html", {"waiting": await self._console.waiting()}))

    async def decide(self, request: Request) -> Response:
        """Approve or deny one call, optionally with edited arguments."""
        form = await request.form()
        person = self._console.principal(request)
        approvals = self._console.crib.approvals
        id: str = request.path_params["id"]
        try:
            verb, scope = _decision(form)
            approval = approvals.shown(await approvals.get(id))
            edited = None
            if verb == "approve":
                edited = read_edited(str(form.get("arguments", "")), approval.given)
                check_opened(approval, [str(each) for each in form.getlist("opened")], edited)
            more = {
                "reason": str(form.get("reason", "")).strip() or None,
                "arguments": edited,
                **(read_rule_limits(form, scope) if verb == "approve" else {}),
            }
            details: JsonObject = {"id": id, "decision": verb, "scope": scope}
            details |= {key: _as_json(value) for key, value in more.items() if value is not None}
            answer = partial(approvals.answer, id, verb, by=person, scope=scope, **more)
            await self._console.crib.changes.make("approvals.answer", details, answer, by=person, door="console")
        except ToolcribError as error:
            return self._console.failed(error)
        return self._after(request)

    async def answer(self, request: Request) -> Response:
        """Answer an agent's question."""
        form = await request.form()
        answers: dict[str, Json] = {}
        for question in form:
            details = [str(each).strip() for each in form.getlist(question) if str(each).strip()]
            if details:
                answers[question] = details if len(details) > 1 else details[0]
        try:
            id: str = request.path_params["id"]
            await self._console.crib.sessions.answer(id, answers, by=self._console.principal(request))
        except ToolcribError as error:
            return self._console.failed(error)
        return self._after(request)

    def _after(self, request: Request) -> Response:
        return Response(status_code=204) if request.headers.get("hx-request") == "true" else back("/waiting")


def _as_json(value: Json | datetime) -> Json:
    return value.isoformat() if isinstance(value, datetime) else value


def _decision(form: FormData) -> tuple[Verb, Scope]:
    decided = _DECISIONS.get(str(form.get("decision", "")))
    if decided is None:
        raise InvalidRequest("request.malformed", "Choose approve or deny.")
    return decided


def _destroys(tool: Tool | None) -> bool:
    return tool is not None and tool.marks.destructive
