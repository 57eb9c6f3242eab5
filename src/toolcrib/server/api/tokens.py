"""`/api/tokens`: the credentials that the owner hands out. A secret is told once, to whoever makes the token."""

from typing import Annotated

from fastapi import APIRouter, Depends

from toolcrib.errors import NotFound
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.server.api.policy_shapes import NewToken, RemovedShape, TokenRequest, TokenShape
from toolcrib.server.api.reading import StrictRoute, owner_only


def routes(crib: Crib) -> APIRouter:
    """The routes, on this crib."""
    router = APIRouter(prefix="/api/tokens", tags=["tokens"], route_class=StrictRoute)
    owner = Depends(owner_only(crib))

    @router.get("", response_model=list[TokenShape], response_model_exclude_unset=True)
    async def list_tokens(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """All tokens, revoked ones too, the oldest first."""
        return [token.to_json() for token in await crib.tokens.list()]

    @router.post("", response_model=NewToken, response_model_exclude_unset=True, status_code=201)
    async def create_token(principal: Annotated[Principal, owner], body: TokenRequest) -> JsonObject:
        """Make a token; `secret` is in this answer and never in another."""
        if body.agent is not None and not crib.permissions.has_agent(body.agent):
            raise NotFound("agent.unknown", f"There is no agent {body.agent!r}.")
        token, secret = await crib.tokens.create(
            body.name, source=body.source, mode=body.mode, agent=body.agent, may_approve=body.may_approve
        )
        return token.to_json() | {"secret": secret}

    @router.delete("/{name}", response_model=RemovedShape)
    async def revoke_token(principal: Annotated[Principal, owner], name: str) -> JsonObject:
        """End a token: the next request with it is refused, and what is open under it is cut."""
        await crib.tokens.revoke(name)
        return {"id": name}

    return router
