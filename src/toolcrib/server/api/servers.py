"""`/api/servers`: what servers are defined where and how they stand, and every change of a definition.

Reading is for every asker; only the owner changes anything. What starts or contacts a server is in `server_links`.
"""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.server.api.changing import Changing, owner_changes
from toolcrib.server.api.reading import StrictRoute, asker, check_owner, cwd_of, owner_only, path_of, written
from toolcrib.server.api.resource import Resource
from toolcrib.server.api.server_links import add_linking
from toolcrib.server.api.server_shapes import (
    AddRequest,
    ChangedServer,
    Definition,
    EditShape,
    ExportRequest,
    ExportShape,
    ImportRequest,
    PathRequest,
    RecognisedShape,
    RemovedServer,
    ServerDetails,
    ServerShape,
    TextRequest,
    TransferShape,
    TrustRequest,
    UndoRequest,
)
from toolcrib.server.api.shapes import ProblemShape
from toolcrib.servers import Details, Edit

_Client = Annotated[str, Query(description="The tool to write for, such as `cursor`.", max_length=100)]
_Names = Annotated[list[str] | None, Query(alias="name", description="Only these servers.")]
_InClient = Annotated[bool, Query(alias="inClient", description="Edit the file of the tool that defines it.")]
_DryRun = Annotated[bool, Query(alias="dryRun", description="Only tell what would change.")]
_IfMatch = Annotated[str | None, Header(description="The `ETag` that was read.")]


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("servers", StrictRoute)
    add_linking(router, crib)
    _add_reading(router, crib)
    _add_moving(router, crib)
    _add_trusting(router, crib)
    _add_changing(router, crib)
    return router


def _add_reading(router: APIRouter, crib: Crib) -> None:
    """What is read and is not a server stands under `-/`: no alias has a slash, so every server can be asked for."""
    who = Depends(asker(crib.principals))

    @router.get("", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def list_servers(principal: Annotated[Principal, who]) -> Response:
        """Every server that a tool is configured to use in `cwd`, or anywhere for the person."""
        return written(standing.to_json() for standing in await crib.links.list(cwd_of(crib, principal)))

    @router.get("/-/problems", response_model=list[ProblemShape], response_model_exclude_unset=True)
    async def list_server_problems(principal: Annotated[Principal, who]) -> list[JsonObject]:
        """What is wrong with whole files."""
        found = await crib.servers.list(cwd_of(crib, principal))
        return [problem.to_json() for problem in found.problems]

    @router.get("/-/export", response_model=ExportShape, response_model_exclude_unset=True)
    async def export_servers(principal: Annotated[Principal, who], client: _Client, names: _Names = None) -> JsonObject:
        """Our servers, or the named ones, as a file of that client; values are as they were written."""
        check_owner(principal)
        return (await crib.servers.export(client, names or (), cwd_of(crib, principal))).to_json()

    @router.get("/{name:path}", response_model=ServerDetails, response_model_exclude_unset=True)
    async def show_server(response: Response, principal: Annotated[Principal, who], name: str) -> JsonObject:
        """One server, by alias or name: its definition, where each value comes from, what trusting it means."""
        details = await crib.servers.get(name, cwd_of(crib, principal))
        response.headers["etag"] = f'"{details.version}"'
        return _full(crib, details)


def _add_moving(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.post("/import", response_model=TransferShape, response_model_exclude_unset=True)
    async def import_servers(principal: Annotated[Principal, owner], body: ImportRequest) -> JsonObject:
        """Take servers of other tools over into our file; each one is told of, taken or skipped."""
        done = await crib.servers.import_(body.names, cwd_of(crib, principal), dry_run=body.dry_run)
        return done.to_json()

    @router.post("/export", response_model=TransferShape, response_model_exclude_unset=True)
    async def write_export(principal: Annotated[Principal, owner], body: ExportRequest) -> JsonObject:
        """Write our servers, or the named ones, into that client's own file."""
        done = await crib.servers.export_to(
            body.client, body.names, cwd_of(crib, principal), scope=body.scope, dry_run=body.dry_run
        )
        return done.to_json()

    @router.post("/undo", response_model=EditShape)
    async def undo_change(principal: Annotated[Principal, owner], body: UndoRequest) -> JsonObject:
        """Take back the last change that was made here, of this file or of any."""
        file = path_of(body.file) if body.file is not None else None
        return (await crib.servers.undo(file)).to_json()

    @router.post("/recognise", response_model=RecognisedShape, response_model_exclude_unset=True)
    async def recognise_servers(principal: Annotated[Principal, owner], body: TextRequest) -> JsonObject:
        """The servers in a pasted text: a client's snippet, a URL, a command line, an install link. Adds nothing."""
        found, problems = await crib.servers.recognise(body.text)
        return {
            "servers": [proposal.to_json() for proposal in found],
            "problems": [problem.to_json() for problem in problems],
        }


def _add_trusting(router: APIRouter, crib: Crib) -> None:
    changes = Depends(owner_changes(crib))

    @router.post("/trust", response_model=list[ServerDetails], response_model_exclude_unset=True)
    async def trust_path(change: Annotated[Changing, changes], body: TrustRequest) -> list[JsonObject]:
        """Trust every server of a project as it is now, or a file of the person for good."""
        path = path_of(body.path)
        if not body.dry_run:
            agreed = {"path": str(path), "digests": body.digests}
            await change.make("servers.trust", agreed, lambda: crib.servers.trust_path(path, shown=body.digests))
        return [_full(crib, details) for details in await crib.servers.at(path)]

    @router.post("/untrust", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def untrust_path(change: Annotated[Changing, changes], body: PathRequest) -> list[JsonObject]:
        """Take back everything that was agreed to of a project or a file."""
        path = path_of(body.path)
        await change.make("servers.untrust", {"path": str(path)}, lambda: crib.servers.untrust_path(path))
        return [crib.links.standing(details.server).to_json() for details in await crib.servers.at(path)]

    @router.post("/{name:path}/trust", response_model=ServerShape, response_model_exclude_unset=True)
    async def trust_server(
        change: Annotated[Changing, changes],
        name: str,
        digest: Annotated[str | None, Query(description="Of the question that was shown.", max_length=64)] = None,
    ) -> JsonObject:
        """Agree to start this server as it is defined now; another definition asks again."""
        cwd, agreed = cwd_of(crib, change.principal), {"name": name, "digest": digest}
        trusted = await change.make("servers.trust", agreed, lambda: crib.servers.trust(name, cwd, shown=digest))
        return crib.links.standing(trusted).to_json()

    @router.post("/{name:path}/untrust", response_model=ServerShape, response_model_exclude_unset=True)
    async def untrust_server(change: Annotated[Changing, changes], name: str) -> JsonObject:
        """Take the agreement back."""
        cwd = cwd_of(crib, change.principal)
        found = await change.make("servers.untrust", {"name": name}, lambda: crib.servers.untrust(name, cwd))
        return crib.links.standing(found).to_json()


def _add_changing(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.post("", response_model=ChangedServer, response_model_exclude_unset=True, status_code=201)
    async def add_server(principal: Annotated[Principal, owner], body: AddRequest) -> JsonObject:
        """Add a server to our file, or to the project's; the owner says so, so it is trusted."""
        cwd = cwd_of(crib, principal)
        done = await crib.servers.add(body.name, body.entry(), scope=body.scope, cwd=cwd)
        return await _changed(crib, body.name, cwd, done)

    @router.put("/{name:path}", response_model=ChangedServer, response_model_exclude_unset=True)
    async def replace_server(
        principal: Annotated[Principal, owner], name: str, body: Definition, if_match: _IfMatch = None
    ) -> JsonObject:
        """Replace a server of ours. A value that is still masked stays what it was."""
        cwd = cwd_of(crib, principal)
        done = await crib.servers.replace(name, body.entry(), cwd, version=_version(if_match))
        return await _changed(crib, name, cwd, done)

    @router.delete("/{name:path}", response_model=RemovedServer)
    async def remove_server(
        principal: Annotated[Principal, owner],
        name: str,
        in_client: _InClient = False,
        dry_run: _DryRun = False,
        if_match: _IfMatch = None,
    ) -> JsonObject:
        """Take a server off the list: out of our file, or hidden by a word in it."""
        done = await crib.servers.remove(
            name, cwd_of(crib, principal), in_client=in_client, dry_run=dry_run, version=_version(if_match)
        )
        return {"name": name, "change": done.to_json()}

    @router.post("/{name:path}/enable", response_model=ChangedServer, response_model_exclude_unset=True)
    async def enable_server(
        principal: Annotated[Principal, owner], name: str, in_client: _InClient = False, dry_run: _DryRun = False
    ) -> JsonObject:
        """Turn a server on; one that was taken off the list comes back."""
        return await _switch(crib, principal, name, True, in_client, dry_run)

    @router.post("/{name:path}/disable", response_model=ChangedServer, response_model_exclude_unset=True)
    async def disable_server(
        principal: Annotated[Principal, owner], name: str, in_client: _InClient = False, dry_run: _DryRun = False
    ) -> JsonObject:
        """Turn a server off."""
        return await _switch(crib, principal, name, False, in_client, dry_run)


async def _switch(
    crib: Crib, principal: Principal, name: str, enabled: bool, in_client: bool, dry_run: bool
) -> JsonObject:
    cwd = cwd_of(crib, principal)
    done = await crib.servers.switch(name, enabled, cwd, in_client=in_client, dry_run=dry_run)
    return await _changed(crib, name, cwd, done)


async def _changed(crib: Crib, name: str, cwd: Path | None, done: Edit) -> JsonObject:
    found = await crib.servers.find(name, cwd, file=done.file)
    return crib.links.standing(found).to_json() | {"change": done.to_json()}


def _full(crib: Crib, details: Details) -> JsonObject:
    return details.to_json() | crib.links.standing(details.server).to_json()


def _version(if_match: str | None) -> str | None:
    """The version of an `ETag`; `*` fits any."""
    return None if if_match in (None, "*") else if_match.strip().removeprefix("W/").strip('"')
