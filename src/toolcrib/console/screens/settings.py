"""Settings: every one with its value and where that comes from, and what is wrong in the files."""

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.respond import Console, Shown, route
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.sessions.programs import Programs
from toolcrib.settings import Environment, read_settings
from toolcrib.version import __version__


def routes(console: Console) -> list[Route]:
    """The page."""
    return [route("/settings", SettingsScreen(console).show)]


class SettingsScreen:
    """What this crib runs with."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """All settings. They are read when the crib starts; the files are looked at now."""
        crib = self._crib
        found = await crib.servers.list(self._console.place)
        problems = (*crib.permissions.problems, *await anyio.to_thread.run_sync(self._in_file), *found.problems)
        value: JsonObject = {
            "settings": crib.settings.describe(),
            "home": str(crib.home.root),
            "file": str(crib.home.settings_file),
            "version": __version__,
            "startedAt": crib.started_at.isoformat(timespec="seconds"),
            "address": self._console.address,
            "problems": [problem.to_json() for problem in problems],
        }
        shown = Shown("settings", "Settings", "settings.html", value, "parts/settings_body.html")
        return await self._console.respond(request, shown)

    def _in_file(self) -> tuple[Problem, ...]:
        """What is wrong in `toolcrib.toml` as it is now."""
        home = self._crib.home
        loaded = read_settings(Environment(), {"home": str(home.root)})
        return (*loaded.errors, *loaded.problems, *Programs(home.settings_file).read().wrong.values())
