"""`/api/settings`: the settings the crib runs with, and where each comes from."""

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.server.api.resource import Resource
from toolcrib.server.api.shapes import SettingShape


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("settings")

    @router.get("", response_model=list[SettingShape])
    async def list_settings() -> list[JsonObject]:
        """Every setting with its value and origin; secrets are masked."""
        return crib.settings.describe()

    return router
