"""`/api/nodes`: the nodes of the cluster, and draining one, for the owner."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import JsonObject, as_object, loads
from toolcrib.model.principals import Principal
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.reading import owner_only
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import Shape
from toolcrib.web.forwarded import FORWARDED

_LINES = "application/x-ndjson"


class NodeShape(Shape):
    """One node. `state` is `alive`, `draining` or `dead`."""

    id: str
    address: str | None = Field(description="The URL at which other nodes reach it.")
    state: str
    version: str
    epoch: int = Field(description="The number of its lease; grows with every start of any node.")
    load: int = Field(description="Calls in flight.")
    sessions: int = Field(description="Sessions with work in progress.")
    lease_seconds: float | None = Field(description="Seconds until its lease ends; null if it does not.")
    draining: bool
    seen_at: str = Field(description="The last heartbeat, by the clock of the database.")


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("nodes")
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[NodeShape])
    async def list_nodes(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List the nodes that share the database, oldest lease first, including dead ones."""
        return [node.to_json() for node in await crib.membership.described()]

    @router.post("/{id}/drain", response_model=NodeShape)
    async def drain_node(change: Annotated[Changing, changes], id: str) -> JsonObject:
        """Ask a node to give its work away and stop. `id` may also be its address or the beginning of its id."""
        node = await crib.membership.find(id)
        drained = await change.make("nodes.drain", {"id": node.id}, lambda: crib.membership.drain(node.id))
        return drained.to_json()

    @router.post("/servers/{key}", response_class=StreamingResponse, include_in_schema=False)
    async def open_server(request: Request, key: str) -> StreamingResponse:
        """Connect another node to a server that runs here for all nodes."""
        check_node(request)
        return StreamingResponse(await crib.placed_servers.open(key), media_type=_LINES)

    @router.post("/servers/{key}/calls", response_class=StreamingResponse, include_in_schema=False)
    async def call_server(request: Request, key: str) -> StreamingResponse:
        """Send the request of another node to a server that runs here for all nodes."""
        check_node(request)
        body = as_object(loads(await request.body()))
        if body is None:
            raise InvalidRequest("request.malformed", "The body must be an object.")
        return StreamingResponse(await crib.placed_servers.call(key, body), media_type=_LINES)

    def check_node(request: Request) -> None:
        """Raise unless another node signed the request, and this one may run servers now."""
        if FORWARDED not in request.scope:
            raise NotFound("route.unknown", f"There is nothing at {request.url.path}.")
        crib.stop_switch.check()
        if crib.membership.lost:
            raise Unavailable("node.lost", "This node lost its lease, so it makes no calls.")

    return router
