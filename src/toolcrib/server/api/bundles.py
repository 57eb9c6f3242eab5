"""`/api/bundles`: tools that are granted together. Those that come with Toolcrib are there to read and to copy."""

from typing import Annotated

from fastapi import APIRouter, Depends

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Bundle
from toolcrib.model.principals import Principal
from toolcrib.server.api.policy_asking import FaultsRoute
from toolcrib.server.api.policy_shapes import BundleFields, BundleRequest, BundleShape, RemovedShape
from toolcrib.server.api.reading import owner_only


def routes(crib: Crib) -> APIRouter:
    """The routes, on this crib."""
    router = APIRouter(prefix="/api/bundles", tags=["bundles"], route_class=FaultsRoute)
    owner = Depends(owner_only(crib))

    @router.get("", response_model=list[BundleShape])
    async def list_bundles(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """All bundles, those that come with Toolcrib first."""
        return [bundle.to_json() for bundle in crib.permissions.bundles.list()]

    @router.post("", response_model=BundleShape, status_code=201)
    async def create_bundle(principal: Annotated[Principal, owner], body: BundleRequest) -> JsonObject:
        """Make a bundle."""
        return (await crib.permissions.bundles.create(_bundle(body.id, body))).to_json()

    @router.get("/{bundle_id}", response_model=BundleShape)
    async def show_bundle(principal: Annotated[Principal, owner], bundle_id: str) -> JsonObject:
        """One bundle."""
        return crib.permissions.bundles.get(bundle_id).to_json()

    @router.put("/{bundle_id}", response_model=BundleShape)
    async def replace_bundle(principal: Annotated[Principal, owner], bundle_id: str, body: BundleFields) -> JsonObject:
        """Change a bundle as a whole; whoever has it has the new one from the next call on."""
        return (await crib.permissions.bundles.replace(_bundle(bundle_id, body))).to_json()

    @router.delete("/{bundle_id}", response_model=RemovedShape)
    async def remove_bundle(principal: Annotated[Principal, owner], bundle_id: str) -> JsonObject:
        """Remove a bundle, from the projects that have it too."""
        await crib.permissions.remove_bundle(bundle_id)
        return {"id": bundle_id}

    return router


def _bundle(id: str, fields: BundleFields) -> Bundle:
    return Bundle(id, fields.name, tuple(fields.tools), fields.description, fields.prompt)
