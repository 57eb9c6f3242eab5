"""Routes of `/api/servers` that act on connections: test, reload, sign in and out. For the owner only."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from toolcrib.host import Crib
from toolcrib.host.server_recorder import ToolCallRequest, record_server
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.web.api.reading import cwd_of, json_list, owner_only
from toolcrib.web.api.servers.shapes import RecordRequest, ServerShape, SignInRequest, SignInShape

LONGEST_WAIT = 25.0
"""Seconds that a sign-in request is held open; the client repeats it to wait longer."""

_Wait = Annotated[float, Query(description="Seconds to wait for completion.", ge=0, le=LONGEST_WAIT)]


def add_linking(router: APIRouter, crib: Crib) -> None:
    """Add these routes. Must precede the routes that match any name, because a name may contain slashes."""
    owner = Depends(owner_only(crib))

    @router.post("/reload", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def reload_servers(principal: Annotated[Principal, owner]) -> Response:
        """Read all config files again and reconnect servers that changed or failed."""
        return json_list(each.to_json() for each in await crib.upstreams.reload(None, cwd_of(crib, principal)))

    @router.post("/test", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def test_servers(principal: Annotated[Principal, owner]) -> Response:
        """Connect every allowed server concurrently and return their status."""
        return json_list(each.to_json() for each in await crib.upstreams.check_all(cwd_of(crib, principal)))

    @router.post("/{name:path}/test", response_model=ServerShape, response_model_exclude_unset=True)
    async def test_server(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """Connect a server, or list a connected one again; `state` and `lastError` have the outcome."""
        return (await crib.upstreams.test(name, cwd_of(crib, principal))).to_json()

    @router.post("/{name:path}/cancel", response_model=ServerShape, response_model_exclude_unset=True)
    async def cancel_test(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """Cancel an attempt to connect a server; a test of it that waits ends."""
        return (await crib.upstreams.cancel(name, cwd_of(crib, principal))).to_json()

    @router.post("/{name:path}/reload", response_model=ServerShape, response_model_exclude_unset=True)
    async def reload_server(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """Reconnect one server."""
        return (await crib.upstreams.reload(name, cwd_of(crib, principal)))[0].to_json()

    @router.post("/{name:path}/record", response_model=JsonObject)
    async def record_a_server(principal: Annotated[Principal, owner], name: str, body: RecordRequest) -> JsonObject:
        """Record what a server offers and the results of calls, for a double that needs no server."""
        calls = [ToolCallRequest(each.tool, each.arguments) for each in body.calls]
        return await record_server(crib, principal, name, calls, crib.recordings.mask)

    _add_sign_in(router, crib)


def _add_sign_in(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.get("/{name:path}/auth", response_model=SignInShape, response_model_exclude_unset=True)
    async def show_sign_in(principal: Annotated[Principal, owner], name: str, wait: _Wait = 0.0) -> JsonObject:
        """Return the state of a sign-in, waiting for its end if requested."""
        return (await crib.upstreams.await_sign_in(name, wait, cwd_of(crib, principal))).to_json()

    @router.post("/{name:path}/auth", response_model=SignInShape, response_model_exclude_unset=True)
    async def sign_in(principal: Annotated[Principal, owner], name: str, body: SignInRequest) -> JsonObject:
        """Start a sign-in and return the URL to open, or complete one with the URL that the browser ended at."""
        cwd = cwd_of(crib, principal)
        if body.answer is not None:
            await crib.upstreams.answer(name, body.answer, cwd)
            return (await crib.upstreams.await_sign_in(name, LONGEST_WAIT, cwd)).to_json()
        return (await crib.upstreams.sign_in(name, cwd, again=body.again)).to_json()

    @router.post("/{name:path}/unauth", response_model=ServerShape, response_model_exclude_unset=True)
    async def sign_out(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """Sign out of a server."""
        return (await crib.upstreams.sign_out(name, cwd_of(crib, principal))).to_json()
