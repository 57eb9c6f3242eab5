"""`/api/settings`: the crib's settings and their origins."""

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import SettingShape


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("settings")

    @router.get("", response_model=list[SettingShape])
    async def list_settings() -> list[JsonObject]:
        """List every setting with its value and origin; secrets are masked."""
        return crib.settings.describe()

    return router
