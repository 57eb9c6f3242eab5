"""`/api/tokens`: the credentials that the owner hands out. A secret is told once, to whoever makes the token."""

from functools import partial
from typing import Annotated

from fastapi import Depends

from toolcrib.errors import NotFound
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.server.api.changing import Changing, owner_changes
from toolcrib.server.api.policy_shapes import NewToken, RemovedShape, TokenRequest, TokenShape
from toolcrib.server.api.reading import StrictRoute, owner_only
from toolcrib.server.api.resource import Resource


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("tokens", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[TokenShape], response_model_exclude_unset=True)
    async def list_tokens(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """All tokens, revoked ones too, the oldest first."""
        return [token.to_json() for token in await crib.tokens.list()]

    @router.post("", response_model=NewToken, response_model_exclude_unset=True, status_code=201)
    async def create_token(change: Annotated[Changing, changes], body: TokenRequest) -> JsonObject:
        """Make a token; `secret` is in this answer and never in another."""
        if body.agent is not None and not crib.permissions.has_agent(body.agent):
            raise NotFound("agent.unknown", f"There is no agent {body.agent!r}.")
        create = partial(crib.tokens.create, source=body.source, mode=body.mode, agent=body.agent)
        token, secret = await change.make(
            "tokens.create",
            body.model_dump(mode="json", by_alias=True, exclude_none=True),
            lambda: create(body.name, may_approve=body.may_approve),
        )
        return token.to_json() | {"secret": secret}

    @router.delete("/{name}", response_model=RemovedShape)
    async def revoke_token(change: Annotated[Changing, changes], name: str) -> JsonObject:
        """End a token: the next request with it is refused, and what is open under it is cut."""
        await change.make("tokens.revoke", {"name": name}, lambda: crib.tokens.revoke(name))
        return {"id": name}

    return router
