"""`/api/plugins`: installed plugins, their requested capabilities and the owner's grants.

For the owner only; every change is recorded. No code of a plugin runs before it is granted.
"""

from typing import Annotated, Literal

from fastapi import Depends, Path
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.plugins import Capability, PluginState
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import RemovedShape
from toolcrib.web.api.reading import StrictRoute, owner_only
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import ProblemShape, Shape

_Name = Annotated[str, Path(max_length=200, description="The plugin.")]


class PluginShape(Shape):
    """One installed plugin. `changed`: it differs from what was granted."""

    name: str
    package: str = Field(description="The Python package that contains it.")
    state: PluginState
    servers: list[str] = Field(description="The servers that it adds once granted.")
    tools: list[str]
    problems: list[ProblemShape]
    capabilities: list[Capability] = Field(description="The capabilities it declares.")
    version: str = ""
    description: str = ""
    digest: str = Field("", description="The digest of its manifest, which a grant is bound to.")
    granted_version: str = ""
    granted_capabilities: list[str] = Field([])
    granted_at: str = ""
    granted_by: str = ""


class GrantRequest(Shape):
    """A grant for a plugin as it was shown."""

    digest: str = Field(min_length=1, max_length=200, description="The plugin's `digest` that you reviewed.")


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("plugins", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[PluginShape], response_model_exclude_unset=True, dependencies=[owner])
    async def list_plugins() -> list[JsonObject]:
        """List all installed plugins by name."""
        return [plugin.to_json() for plugin in await crib.plugins.list()]

    @router.get("/{name}", response_model=PluginShape, response_model_exclude_unset=True, dependencies=[owner])
    async def show_plugin(name: _Name) -> JsonObject:
        """Return one plugin."""
        return (await crib.plugins.get(name)).to_json()

    @router.post("/{name}/grant", response_model=PluginShape, response_model_exclude_unset=True)
    async def grant_plugin(change: Annotated[Changing, changes], name: _Name, body: GrantRequest) -> JsonObject:
        """Grant a plugin the capabilities it requests, as it was shown. It is loaded immediately."""
        shown = await crib.plugins.get(name)
        asked: JsonObject = {"name": name, "digest": body.digest, "capabilities": shown.to_json()["capabilities"]}
        by = change.principal.name
        granted = await change.make("plugins.grant", asked, lambda: crib.plugins.grant(name, body.digest, by=by))
        return granted.to_json()

    @router.post("/{name}/revoke", response_model=RemovedShape)
    async def revoke_plugin(change: Annotated[Changing, changes], name: _Name) -> JsonObject:
        """Revoke a plugin's grant. Its tools are removed immediately, its code with the next start."""
        await change.make("plugins.revoke", {"name": name}, lambda: crib.plugins.revoke(name))
        return {"id": name}

    @router.post("/{name}/{switch}", response_model=PluginShape, response_model_exclude_unset=True)
    async def switch_plugin(
        change: Annotated[Changing, changes], name: _Name, switch: Literal["enable", "disable"]
    ) -> JsonObject:
        """Enable or disable a granted plugin, keeping its grant."""
        on = switch == "enable"
        plugin = await change.make(f"plugins.{switch}", {"name": name}, lambda: crib.plugins.switch(name, enabled=on))
        return plugin.to_json()

    return router
