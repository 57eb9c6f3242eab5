"""Settings: every value with its origin, and the problems found in configuration files."""

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.sessions.programs import Programs
from toolcrib.base.settings import Environment, read_settings
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.version import __version__
from toolcrib.web.console.responses import Console, ScreenContent, route


def routes(console: Console) -> list[Route]:
    """Return the route of the page."""
    return [route("/settings", SettingsScreen(console).show)]


class SettingsScreen:
    """Shows the settings of this crib."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """Show all settings as loaded at startup, and the problems in the files as they are now."""
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
            "browsers": await self._browsers(),
            "problems": [problem.to_json() for problem in problems],
        }
        shown = ScreenContent("settings", "Settings", "settings.html", value, "parts/settings_body.html")
        return await self._console.respond(request, shown)

    async def _browsers(self) -> list[JsonObject]:
        """Return the browsers that get push messages; none while the key of the stored rows cannot be read."""
        try:
            return [each.to_json() for each in await self._crib.push.list()]
        except ConfigError:
            return []

    def _in_file(self) -> tuple[Problem, ...]:
        """Return the problems in `toolcrib.toml` as it is now."""
        home = self._crib.home
        loaded = read_settings(Environment(), {"home": str(home.root)})
        return (*loaded.errors, *loaded.problems, *Programs(home.settings_file).read().wrong.values())
