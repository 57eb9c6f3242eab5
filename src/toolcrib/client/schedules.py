"""What a client asks about schedules: make them, let them rest, run them now, see what became of them.

Above: `Client.schedules`. Below: `wire`.
"""

from toolcrib.client.wire import Wire, path_to
from toolcrib.model.json import JsonObject

_SCHEDULES = "/api/schedules"


class SchedulesClient:
    """The part of one asker's client that is about schedules."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def list(self) -> list[JsonObject]:
        """All schedules, by name."""
        return await self._ask("GET", _SCHEDULES)

    async def get(self, id: str) -> JsonObject:
        """One schedule, with what would keep it from running."""
        return await self._ask("GET", path_to(_SCHEDULES, id))

    async def add(self, body: JsonObject) -> JsonObject:
        """Make a schedule; the client's own directory counts where the body names none."""
        return await self._ask("POST", _SCHEDULES, body=body)

    async def replace(self, id: str, body: JsonObject) -> JsonObject:
        """Put another one in its place."""
        return await self._ask("PUT", path_to(_SCHEDULES, id), body=body)

    async def change(self, id: str, body: JsonObject) -> JsonObject:
        """Change the named fields."""
        return await self._ask("PATCH", path_to(_SCHEDULES, id), body=body)

    async def pause(self, id: str) -> JsonObject:
        """Let it rest."""
        return await self._ask("POST", f"{path_to(_SCHEDULES, id)}/pause")

    async def resume(self, id: str) -> JsonObject:
        """Follow it again."""
        return await self._ask("POST", f"{path_to(_SCHEDULES, id)}/resume")

    async def run(self, id: str) -> JsonObject:
        """Begin a run now; its `dueAt` tells it from others in the history."""
        return await self._ask("POST", f"{path_to(_SCHEDULES, id)}/run")

    async def history(self, id: str, limit: int | None = None) -> "list[JsonObject]":
        """Its runs, the newest first."""
        return await self._ask("GET", f"{path_to(_SCHEDULES, id)}/history", {"limit": limit})

    async def readiness(self, id: str) -> JsonObject:
        """What would keep it from running now."""
        return await self._ask("GET", f"{path_to(_SCHEDULES, id)}/readiness")

    async def remove(self, id: str) -> None:
        """Remove one with its history."""
        await self._ask("DELETE", path_to(_SCHEDULES, id))
