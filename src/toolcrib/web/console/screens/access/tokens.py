"""The tokens issued by the owner. A secret is displayed once, in the response that created it."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import MODES, SOURCES
from toolcrib.web.console.forms import read
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.tools import SOURCE_WORDS
from toolcrib.web.console.screens.sessions import MODE_WORDS


def routes(console: Console) -> list[Route]:
    """Return the routes of the tokens."""
    screen = TokensScreen(console)
    return [
        route("/access/tokens", screen.show),
        route("/access/tokens", screen.create, "POST"),
        route("/access/tokens/{name}/revoke", screen.revoke, "POST"),
    ]


class TokensScreen:
    """Lists, creates and revokes tokens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """List active tokens, newest first, then revoked ones."""
        return await self._list(request, None)

    async def create(self, request: Request) -> Response:
        """Create a token and show its secret."""
        form = await read(request)
        name, source = form.text("name").strip(), form.choice("source", SOURCES) or "ide"
        agent, mode = form.line("agent"), form.choice("mode", MODES)
        self._crib.permissions.require_agent(agent)
        may_remember = form.has("mayApprove") and form.has("mayRemember")
        details: JsonObject = {"name": name, "source": source, "mayApprove": form.has("mayApprove")}
        details |= {"mayRemember": True} if may_remember else {}
        details |= {key: value for key, value in {"agent": agent, "mode": mode}.items() if value is not None}
        create = partial(self._crib.tokens.create, name, source=source, mode=mode, agent=agent)
        token, secret = await self._crib.changes.make(
            "tokens.create",
            details,
            lambda: create(may_approve=form.has("mayApprove"), may_remember=may_remember),
            by=self._console.principal(request),
            door="console",
        )
        return await self._list(request, {"name": token.name, "secret": secret})

    async def revoke(self, request: Request) -> Response:
        """Revoke a token: its next request is refused, and its open streams are closed."""
        name: str = request.path_params["name"]
        person, revoke = self._console.principal(request), self._crib.tokens.revoke
        await self._crib.changes.make("tokens.revoke", {"name": name}, lambda: revoke(name), by=person, door="console")
        return back("/access/tokens")

    async def _list(self, request: Request, made: JsonObject | None) -> Response:
        absent: JsonObject = {"agent": None, "revokedAt": None}
        tokens = [absent | each.to_json() for each in reversed(await self._crib.tokens.list())]
        value: JsonObject = {
            "tokens": sorted(tokens, key=lambda token: token["revokedAt"] is not None),
            "made": made,
            "agents": [{"id": each.id, "name": each.name} for each in await self._crib.zoo.list()],
            "address": self._console.address,
        }
        shown = ScreenContent(
            "access", "Tokens", "access_tokens.html", value, also={"sources": SOURCE_WORDS, "modes": MODE_WORDS}
        )
        return await self._console.respond(request, shown)
