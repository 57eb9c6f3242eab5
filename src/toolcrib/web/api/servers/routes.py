"""`/api/servers`: the configured servers with their status, and changes to their definitions.

Every principal may read; only the owner may make changes. Routes that start or contact a server are in `operations`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.servers.edits import Edit
from toolcrib.servers.sandbox import SandboxChoice
from toolcrib.servers.servers import Details
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.reading import StrictRoute, check_owner, cwd_of, json_list, owner_only, path_of, principal_of
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.servers.operations import add_linking
from toolcrib.web.api.servers.shapes import (
    AddRequest,
    ChangedServer,
    DefinitionShape,
    EditShape,
    ExportRequest,
    ExportShape,
    ImportRequest,
    PathRequest,
    RecognisedShape,
    RemovedServer,
    SandboxRequest,
    ServerDetails,
    ServerShape,
    TextRequest,
    TransferShape,
    TrustRequest,
    UndoRequest,
)
from toolcrib.web.api.shapes import ProblemShape

_Client = Annotated[str, Query(description="The app to export for, such as `cursor`.", max_length=100)]
_Names = Annotated[list[str] | None, Query(alias="name", description="Only these servers.")]
_InClient = Annotated[bool, Query(alias="inClient", description="Edit the file of the app that defines it.")]
_DryRun = Annotated[bool, Query(alias="dryRun", description="Return what would change, without changing it.")]
_IfMatch = Annotated[str | None, Header(description="The `ETag` of the version you read.")]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("servers", StrictRoute)
    add_linking(router, crib)
    _add_reading(router, crib)
    _add_moving(router, crib)
    _add_trusting(router, crib)
    _add_changing(router, crib)
    _add_sandboxing(router, crib)
    return router


def _add_reading(router: APIRouter, crib: Crib) -> None:
    """Add the routes that read. Lists that are not servers are under `-/`, which cannot be the alias of a server."""
    caller = Depends(principal_of(crib.principals))

    @router.get("", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def list_servers(principal: Annotated[Principal, caller]) -> Response:
        """List every server that an app uses in `cwd`, or in the user's own configuration."""
        return json_list(status.to_json() for status in await crib.upstreams.list(cwd_of(crib, principal)))

    @router.get("/-/problems", response_model=list[ProblemShape], response_model_exclude_unset=True)
    async def list_server_problems(principal: Annotated[Principal, caller]) -> list[JsonObject]:
        """List problems of whole config files."""
        found = await crib.servers.list(cwd_of(crib, principal))
        return [problem.to_json() for problem in found.problems]

    @router.get("/-/export", response_model=ExportShape, response_model_exclude_unset=True)
    async def export_servers(
        principal: Annotated[Principal, caller], client: _Client, names: _Names = None
    ) -> JsonObject:
        """Export our servers, or the named ones, as a file of that app, with values as written."""
        check_owner(principal)
        return (await crib.servers.export(client, names or (), cwd_of(crib, principal))).to_json()

    @router.get("/{name:path}", response_model=ServerDetails, response_model_exclude_unset=True)
    async def show_server(response: Response, principal: Annotated[Principal, caller], name: str) -> JsonObject:
        """Return one server by alias or name: its definition, the origin of each value, and what trusting it means."""
        details = await crib.servers.get(name, cwd_of(crib, principal))
        response.headers["etag"] = f'"{details.version}"'
        server = await crib.upstreams.with_credential_problem(details.server)
        return _full(crib, replace(details, server=server))


def _add_moving(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.post("/import", response_model=TransferShape, response_model_exclude_unset=True)
    async def import_servers(principal: Annotated[Principal, owner], body: ImportRequest) -> JsonObject:
        """Import servers of other apps into our file. Each is reported as taken or skipped."""
        place = cwd_of(crib, principal)
        done = await crib.servers.import_(body.names, place, dry_run=body.dry_run, shown=body.digests)
        return done.to_json()

    @router.post("/export", response_model=TransferShape, response_model_exclude_unset=True)
    async def write_export(principal: Annotated[Principal, owner], body: ExportRequest) -> JsonObject:
        """Write our servers, or the named ones, into that app's own file."""
        done = await crib.servers.export_to(
            body.client, body.names, cwd_of(crib, principal), scope=body.scope, dry_run=body.dry_run
        )
        return done.to_json()

    @router.post("/undo", response_model=EditShape)
    async def undo_change(principal: Annotated[Principal, owner], body: UndoRequest) -> JsonObject:
        """Undo the last change made here, of this file or of any."""
        file = path_of(body.file) if body.file is not None else None
        return (await crib.servers.undo(file)).to_json()

    @router.post("/recognise", response_model=RecognisedShape, response_model_exclude_unset=True)
    async def recognise_servers(principal: Annotated[Principal, owner], body: TextRequest) -> JsonObject:
        """Recognize servers in pasted text: an app's snippet, a URL, a command line or an install link."""
        found, problems = await crib.servers.recognise(body.text)
        return {
            "servers": [proposal.to_json() for proposal in found],
            "problems": [problem.to_json() for problem in problems],
        }


def _add_trusting(router: APIRouter, crib: Crib) -> None:
    changes = Depends(owner_changes(crib))

    @router.post("/trust", response_model=list[ServerDetails], response_model_exclude_unset=True)
    async def trust_path(change: Annotated[Changing, changes], body: TrustRequest) -> list[JsonObject]:
        """Trust every server of a project or of a user's file as it is now. Servers added later need trust again."""
        path = path_of(body.path)
        if not body.dry_run:
            agreed = {"path": str(path), "digests": body.digests, "allowSecrets": body.allow_secrets}
            await change.make(
                "servers.trust",
                agreed,
                lambda: crib.servers.trust_path(path, shown=body.digests, secrets=body.allow_secrets),
            )
        return [_full(crib, details) for details in await crib.servers.at(path)]

    @router.post("/untrust", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def untrust_path(change: Annotated[Changing, changes], body: PathRequest) -> list[JsonObject]:
        """Revoke trust in all servers of a project or file."""
        path = path_of(body.path)
        await change.make("servers.untrust", {"path": str(path)}, lambda: crib.servers.untrust_path(path))
        return [crib.upstreams.status(details.server).to_json() for details in await crib.servers.at(path)]

    @router.post("/{name:path}/trust", response_model=ServerShape, response_model_exclude_unset=True)
    async def trust_server(
        change: Annotated[Changing, changes],
        name: str,
        digest: Annotated[
            str | None, Query(description="The digest of the definition that was shown.", max_length=64)
        ] = None,
        allow_secrets: Annotated[
            bool, Query(alias="allowSecrets", description="Confirms the grave entries of `resolves`.")
        ] = False,
    ) -> JsonObject:
        """Trust a server as it is defined now. A changed definition needs trust again."""
        cwd = cwd_of(crib, change.principal)
        agreed = {"name": name, "digest": digest, "allowSecrets": allow_secrets}
        trusted = await change.make(
            "servers.trust", agreed, lambda: crib.servers.trust(name, cwd, shown=digest, secrets=allow_secrets)
        )
        return crib.upstreams.status(trusted).to_json()

    @router.post("/{name:path}/untrust", response_model=ServerShape, response_model_exclude_unset=True)
    async def untrust_server(change: Annotated[Changing, changes], name: str) -> JsonObject:
        """Revoke trust in a server."""
        cwd = cwd_of(crib, change.principal)
        found = await change.make("servers.untrust", {"name": name}, lambda: crib.servers.untrust(name, cwd))
        return crib.upstreams.status(found).to_json()


def _add_changing(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.post("", response_model=ChangedServer, response_model_exclude_unset=True, status_code=201)
    async def add_server(principal: Annotated[Principal, owner], body: AddRequest) -> JsonObject:
        """Add a server to our file, or to the project's. It is trusted, because the owner adds it."""
        cwd = cwd_of(crib, principal)
        done = await crib.servers.add(body.name, body.entry(), scope=body.scope, cwd=cwd)
        return await _changed_json(crib, body.name, cwd, done)

    @router.put("/{name:path}", response_model=ChangedServer, response_model_exclude_unset=True)
    async def replace_server(
        principal: Annotated[Principal, owner], name: str, body: DefinitionShape, if_match: _IfMatch = None
    ) -> JsonObject:
        """Replace a server of ours. Masked values are kept."""
        cwd = cwd_of(crib, principal)
        done = await crib.servers.replace(name, body.entry(), cwd, version=_version(if_match))
        return await _changed_json(crib, name, cwd, done)

    @router.delete("/{name:path}", response_model=RemovedServer)
    async def remove_server(
        principal: Annotated[Principal, owner],
        name: str,
        in_client: _InClient = False,
        dry_run: _DryRun = False,
        if_match: _IfMatch = None,
    ) -> JsonObject:
        """Remove a server from our file, or hide one that another file defines."""
        cwd = cwd_of(crib, principal)
        server = await crib.servers.find(name, cwd)
        done = await crib.servers.remove(name, cwd, in_client=in_client, dry_run=dry_run, version=_version(if_match))
        own = (name, server.name) if name == server.alias else (name,)
        others = [other for other in (server.name, *server.same_as) if other not in own]
        return {"name": name, "sameAs": others, "change": done.to_json()}

    @router.post("/{name:path}/enable", response_model=ChangedServer, response_model_exclude_unset=True)
    async def enable_server(
        principal: Annotated[Principal, owner], name: str, in_client: _InClient = False, dry_run: _DryRun = False
    ) -> JsonObject:
        """Enable a server, or restore one that was removed from the list."""
        return await _switch(crib, principal, name, True, in_client, dry_run)

    @router.post("/{name:path}/disable", response_model=ChangedServer, response_model_exclude_unset=True)
    async def disable_server(
        principal: Annotated[Principal, owner], name: str, in_client: _InClient = False, dry_run: _DryRun = False
    ) -> JsonObject:
        """Disable a server."""
        return await _switch(crib, principal, name, False, in_client, dry_run)


def _add_sandboxing(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.post("/{name:path}/sandbox", response_model=ChangedServer, response_model_exclude_unset=True)
    async def sandbox_server(
        principal: Annotated[Principal, owner], name: str, body: SandboxRequest, dry_run: _DryRun = False
    ) -> JsonObject:
        """Change the sandbox of a stdio server. It restarts if it runs."""
        cwd = cwd_of(crib, principal)
        choice = SandboxChoice(
            body.profile,
            tuple(body.read),
            tuple(body.write),
            body.network,
            tuple(body.hosts),
            tuple(body.removed),
            body.unconfined,
        )
        done = await crib.servers.sandbox(name, choice, cwd, dry_run=dry_run)
        found = await crib.servers.find(name, cwd)
        return crib.upstreams.status(found).to_json() | {"change": done.to_json()}


async def _switch(
    crib: Crib, principal: Principal, name: str, enabled: bool, in_client: bool, dry_run: bool
) -> JsonObject:
    cwd = cwd_of(crib, principal)
    done = await crib.servers.switch(name, enabled, cwd, in_client=in_client, dry_run=dry_run)
    return await _changed_json(crib, name, cwd, done)


async def _changed_json(crib: Crib, name: str, cwd: Path | None, done: Edit) -> JsonObject:
    found = await crib.servers.find(name, cwd, file=done.file)
    return crib.upstreams.status(found).to_json() | {"change": done.to_json()}


def _full(crib: Crib, details: Details) -> JsonObject:
    return details.to_json() | crib.upstreams.status(details.server).to_json()


def _version(if_match: str | None) -> str | None:
    """Return the version of an `ETag`, or None for `*`."""
    return None if if_match in (None, "*") else if_match.strip().removeprefix("W/").strip('"')
