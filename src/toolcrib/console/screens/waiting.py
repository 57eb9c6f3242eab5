"""Everything that waits for a person, in one place: calls to approve and questions of agents, and their answers."""

from functools import partial
from typing import Final

import orjson
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from toolcrib.console.render import page, pretty
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.errors import InvalidRequest, ToolcribError
from toolcrib.model.approvals import Scope, Verb
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.text import visible

_DECISIONS: Final[dict[str, tuple[Verb, Scope]]] = {
    "approve": ("approve", "once"),
    "session": ("approve", "session"),
    "always": ("approve", "always"),
    "deny": ("deny", "once"),
}


def routes(console: Console) -> list[Route]:
    """The list, the pill of every page, and the answers."""
    screen = WaitingScreen(console)
    return [
        route("/waiting", screen.show),
        route("/waiting/pill", screen.pill),
        route("/waiting/approvals/{id}", screen.decide, "POST"),
        route("/waiting/questions/{id}", screen.answer, "POST"),
    ]


class WaitingScreen:
    """What waits."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def show(self, request: Request) -> Response:
        """All of it, the oldest first."""
        crib = self._console.crib
        pending = sorted(await crib.approvals.find(status="pending"), key=lambda approval: approval.created_at)
        tools = crib.catalog.snapshot.tools
        value: JsonObject = {
            "approvals": [
                approval.to_json()
                | {
                    "sessionId": approval.principal.session,
                    "approvalId": approval.id,
                    "reason": approval.why,
                    "isDestructive": (tool := tools.get(approval.ref)) is not None and tool.marks.destructive,
                }
                for approval in pending
            ],
            "questions": [{"answers": None, **question.to_json()} for question in crib.sessions.questions()],
        }
        shown = Shown("waiting", "Waiting", "waiting.html", value, "parts/waiting_rows.html")
        return await self._console.respond(request, shown)

    async def pill(self, request: Request) -> Response:
        """How much waits, for the bar of every page."""
        return HTMLResponse(page("parts/pill.html", {"waiting": await self._console.waiting()}))

    async def decide(self, request: Request) -> Response:
        """Approve or deny one call, perhaps with other arguments."""
        form = await request.form()
        person = self._console.principal(request)
        approvals = self._console.crib.approvals
        id: str = request.path_params["id"]
        try:
            verb, scope = _decision(form)
            given = (await approvals.get(id)).given
            edited = _edited(form, given) if verb == "approve" else None
            reason = str(form.get("reason", "")).strip() or None
            said: JsonObject = {"id": id, "decision": verb, "scope": scope}
            said |= {key: value for key, value in {"reason": reason, "arguments": edited}.items() if value is not None}
            answer = partial(approvals.answer, id, verb, by=person, scope=scope, reason=reason, arguments=edited)
            await self._console.crib.changes.make("approvals.answer", said, answer, by=person, door="console")
        except ToolcribError as error:
            return self._console.failed(error)
        return self._after(request)

    async def answer(self, request: Request) -> Response:
        """Answer what an agent asks."""
        form = await request.form()
        answers: dict[str, Json] = {}
        for question in form:
            said = [str(each).strip() for each in form.getlist(question) if str(each).strip()]
            if said:
                answers[question] = said if len(said) > 1 else said[0]
        try:
            id: str = request.path_params["id"]
            await self._console.crib.sessions.answer(id, answers, by=self._console.principal(request))
        except ToolcribError as error:
            return self._console.failed(error)
        return self._after(request)

    def _after(self, request: Request) -> Response:
        return Response(status_code=204) if request.headers.get("hx-request") == "true" else back("/waiting")


def _decision(form: FormData) -> tuple[Verb, Scope]:
    decided = _DECISIONS.get(str(form.get("decision", "")))
    if decided is None:
        raise InvalidRequest("request.malformed", "Approve or deny it.")
    return decided


def _edited(form: FormData, given: Json) -> JsonObject | None:
    """The arguments as the person wants them, if they are others than those shown."""
    text = str(form.get("arguments", "")).replace("\r\n", "\n").strip()
    if not text or text == visible(pretty(given)):  # as it was shown, with whatever was made visible in it
        return None
    try:
        edited: Json = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("tool.arguments_invalid", f"The arguments are not JSON: {error}.") from error
    if not is_object(edited):
        raise InvalidRequest("tool.arguments_invalid", "The arguments have to be an object.")
    return None if edited == given else edited
