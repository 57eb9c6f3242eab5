"""`/api/tokens`: the owner's named tokens. A secret is returned only when its token is created."""

from functools import partial
from typing import Annotated

from fastapi import Depends

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import NewToken, RemovedShape, TokenRequest, TokenShape
from toolcrib.web.api.reading import StrictRoute, owner_only
from toolcrib.web.api.resource import Resource


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("tokens", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[TokenShape], response_model_exclude_unset=True)
    async def list_tokens(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List all tokens, oldest first, including revoked ones."""
        return [token.to_json() for token in await crib.tokens.list()]

    @router.post("", response_model=NewToken, response_model_exclude_unset=True, status_code=201)
    async def create_token(change: Annotated[Changing, changes], body: TokenRequest) -> JsonObject:
        """Create a token. Only this response contains its `secret`."""
        crib.permissions.require_agent(body.agent)
        create = partial(crib.tokens.create, source=body.source, mode=body.mode, agent=body.agent)
        token, secret = await change.make(
            "tokens.create",
            body.model_dump(mode="json", by_alias=True, exclude_none=True),
            lambda: create(body.name, may_approve=body.may_approve, may_remember=body.may_remember),
        )
        return token.to_json() | {"secret": secret}

    @router.delete("/{name}", response_model=RemovedShape)
    async def revoke_token(change: Annotated[Changing, changes], name: str) -> JsonObject:
        """Revoke a token. Its open requests are aborted and new ones refused."""
        await change.make("tokens.revoke", {"name": name}, lambda: crib.tokens.revoke(name))
        return {"id": name}

    return router
