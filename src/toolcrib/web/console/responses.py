"""One handler, two representations: a screen returns a value, rendered as HTML for browsers and as JSON for programs.

A browser gets the whole page, or only a fragment if it asks for one (htmx). A client that accepts JSON gets the value
itself; the CLI and the tests use that.

Must never put anything on a page that is not in the value.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest, NotFound, ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.version import __version__
from toolcrib.web.console.app_views import AppViews
from toolcrib.web.console.call_history import CallHistory
from toolcrib.web.console.form_routes import FormRoute, page_above
from toolcrib.web.console.project_links import keep_project, with_project
from toolcrib.web.console.render import page

PRINCIPAL: Final = "toolcrib.principal"
"""Key in the ASGI scope under which the guard stores the principal."""

RAIL: Final = (
    ("overview", "/", "Overview", "g o"),
    ("servers", "/servers", "Servers", "g s"),
    ("tools", "/tools", "Tools", "g t"),
    ("agents", "/agents", "Agents", "g a"),
    ("sessions", "/sessions", "Sessions", "g c"),
    ("access", "/access", "Access", "g w"),
    ("activity", "/activity", "Activity", "g l"),
    ("schedules", "/schedules", "Schedules", "g h"),
)
"""The entries of the navigation rail: key, address, label, shortcut."""
FOOT: Final = (("connect", "/connect", "Connect", "g n"), ("settings", "/settings", "Settings", "g e"))

_chosen_project: ContextVar[Path | None] = ContextVar("chosen_project", default=None)
"""The directory that the address of the current request names."""

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ScreenContent:
    """The content of a screen: `template` is the whole page, `part` the fragment that is refreshed while it is open.

    `value` is the JSON representation; `also` holds values that only the page needs, such as labels.
    """

    screen: str
    title: str
    template: str
    value: Mapping[str, Json]
    part: str | None = None
    also: Mapping[str, Any] | None = None
    status: int = 200


class Console:
    """State and helpers shared by all screens."""

    def __init__(self, crib: Crib, address: str) -> None:
        self.crib = crib
        self.address = address
        self.history = CallHistory(crib.audit)
        self.apps = AppViews(crib)
        self.forms: Sequence[FormRoute] = ()

    def principal(self, request: Request) -> Principal:
        """Return the principal that the guard authenticated."""
        return request.scope[PRINCIPAL]

    @property
    def place(self) -> Path | None:
        """The working directory of the page, as chosen in its header; servers of its project are listed too."""
        return _chosen_project.get() or self.crib.settings.default_cwd

    @property
    def chosen_project(self) -> str | None:
        """The real path of the directory that was chosen in the header; None if none was."""
        chosen = _chosen_project.get()
        return os.path.realpath(chosen) if chosen is not None else None

    @property
    def default_agent(self) -> str | None:
        """The default agent of the project around the page's directory."""
        return self.crib.permissions.default_agent(self.place) if self.place is not None else None

    async def local_principal(self, request: Request) -> Principal:
        """Return the principal, with the console's directory as its cwd."""
        principal = self.principal(request)
        if principal.cwd is None and self.place is not None:
            principal = replace(principal, cwd=str(self.place))
        return await self.crib.placed(principal)

    def caught(self, each: Route) -> Route:
        """Wrap a route so that browsers get errors as a page."""
        handler: Handler = each.endpoint

        async def handle(request: Request) -> Response:
            try:
                request.state.last_event = self.crib.feed.last  # what happens from here on may be missing on the page
                _chosen_project.set(self._chosen_directory(request))
                return _in_project(await handler(request))
            except ToolcribError as error:
                if _wants_json(request):
                    raise
                if request.headers.get("hx-request") == "true":
                    return self.failed(error)
                if (above := self._page_above(request, error)) is not None:
                    return _in_project(back(above))
                shown = ScreenContent("", "Error", "refused.html", error_json(error), status=error.status)
                return _in_project(await self.respond(request, shown))

        kind = FormRoute if each.methods == {"POST"} else Route
        return kind(each.path, handle, methods=list(each.methods or ("GET",)))

    def _page_above(self, request: Request, error: ToolcribError) -> str | None:
        """Return the page to open instead of one that is missing, if the address is that of a form."""
        is_missing = request.method == "GET" and isinstance(error, NotFound)
        return page_above(self.forms, request.scope["path"]) if is_missing else None

    def _chosen_directory(self, request: Request) -> Path | None:
        """Return the directory that the address names. Only the owner may choose one."""
        text = request.query_params.get("cwd", "").strip()
        if not text or not self.principal(request).is_owner:
            return None
        path = Path(text)
        if not path.is_absolute() or "\0" in text or not path.is_dir():
            raise InvalidRequest("request.invalid", f"{text!r} is not a directory.", "Write an absolute path.")
        return path

    async def respond(self, request: Request, shown: ScreenContent) -> Response:
        """Return the content in the representation that the client accepts."""
        if _wants_json(request):
            return JSONResponse(dict(shown.value), shown.status)
        values = {**shown.value, **(shown.also or {}), "request_path": request.url.path, "query": request.query_params}
        if shown.part is not None and request.headers.get("hx-request") == "true":
            return HTMLResponse(page(shown.part, values), shown.status)
        frame = await self._frame(request, shown)
        return HTMLResponse(page(shown.template, {**values, "frame": frame}), shown.status)

    async def _frame(self, request: Request, shown: ScreenContent) -> JsonObject:
        projects = [project.path for project in await self.crib.permissions.projects.list()]
        chosen = _chosen_project.get()
        return {
            "project": str(chosen) if chosen is not None else "",
            "place": str(self.crib.settings.default_cwd or ""),
            "projects": projects,
            "screen": shown.screen,
            "title": shown.title,
            "nav": RAIL,
            "foot": FOOT,
            "version": __version__,
            "waiting": await self.waiting(),
            "last_event": request.state.last_event,
            "notice": self.crib.notice,
            "stopped": self.stopped,
        }

    @property
    def stopped(self) -> JsonObject | None:
        """When, by whom and why everything was stopped; None if it is not."""
        state = self.crib.kill_switch.state
        return state.to_json() if state is not None else None

    async def waiting(self) -> int:
        """Return the number of pending approvals and questions."""
        pending = await self.crib.approvals.find(status="pending")
        return len(pending) + len(await self.crib.sessions.questions())

    def failed(self, error: ToolcribError) -> Response:
        """Return an error as a fragment, displayed in place of the result."""
        return HTMLResponse(page("parts/failure.html", error_json(error)), error.status)


def error_json(error: ToolcribError) -> JsonObject:
    """Return an error as a JSON value."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def route(path: str, handler: Handler, method: str = "GET") -> Route:
    """Return a route of the console."""
    return Route(path, handler, methods=[method])


def _wants_json(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


def _in_project(answer: Response) -> Response:
    """Keep the chosen project in the address that a response leads to, and in the links of a page."""
    chosen, to = _chosen_project.get(), answer.headers.get("location", "")
    if chosen is not None and to.startswith("/"):
        answer.headers["location"] = with_project(to, str(chosen))
    if chosen is not None and isinstance(answer, HTMLResponse):
        answer.body = answer.render(keep_project(bytes(answer.body).decode(), str(chosen)))
        answer.headers["content-length"] = str(len(answer.body))
    return answer


def back(to: str) -> Response:
    """Redirect to another address (303)."""
    return Response(status_code=303, headers={"location": to})
