"""Helpers shared by the permission routes: error reporting and the status of a server.

Must never start or contact a server to explain a decision.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import Request, Response

from toolcrib.gate.policy.fields import FaultyRequest
from toolcrib.host import Crib
from toolcrib.model.tools import ToolRef
from toolcrib.web import problems
from toolcrib.web.api.reading import StrictRoute


class FaultsRoute(StrictRoute):
    """A route that reports every fault of the user's input with its path."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Report faults as `errors` of the problem, under the error's own code."""
        handle = super().get_route_handler()

        async def handle_faults(request: Request) -> Response:
            try:
                return await handle(request)
            except FaultyRequest as error:
                places = [".".join(["body", *filter(None, fault.path.split("/"))]) for fault in error.faults]
                faults = zip(places, error.faults, strict=True)
                return problems.response(error, [{"path": at, "message": fault.message} for at, fault in faults])

        return handle_faults


async def server_note(crib: Crib, ref: ToolRef, place: Path | None) -> str | None:
    """Return why a server does not offer a tool it should have, or None if unknown."""
    snapshot = crib.catalog.at(str(place) if place is not None else None)
    ref = snapshot.canonical(ref)
    if crib.intake.is_held(place, ref):
        return "Its definition changed and needs review. Run `toolcrib tools changes`."
    status = next((each for each in await crib.upstreams.list(place) if each.entry.alias == ref.server), None)
    if status is None:
        return None if ref.server in snapshot.sources else f"Server {ref.server!r} does not exist."
    if status.state == "connected":
        return None
    action = f" Run `{status.action}`." if status.action else ""
    return f'Server "{status.entry.name}": {status.sentence}{action}'
