"""Secrets: plaintext ones in the files of apps, and those that the crib stores. Moves are previewed first."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.json import JsonObject
from toolcrib.web.console.forms import read
from toolcrib.web.console.responses import Console, ScreenContent, back, route

HOW: Final = {
    "keyring": "The file refers to the keyring.",
    "variable": "The app refers to the variable that has this value.",
    "behind": "The server moves behind the crib, and the app uses it from there.",
}


def routes(console: Console) -> list[Route]:
    """Return the routes of the secrets."""
    screen = SecretsScreen(console)
    return [
        route("/secrets", screen.show),
        route("/secrets/move", screen.move, "POST"),
        route("/secrets/undo", screen.undo, "POST"),
        route("/secrets/set", screen.set, "POST"),
        route("/secrets/{name}/remove", screen.remove, "POST"),
    ]


class SecretsScreen:
    """Lists, moves and replaces secrets. Must never put a value on a page."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """List plaintext and stored secrets."""
        return await self._console.respond(request, await self._content())

    async def move(self, request: Request) -> Response:
        """Preview a move, or make it."""
        form = await request.form()
        names = [str(name) for name in form.getlist("name")]
        secrets, place = self._crib.definition_secrets, self._console.place

        async def work() -> JsonObject:
            return (await secrets.move(names, place)).to_json()

        if form.get("do") == "save":
            person = self._console.principal(request)
            done = await self._crib.changes.make("secrets.move", {"names": names}, work, by=person, door="console")
        else:
            done = (await secrets.move(names, place, dry_run=True)).to_json()
        return await self._console.respond(request, await self._content(done, names))

    async def undo(self, request: Request) -> Response:
        """Undo the last move."""

        async def work() -> JsonObject:
            return (await self._crib.definition_secrets.undo()).to_json()

        person = self._console.principal(request)
        done = await self._crib.changes.make("secrets.undo", {}, work, by=person, door="console")
        return await self._console.respond(request, await self._content(undone=done))

    async def set(self, request: Request) -> Response:
        """Store or replace a secret, and restart what uses it."""
        form = await read(request)
        name, value = form.text("name").strip(), form.text("value")
        secrets, person = self._crib.definition_secrets, self._console.principal(request)
        record, restarted = await self._crib.changes.make(
            "secrets.set", {"name": name}, lambda: secrets.set(name, value), by=person, door="console"
        )
        stored: JsonObject = {"name": record.name, "place": record.place, "restarted": list(restarted)}
        return await self._console.respond(request, await self._content(stored=stored))

    async def remove(self, request: Request) -> Response:
        """Remove a stored secret that nothing uses."""
        name: str = request.path_params["name"]
        secrets, person, place = self._crib.definition_secrets, self._console.principal(request), self._console.place
        await self._crib.changes.make(
            "secrets.remove", {"name": name}, lambda: secrets.remove(name, place), by=person, door="console"
        )
        return back("/secrets")

    async def _content(
        self,
        done: JsonObject | None = None,
        names: list[str] | None = None,
        *,
        undone: JsonObject | None = None,
        stored: JsonObject | None = None,
    ) -> ScreenContent:
        secrets, place = self._crib.definition_secrets, self._console.place
        value: JsonObject = {
            "plaintext": [each.to_json() for each in await secrets.plaintext(place)],
            "stored": [each.to_json() for each in await secrets.stored(place)],
            "canUndo": await secrets.can_undo(),
            "done": done,
            "names": names or [],
            "undone": undone,
            "set": stored,
        }
        return ScreenContent("servers", "Secrets", "secrets.html", value, "parts/secrets_body.html", also={"how": HOW})
