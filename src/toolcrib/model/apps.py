"""What the definition of a tool says about MCP Apps (SEP-1865): its page, and who may call it. Pure."""

from collections.abc import Sequence
from typing import Final

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.protocol import META
from toolcrib.model.tools import Tool

APP_TYPE: Final = "text/html;profile=mcp-app"
"""The media type of an app's page."""
HOSTS_APPS: Final[JsonObject] = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [APP_TYPE]}}}
"""The capability that the crib declares to servers, because its console shows their apps."""
APP_SCHEME: Final = "ui://"
OLD_URI_KEY: Final = "ui/resourceUri"
"""The deprecated place of a tool's UI resource."""


def app_uri(tool: Tool) -> str | None:
    """Return the UI resource of a tool, which servers need not list."""
    meta: Json = tool.extra.get(META)
    if not is_object(meta):
        return None
    ui: Json = meta.get("ui")
    uri: Json = ui.get("resourceUri") if is_object(ui) else None
    uri = meta.get(OLD_URI_KEY) if uri is None else uri
    return uri if isinstance(uri, str) else None


def is_callable_by_apps(tool: Tool) -> bool:
    """Return whether the pages of a tool's server may call it, which is the default."""
    return "app" in _visibility(tool)


def is_for_models(tool: Tool) -> bool:
    """Return whether a host may offer a tool to its model, which is the default."""
    return "model" in _visibility(tool)


def _visibility(tool: Tool) -> Sequence[Json]:
    meta: Json = tool.extra.get(META)
    ui: Json = meta.get("ui") if is_object(meta) else None
    declared: Json = ui.get("visibility") if is_object(ui) else None
    return declared if is_array(declared) else ("model", "app")
