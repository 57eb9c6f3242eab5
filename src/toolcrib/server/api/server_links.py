"""The routes of `/api/servers` that act on links: test, reload, sign in and out. Each is the owner's to ask for."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.server.api.reading import cwd_of, owner_only, written
from toolcrib.server.api.server_shapes import ServerShape, SignInRequest, SignInShape

LONGEST_WAIT = 25.0
"""Seconds that a question about a sign-in is held open; who wants to know longer asks again."""

_Wait = Annotated[float, Query(description="Seconds to wait for its end.", ge=0, le=LONGEST_WAIT)]


def add_linking(router: APIRouter, crib: Crib) -> None:
    """Add these routes; before those that take any name, since a name may have slashes."""
    owner = Depends(owner_only(crib))

    @router.post("/reload", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def reload_servers(principal: Annotated[Principal, owner]) -> Response:
        """Read all files again and open what changed or failed anew; the rest is not touched."""
        return written(each.to_json() for each in await crib.links.reload(None, cwd_of(crib, principal)))

    @router.post("/test", response_model=list[ServerShape], response_model_exclude_unset=True)
    async def test_servers(principal: Annotated[Principal, owner]) -> Response:
        """Connect every server that may be, side by side, and tell how each stands."""
        return written(each.to_json() for each in await crib.links.check_all(cwd_of(crib, principal)))

    @router.post("/{name:path}/test", response_model=ServerShape, response_model_exclude_unset=True)
    async def test_server(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """Connect now, or ask again what a connected server offers; `state` and `lastError` tell how that went."""
        return (await crib.links.test(name, cwd_of(crib, principal))).to_json()

    @router.post("/{name:path}/reload", response_model=ServerShape, response_model_exclude_unset=True)
    async def reload_server(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """Open the link of one server anew."""
        return (await crib.links.reload(name, cwd_of(crib, principal)))[0].to_json()

    @router.get("/{name:path}/auth", response_model=SignInShape, response_model_exclude_unset=True)
    async def show_sign_in(principal: Annotated[Principal, owner], name: str, wait: _Wait = 0.0) -> JsonObject:
        """Where the sign-in at a server stands, or how it ended."""
        return (await crib.links.await_sign_in(name, wait, cwd_of(crib, principal))).to_json()

    @router.post("/{name:path}/auth", response_model=SignInShape, response_model_exclude_unset=True)
    async def sign_in(principal: Annotated[Principal, owner], name: str, body: SignInRequest) -> JsonObject:
        """Begin a sign-in and give the address for the browser; or hand in where a browser elsewhere ended."""
        cwd = cwd_of(crib, principal)
        if body.answer is not None:
            await crib.links.answer(name, body.answer, cwd)
            return (await crib.links.await_sign_in(name, LONGEST_WAIT, cwd)).to_json()
        return (await crib.links.sign_in(name, cwd, again=body.again)).to_json()

    @router.post("/{name:path}/unauth", response_model=ServerShape, response_model_exclude_unset=True)
    async def sign_out(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """Forget the sign-in at a server."""
        return (await crib.links.sign_out(name, cwd_of(crib, principal))).to_json()
