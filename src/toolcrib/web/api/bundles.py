"""`/api/bundles`: tools that are granted together. Presets can be read and copied, but not changed."""

from typing import Annotated

from fastapi import Depends

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Bundle
from toolcrib.model.principals import Principal
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.asking import FaultsRoute
from toolcrib.web.api.policy.shapes import BundleFields, BundleRequest, BundleShape, RemovedShape
from toolcrib.web.api.reading import owner_only
from toolcrib.web.api.resource import Resource


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("bundles", FaultsRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[BundleShape])
    async def list_bundles(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List all bundles, presets first."""
        return [bundle.to_json() for bundle in crib.permissions.bundles.list()]

    @router.post("", response_model=BundleShape, status_code=201)
    async def create_bundle(change: Annotated[Changing, changes], body: BundleRequest) -> JsonObject:
        """Create a bundle."""
        bundle = _bundle(body.id, body)
        create = crib.permissions.bundles.create
        return (await change.make("bundles.create", bundle.to_json(), lambda: create(bundle))).to_json()

    @router.get("/{bundle_id}", response_model=BundleShape)
    async def show_bundle(principal: Annotated[Principal, owner], bundle_id: str) -> JsonObject:
        """Return one bundle."""
        return crib.permissions.bundles.get(bundle_id).to_json()

    @router.put("/{bundle_id}", response_model=BundleShape)
    async def replace_bundle(change: Annotated[Changing, changes], bundle_id: str, body: BundleFields) -> JsonObject:
        """Replace a bundle. The change applies from the next call on."""
        bundle = _bundle(bundle_id, body)
        replace = crib.permissions.bundles.replace
        return (await change.make("bundles.change", bundle.to_json(), lambda: replace(bundle))).to_json()

    @router.delete("/{bundle_id}", response_model=RemovedShape)
    async def remove_bundle(change: Annotated[Changing, changes], bundle_id: str) -> JsonObject:
        """Remove a bundle, also from the projects that use it."""
        await change.make("bundles.remove", {"id": bundle_id}, lambda: crib.permissions.remove_bundle(bundle_id))
        return {"id": bundle_id}

    return router


def _bundle(id: str, fields: BundleFields) -> Bundle:
    return Bundle(id, fields.name, tuple(fields.tools), fields.description, fields.prompt)
