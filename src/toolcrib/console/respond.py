"""One handler, two faces: what a screen shows is a value, given as a page to people and as JSON to programs.

A screen gives a template and a value. A browser gets the whole page; where it already has one and asks for a part, the
part; whoever accepts JSON gets the value itself, which the command line and tests use.

Above: the screens. Below: `render`. It must never put anything on a page that is not in the value.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from toolcrib.console.render import page
from toolcrib.errors import ToolcribError
from toolcrib.host import Crib
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.version import __version__

PRINCIPAL: Final = "toolcrib.principal"
"""Key of the scope under which the guard puts who asks."""

RAIL: Final = (
    ("servers", "/", "Servers", "g s"),
    ("tools", "/tools", "Tools", "g t"),
    ("agents", "/agents", "Agents", "g a"),
    ("sessions", "/sessions", "Sessions", "g c"),
    ("access", "/access", "Access", "g w"),
    ("activity", "/activity", "Activity", "g l"),
    ("schedules", "/schedules", "Schedules", "g h"),
)
"""The nouns of the rail: key, address, word, keys."""
FOOT: Final = (("connect", "/connect", "Connect", "g n"), ("settings", "/settings", "Settings", "g e"))

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a screen shows: `template` is the whole page, `part` the template of what changes while it is open.

    `value` is what programs get; `also` is what only the page needs, such as values in the words of this package.
    """

    screen: str
    title: str
    template: str
    value: Mapping[str, Json]
    part: str | None = None
    also: Mapping[str, Any] | None = None
    status: int = 200


class Console:
    """What all screens have in common."""

    def __init__(self, crib: Crib, address: str, screens: Collection[str]) -> None:
        """`screens` are those there are; only they are in the rail."""
        self.crib = crib
        self.address = address
        self._rail = [entry for entry in RAIL if entry[0] in screens]
        self._foot = [entry for entry in FOOT if entry[0] in screens]

    @property
    def screens(self) -> list[tuple[str, str, str, str]]:
        """The screens there are: key, address, word, keys."""
        return [*self._rail, *self._foot]

    def principal(self, request: Request) -> Principal:
        """Who asks."""
        return request.scope[PRINCIPAL]

    @property
    def place(self) -> Path | None:
        """The directory that the console looks from; its project's servers are among those shown."""
        return self.crib.settings.default_cwd

    async def asker(self, request: Request) -> Principal:
        """Who asks, from that directory."""
        principal = self.principal(request)
        if principal.cwd is None and self.place is not None:
            principal = replace(principal, cwd=str(self.place))
        return await self.crib.placed(principal)

    def caught(self, each: Route) -> Route:
        """The same route, whose refusals people are shown where the page would have been."""
        handler: Handler = each.endpoint

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except ToolcribError as error:
                if _wants_json(request):
                    raise
                if request.headers.get("hx-request") == "true":
                    return self.failed(error)
                shown = Shown("", "Refused", "refused.html", told(error), status=error.status)
                return await self.respond(request, shown)

        return Route(each.path, handle, methods=list(each.methods or ("GET",)))

    async def respond(self, request: Request, shown: Shown) -> Response:
        """The face that the asker wants."""
        if _wants_json(request):
            return JSONResponse(dict(shown.value), shown.status)
        values = {**shown.value, **(shown.also or {}), "request_path": request.url.path, "query": request.query_params}
        if shown.part is not None and request.headers.get("hx-request") == "true":
            return HTMLResponse(page(shown.part, values), shown.status)
        frame = await self._frame(shown)
        return HTMLResponse(page(shown.template, {**values, "frame": frame}), shown.status)

    async def _frame(self, shown: Shown) -> JsonObject:
        return {
            "screen": shown.screen,
            "title": shown.title,
            "nav": self._rail,
            "foot": self._foot,
            "version": __version__,
            "waiting": await self.waiting(),
            "last_event": self.crib.feed.last,
            "notice": self.crib.notice,
        }

    async def waiting(self) -> int:
        """How many things wait for a person."""
        pending = await self.crib.approvals.find(status="pending")
        return len(pending) + len(self.crib.sessions.questions())

    def failed(self, error: ToolcribError) -> Response:
        """A refusal inside a page: what happened and what to do, where the result would have been."""
        return HTMLResponse(page("parts/failure.html", told(error)), error.status)


def told(error: ToolcribError) -> JsonObject:
    """A refusal as a value."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def route(path: str, handler: Handler, method: str = "GET") -> Route:
    """A route of the console."""
    return Route(path, handler, methods=[method])


def _wants_json(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


def back(to: str) -> Response:
    """Go on at another address: by the script of a page if there is one, else as browsers do."""
    return Response(status_code=303, headers={"location": to})
