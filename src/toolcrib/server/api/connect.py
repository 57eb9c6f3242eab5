"""`/api/connect`: the tools that use this crib, and writing it into their files, which only the owner does."""

from typing import Annotated, Literal

from fastapi import Depends, Query

from toolcrib.errors import NotFound
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.server.api.changing import Changing, owner_changes
from toolcrib.server.api.connect_shapes import ClientShape, ConnectedShape, ConnectRequest, DisconnectedShape
from toolcrib.server.api.reading import StrictRoute, cwd_of, owner_only
from toolcrib.server.api.resource import Resource
from toolcrib.servers import Asked

_Agent = Annotated[str | None, Query(alias="as", description="The agent it was connected as.", max_length=200)]
_Scope = Annotated[Literal["user", "project"], Query(description="Whose file.")]
_DryRun = Annotated[bool, Query(alias="dryRun", description="Only tell what would change.")]


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("connect", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[ClientShape])
    async def list_clients(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """Every tool that can use this crib: whether it is here, and whether it does."""
        return [state.to_json() for state in await crib.clients.list(cwd_of(crib, principal))]

    @router.post("/{client}", response_model=ConnectedShape, response_model_exclude_unset=True)
    async def connect_client(change: Annotated[Changing, changes], client: str, body: ConnectRequest) -> JsonObject:
        """Write this crib into a tool's own file, or mend what stands there; its other servers may be moved here."""
        if body.agent is not None and not crib.permissions.has_agent(body.agent):
            raise NotFound("agent.unknown", f"There is no agent {body.agent!r}.")
        asked = Asked(client, cwd_of(crib, change.principal), body.agent, body.scope, body.stdio)

        async def work() -> JsonObject:
            done = await crib.clients.connect(asked, move=body.move, anyway=body.anyway, dry_run=body.dry_run)
            return done.to_json()

        if body.dry_run:
            return await work()
        return await change.make("clients.connect", {"client": client, **body.model_dump(by_alias=True)}, work)

    @router.delete("/{client}", response_model=DisconnectedShape, response_model_exclude_unset=True)
    async def disconnect_client(
        change: Annotated[Changing, changes],
        client: str,
        connected_as: _Agent = None,
        scope: _Scope = "user",
        dry_run: _DryRun = False,
    ) -> JsonObject:
        """Bring a tool's file back to what it was before, and end the token."""
        asked = Asked(client, cwd_of(crib, change.principal), connected_as, scope)

        async def work() -> JsonObject:
            return (await crib.clients.undo(asked, dry_run=dry_run)).to_json()

        if dry_run:
            return await work()
        told = {"client": client, "agent": connected_as, "scope": scope}
        return await change.make("clients.disconnect", told, work)

    return router
