"""The client's methods for schedules."""

from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.wire import Wire, path_to

_SCHEDULES = "/api/schedules"


class SchedulesClient:
    """Manages schedules."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def list(self) -> list[JsonObject]:
        """Return all schedules by name."""
        return await self._ask("GET", _SCHEDULES)

    async def get(self, id: str) -> JsonObject:
        """Return one schedule with what would prevent a run."""
        return await self._ask("GET", path_to(_SCHEDULES, id))

    async def add(self, body: JsonObject) -> JsonObject:
        """Create a schedule; the directory defaults to the client's own."""
        return await self._ask("POST", _SCHEDULES, body=body)

    async def replace(self, id: str, body: JsonObject) -> JsonObject:
        """Replace a schedule."""
        return await self._ask("PUT", path_to(_SCHEDULES, id), body=body)

    async def change(self, id: str, body: JsonObject) -> JsonObject:
        """Change the given fields of a schedule."""
        return await self._ask("PATCH", path_to(_SCHEDULES, id), body=body)

    async def pause(self, id: str) -> JsonObject:
        """Pause a schedule."""
        return await self._ask("POST", f"{path_to(_SCHEDULES, id)}/pause")

    async def resume(self, id: str) -> JsonObject:
        """Resume a schedule."""
        return await self._ask("POST", f"{path_to(_SCHEDULES, id)}/resume")

    async def run(self, id: str) -> JsonObject:
        """Start a run now. Its `dueAt` identifies it in the history."""
        return await self._ask("POST", f"{path_to(_SCHEDULES, id)}/run")

    async def history(self, id: str, limit: int | None = None) -> "list[JsonObject]":
        """Return the runs of a schedule, newest first."""
        return await self._ask("GET", f"{path_to(_SCHEDULES, id)}/history", {"limit": limit})

    async def readiness(self, id: str) -> JsonObject:
        """Return what would prevent a run now."""
        return await self._ask("GET", f"{path_to(_SCHEDULES, id)}/readiness")

    async def remove(self, id: str) -> None:
        """Remove a schedule and its history."""
        await self._ask("DELETE", path_to(_SCHEDULES, id))
