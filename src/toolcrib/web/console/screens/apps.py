"""The routes of MCP Apps: the card of an app, its page, the domains it may reach, and its requests."""

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject, is_object, loads
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import ToolRef
from toolcrib.web.console.app_views import NO_CONNECTIONS, PROBE_PAGE, PROBE_POLICY, AppView, policy_headers
from toolcrib.web.console.approval_card import card
from toolcrib.web.console.calls import RunningCall
from toolcrib.web.console.responses import Console, ScreenContent, route
from toolcrib.web.guard import APP_PAGES, APP_SANDBOX


def routes(console: Console) -> list[Route]:
    """Return the routes of apps."""
    screen = AppsScreen(console)
    return [
        route("/apps/{id}", screen.show),
        route("/apps/{id}/domains", screen.allow, "POST"),
        route("/apps/{id}/requests", screen.request, "POST"),
        route("/apps/{id}/approvals", screen.approvals),
        route(f"{APP_PAGES}probe", screen.probe),
        route(f"{APP_PAGES}{{id}}", screen.page),
        route("/sessions/{session}/app", screen.open, "POST"),
    ]


class AppsScreen:
    """Shows apps and answers their requests."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._apps = console.apps

    async def open(self, request: Request) -> Response:
        """Open the app for a finished call of a session."""
        view = await self._console.crib.sessions.view(request.path_params["session"])
        wanted = request.query_params.get("call", "")
        item = next((each for each in view.items if each.kind == "call" and each.id == wanted), None)
        data = item.data if item is not None else {}
        tool = self._console.crib.catalog.snapshot.tools.get(ToolRef(str(data.get("server")), str(data.get("tool"))))
        result: Json = data.get("result")
        arguments: Json = data.get("arguments")
        if tool is None or not is_object(result):
            raise NotFound("app.closed", "This call has no result, or its tool is gone.")
        wire: JsonObject = {key: result[key] for key in ("content", "structuredContent", "isError") if key in result}
        person = await self._console.local_principal(request)
        opened = self._apps.open(person, tool, arguments if is_object(arguments) else {}, wire)
        if opened is None:
            raise NotFound("app.closed", f"{tool.ref} has no app.")
        return await self._respond(request, opened)

    async def show(self, request: Request) -> Response:
        """Show the card of an app, with its page."""
        return await self._respond(request, self._find(request))

    async def page(self, request: Request) -> Response:
        """Return the page of an app. The guard adds its sandbox."""
        view = self._find(request)
        await self._apps.load(view)
        return HTMLResponse(view.html or "", headers=policy_headers(self._apps.granted(view)))

    async def probe(self, request: Request) -> Response:
        """Return a page that tests what the browser lets an app do, with its limit or without."""
        limit = {} if "open" in request.query_params else NO_CONNECTIONS
        return HTMLResponse(PROBE_PAGE, headers=PROBE_POLICY | limit)

    async def allow(self, request: Request) -> Response:
        """Allow the domains that an app declares, or withdraw them."""
        view = self._find(request)
        await self._apps.load(view)
        allowed = (await request.form()).get("allowed") == "yes"
        details: JsonObject = {"server": view.server, "uri": view.uri, "allowed": allowed}

        async def grant() -> None:
            self._apps.grant(view, allowed=allowed)

        details |= {"domains": view.declared.to_json()}
        person = self._console.principal(request)
        await self._console.crib.changes.make("apps.domains", details, grant, by=person, door="console")
        return await self._respond(request, view)

    async def request(self, request: Request) -> Response:
        """Answer a request of an app. It is cancelled if the page leaves."""
        view = self._find(request)
        method, params = _request(await request.body())

        async def work(progress: ReportProgress) -> JsonObject:
            return await self._apps.answer(view, method, params, progress)

        answer = await RunningCall().run(request, work)
        return JSONResponse(answer or {"error": {"code": -32000, "message": "The request was cancelled."}})

    async def approvals(self, request: Request) -> Response:
        """Show the pending approvals of an app's calls."""
        view, crib = self._find(request), self._console.crib
        pending = await crib.approvals.find(status="pending")
        value: JsonObject = {
            "id": view.id,
            "server": view.server,
            "approvals": [
                card(
                    crib.approvals,
                    each,
                    crib.gate.marks.held(each.principal),
                    destructive=(tool := crib.catalog.snapshot.tools.get(each.ref)) is not None
                    and tool.marks.destructive,
                )
                for each in pending
                if each.principal == view.principal
            ],
        }
        shown = ScreenContent("tools", "App", "app.html", value, "parts/app_approvals.html")
        return await self._console.respond(request, shown)

    async def _respond(self, request: Request, view: AppView) -> Response:
        await self._apps.load(view)
        granted = self._apps.granted(view)
        tool: JsonObject = {"name": view.tool.ref.tool, **view.tool.definition}
        value: JsonObject = {
            "id": view.id,
            "server": view.server,
            "uri": view.uri,
            "declared": view.declared.to_json(),
            "invalid": list(view.declared.invalid),
            "granted": granted.to_json(),
            "tool": tool,
            "arguments": view.arguments,
            "result": view.result,
            "approvals": [],
        }
        also = {"sandbox": APP_SANDBOX, "page": f"{APP_PAGES}{view.id}"}
        shown = ScreenContent("tools", f"App of {view.server}", "app.html", value, "parts/app.html", also)
        return await self._console.respond(request, shown)

    def _find(self, request: Request) -> AppView:
        return self._apps.find(request.path_params["id"])


def _request(body: bytes) -> tuple[str, JsonObject]:
    """Return the method and params of a request."""
    try:
        sent: Json = loads(body)
    except orjson.JSONDecodeError:
        sent = None
    params: Json = sent.get("params", {}) if is_object(sent) else None
    method: Json = sent.get("method") if is_object(sent) else None
    if not isinstance(method, str) or not is_object(params):
        raise InvalidRequest("request.malformed", "`method` must be a string and `params` an object.")
    return method, params
