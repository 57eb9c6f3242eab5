"""`/api/connect`: the apps that use this crib, and editing their config files, for the owner only."""

from typing import Annotated, Literal

from fastapi import Depends, Query

from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.connect.shapes import ClientShape, ConnectedShape, ConnectRequest, DisconnectedShape
from toolcrib.web.api.reading import StrictRoute, cwd_of, owner_only
from toolcrib.web.api.resource import Resource
from toolcrib.web.connecting import connect_app, disconnect_app
from toolcrib.web.tool_costs import with_offers

_Agent = Annotated[str | None, Query(alias="as", description="The agent of the connection.", max_length=200)]
_Scope = Annotated[Literal["user", "project"], Query(description="Whose file.")]
_Programs = Annotated[
    list[str] | None,
    Query(description="Programs on the caller's path; unset searches the path of the crib.", max_length=200),
]
_DryRun = Annotated[bool, Query(alias="dryRun", description="Return what would change, without changing it.")]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("connect", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[ClientShape])
    async def list_clients(principal: Annotated[Principal, owner], programs: _Programs = None) -> list[JsonObject]:
        """List every supported app: whether it is installed and whether it is connected."""
        found = frozenset(programs) if programs is not None else None
        return await with_offers(crib, await crib.clients.list(cwd_of(crib, principal), found))

    @router.post("/{client}", response_model=ConnectedShape, response_model_exclude_unset=True)
    async def connect_client(change: Annotated[Changing, changes], client: str, body: ConnectRequest) -> JsonObject:
        """Write this crib into an app's config file, or repair its entry; optionally move the app's servers here."""
        crib.permissions.require_agent(body.agent)
        found = frozenset(body.programs) if body.programs is not None else None
        cwd, chosen = cwd_of(crib, change.principal), tuple(body.chosen)
        asked = AppConnectRequest(client, cwd, body.agent, body.scope, body.stdio, found, body.level)
        if chosen and body.tools != "chosen":
            raise InvalidRequest("request.invalid", "`chosen` needs `tools` to be `chosen`.")

        async def work() -> JsonObject:
            options = {"move": body.move, "anyway": body.anyway, "dry_run": body.dry_run}
            return await connect_app(crib, asked, body.tools, chosen, by=change.principal.name, **options)

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
        """Restore an app's config file and revoke its token."""
        asked = AppConnectRequest(client, cwd_of(crib, change.principal), connected_as, scope)

        async def work() -> JsonObject:
            return await disconnect_app(crib, asked, by=change.principal.name, dry_run=dry_run)

        if dry_run:
            return await work()
        details = {"client": client, "agent": connected_as, "scope": scope}
        return await change.make("clients.disconnect", details, work)

    return router
