"""A server as the registry publishes it: who published it, in which version, and how it can be run.

Parses answers of the registry's API and entries of a snapshot file. Texts come from strangers: control characters are
made visible, and values that our own file would expand are refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, at
from toolcrib.model.text import visible
from toolcrib.servers.exposure import names_credential
from toolcrib.servers.registry.server_json import InstallOption, install_options

OFFICIAL = "io.modelcontextprotocol.registry/official"
NAME = re.compile(r"[A-Za-z0-9.-]{1,100}/[A-Za-z0-9._-]{1,100}")
_FORGES = {"io.github": "GitHub", "io.gitlab": "GitLab"}
_DESCRIBING = frozenset({"description", "title", "placeholder", "name", "valueHint", "value_hint", "choices"})


@dataclass(frozen=True)
class PublishedServer:
    """One version of a server. `document` is its `server.json`."""

    name: str
    version: str
    title: str
    description: str
    status: str = "active"
    published_at: str | None = None
    updated_at: str | None = None
    repository: str | None = None
    website: str | None = None
    document: JsonObject = field(default_factory=dict[str, Json], repr=False)

    @cached_property
    def options(self) -> tuple[InstallOption, ...]:
        """The ways to run it."""
        return install_options(self.document)

    @property
    def publisher(self) -> str:
        """Who published it: the registry checks that publishers own the namespace of the name."""
        namespace = self.name.partition("/")[0]
        for prefix, forge in _FORGES.items():
            if namespace.startswith(f"{prefix}."):
                return f"{forge} account {namespace.removeprefix(f'{prefix}.')}"
        return f"owner of {'.'.join(reversed(namespace.split('.')))}"

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "version": self.version,
            "status": self.status,
            "publisher": self.publisher,
            "options": [option.to_json() for option in self.options],
        }
        more = {
            "repository": self.repository,
            "website": self.website,
            "publishedAt": self.published_at,
            "updatedAt": self.updated_at,
        }
        return shape | {key: value for key, value in more.items() if value is not None}


def parse_published(value: Json) -> PublishedServer | None:
    """Return the server of an API answer, or of a bare `server.json`; None if it is neither."""
    answer = as_object(value) or {}
    document = as_object(answer.get("server")) or answer
    name, version = as_text(document.get("name")), _version(document)
    if name is None or NAME.fullmatch(name) is None or version is None:
        return None
    meta = as_object(at(answer, "_meta", OFFICIAL)) or as_object(at(document, "_meta", OFFICIAL)) or {}
    return PublishedServer(
        name,
        visible(version),
        visible(as_text(document.get("title")) or name.partition("/")[2]),
        visible(as_text(document.get("description")) or ""),
        visible(as_text(meta.get("status")) or as_text(document.get("status")) or "active"),
        _visible_text(meta.get("publishedAt")),
        _visible_text(meta.get("updatedAt")),
        _visible_text(at(document, "repository", "url")),
        _visible_text(document.get("websiteUrl")),
        document,
    )


def is_latest(value: Json) -> bool:
    """Return whether the registry marks this version as the latest; an unmarked one counts as such."""
    return at(value, "_meta", OFFICIAL, "isLatest") is not False


def check_literals(published: Json, shown: str, environment: Mapping[str, str], *, expanded: bool = False) -> None:
    """Raise `registry.refused` if a published value would be expanded: only the user may name variables and commands.

    Our own file expands `${NAME}`, runs `!command`, and looks up values that are the name of a variable. `expanded`:
    the publisher's own format has references, which are expanded before.
    """
    for key, text in _texts(published):
        is_looked_up = key != "identifier" and (text in environment or names_credential(text))
        if ("${" in text and not expanded) or text.startswith("!") or is_looked_up:
            reason = "would be replaced by a value of yours"
            raise InvalidRequest(
                "registry.refused", f"The published value {visible(text)!r} of {visible(shown)} {reason}."
            )


def _texts(value: Json, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    for name, member in (as_object(value) or {}).items():
        if name not in _DESCRIBING:
            yield from _texts(member, name)
    for each in as_list(value) or ():
        yield from _texts(each, key)


def _version(document: JsonObject) -> str | None:
    return as_text(document.get("version")) or as_text(at(document, "version_detail", "version"))


def _visible_text(value: Json) -> str | None:
    text = as_text(value)
    return visible(text) if text else None
