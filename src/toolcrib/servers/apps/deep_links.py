"""Links that make an app install this crib: a URL in the app's own scheme that contains the whole entry.

The app shows the entry and asks for confirmation before it writes anything.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import orjson

from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerSpec
from toolcrib.servers.apps.connectable import Connectable
from toolcrib.servers.export import entry_for


def _cursor(name: str, entry: JsonObject) -> str:
    config = quote(base64.b64encode(orjson.dumps(entry)).decode(), safe="")
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={quote(name, safe='')}&config={config}"


def _vscode(name: str, entry: JsonObject) -> str:
    return f"vscode:mcp/install?{quote(orjson.dumps({'name': name, **entry}), safe='')}"


_MAKERS: Final[Mapping[str, Callable[[str, JsonObject], str]]] = {"cursor": _cursor, "vscode": _vscode}
LINKED: Final = frozenset(_MAKERS)
"""The apps that support install links."""


@dataclass(frozen=True, slots=True)
class DeepLink:
    """An install link for one app and what it installs; `link` is None in a dry run."""

    client: Connectable
    agent: str | None
    name: str
    url: str
    headers: tuple[str, ...]
    token: str
    link: str | None = field(repr=False)

    def to_json(self) -> JsonObject:
        """Return the shape for the console."""
        return {
            "client": self.client.name,
            "title": self.client.title,
            "agent": self.agent,
            "name": self.name,
            "url": self.url,
            "headers": list(self.headers),
            "token": self.token,
            "link": self.link,
        }


def deep_link(client: str, spec: ServerSpec) -> str:
    """Return the link that makes an app install this definition."""
    return _MAKERS[client](spec.name, entry_for(spec, client).entry)
