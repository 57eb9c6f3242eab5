"""`/api/bundles`: tools that are granted together. Those that come with Toolcrib are there to read and to copy."""

from typing import Annotated

from fastapi import Depends

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Bundle
from toolcrib.model.principals import Principal
from toolcrib.server.api.changing import Changing, owner_changes
from toolcrib.server.api.policy_asking import FaultsRoute
from toolcrib.server.api.policy_shapes import BundleFields, BundleRequest, BundleShape, RemovedShape
from toolcrib.server.api.reading import owner_only
from toolcrib.server.api.resource import Resource


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("bundles", FaultsRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[BundleShape])
    async def list_bundles(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """All bundles, those that come with Toolcrib first."""
        return [bundle.to_json() for bundle in crib.permissions.bundles.list()]

    @router.post("", response_model=BundleShape, status_code=201)
    async def create_bundle(change: Annotated[Changing, changes], body: BundleRequest) -> JsonObject:
        """Make a bundle."""
        bundle = _bundle(body.id, body)
        create = crib.permissions.bundles.create
        return (await change.make("bundles.create", bundle.to_json(), lambda: create(bundle))).to_json()

    @router.get("/{bundle_id}", response_model=BundleShape)
    async def show_bundle(principal: Annotated[Principal, owner], bundle_id: str) -> JsonObject:
        """One bundle."""
        return crib.permissions.bundles.get(bundle_id).to_json()

    @router.put("/{bundle_id}", response_model=BundleShape)
    async def replace_bundle(change: Annotated[Changing, changes], bundle_id: str, body: BundleFields) -> JsonObject:
        """Change a bundle as a whole; whoever has it has the new one from the next call on."""
        bundle = _bundle(bundle_id, body)
        replace = crib.permissions.bundles.replace
        return (await change.make("bundles.change", bundle.to_json(), lambda: replace(bundle))).to_json()

    @router.delete("/{bundle_id}", response_model=RemovedShape)
    async def remove_bundle(change: Annotated[Changing, changes], bundle_id: str) -> JsonObject:
        """Remove a bundle, from the projects that have it too."""
        await change.make("bundles.remove", {"id": bundle_id}, lambda: crib.permissions.remove_bundle(bundle_id))
        return {"id": bundle_id}

    return router


def _bundle(id: str, fields: BundleFields) -> Bundle:
    return Bundle(id, fields.name, tuple(fields.tools), fields.description, fields.prompt)
