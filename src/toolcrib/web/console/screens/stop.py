"""The kill switch: a button on every page, and a banner while everything is stopped."""

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from toolcrib.web.console.render import page
from toolcrib.web.console.responses import Console, back, route


def routes(console: Console) -> list[Route]:
    """Return the routes of the banner and both buttons."""
    screen = StopScreen(console)
    return [
        route("/stop-all", screen.banner),
        route("/stop-all", screen.stop, "POST"),
        route("/resume-all", screen.resume, "POST"),
    ]


class StopScreen:
    """Stops and resumes everything."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def banner(self, request: Request) -> Response:
        """Return the banner fragment."""
        return HTMLResponse(page("parts/stopped.html", {"stopped": self._console.stopped}))

    async def stop(self, request: Request) -> Response:
        """Stop all sessions and calls."""
        reason = str((await request.form()).get("reason", "")).strip() or None
        person = self._console.principal(request)
        await self._console.crib.kill_switch.stop(by=person, door="console", reason=reason)
        return back("/")

    async def resume(self, request: Request) -> Response:
        """Resume."""
        await self._console.crib.kill_switch.resume(by=self._console.principal(request), door="console")
        return back("/")
