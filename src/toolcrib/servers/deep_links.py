"""Links that have a tool install this crib: an address of the tool's own scheme, with the whole entry in it.

The tool shows what it is about to add and asks; nothing is written before. Above: `clients` fills them. Below:
`config`. Pure.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import orjson

from toolcrib.config.export import entry_for
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerSpec
from toolcrib.servers.connectable import Connectable


def _cursor(name: str, entry: JsonObject) -> str:
    config = quote(base64.b64encode(orjson.dumps(entry)).decode(), safe="")
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={quote(name, safe='')}&config={config}"


def _vscode(name: str, entry: JsonObject) -> str:
    return f"vscode:mcp/install?{quote(orjson.dumps({'name': name, **entry}), safe='')}"


_MAKERS: Final[Mapping[str, Callable[[str, JsonObject], str]]] = {"cursor": _cursor, "vscode": _vscode}
LINKED: Final = frozenset(_MAKERS)
"""The tools that have such links."""


@dataclass(frozen=True, slots=True)
class DeepLink:
    """A link for one tool and all that it installs; `link` is None where it is only looked at."""

    client: Connectable
    agent: str | None
    name: str
    url: str
    headers: tuple[str, ...]
    token: str
    link: str | None = field(repr=False)

    def to_json(self) -> JsonObject:
        """For the console."""
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
    """The link that has a tool install this definition."""
    return _MAKERS[client](spec.name, entry_for(spec, client).entry)
