"""What the routes about permissions share: how faults are told, and what is said of a server.

Above: `policy` and the routes beside it. Below: the crib. It must never start or contact a server to explain something.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import Request, Response

from toolcrib.host import Crib
from toolcrib.model.tools import ToolRef
from toolcrib.policy.members import FaultyRequest
from toolcrib.server import problems
from toolcrib.server.api.reading import StrictRoute


class FaultsRoute(StrictRoute):
    """A route that tells every fault of what a person wrote, with its place."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer faults under the code they have, as `errors` of the problem."""
        handle = super().get_route_handler()

        async def handle_faults(request: Request) -> Response:
            try:
                return await handle(request)
            except FaultyRequest as error:
                places = [".".join(["body", *filter(None, fault.path.split("/"))]) for fault in error.faults]
                told = zip(places, error.faults, strict=True)
                return problems.response(error, [{"path": at, "message": fault.message} for at, fault in told])

        return handle_faults


async def server_note(crib: Crib, ref: ToolRef, place: Path | None) -> str | None:
    """Why a server that should have a tool does not offer it, as far as that is known."""
    if any(change["ref"] == str(ref) for change in crib.intake.changes(place)):
        return "Its definition changed and waits for a person. Run `toolcrib tools changes`."
    standing = next((each for each in await crib.links.list(place) if each.entry.alias == ref.server), None)
    if standing is None:
        known = ref.server in crib.catalog.at(str(place) if place is not None else None).sources
        return None if known else f"There is no server {ref.server!r}."
    if standing.state == "connected":
        return None
    action = f" Run `{standing.action}`." if standing.action else ""
    return f'Server "{standing.entry.name}": {standing.sentence}{action}'
