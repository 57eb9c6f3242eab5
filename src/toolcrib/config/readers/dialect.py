"""What there is to say about one client's format, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolcrib.config.syntax.document import Family, KeyPath
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.servers import Scope, ServerType

Switch = Literal["disabled", "enabled"]
Refusal = Literal["comments", "trailing commas", "byte order mark"]


@dataclass(frozen=True, slots=True)
class Context:
    """What a layout may know of the surroundings: file, platform, and the project's directories, nearest first."""

    file: Path
    directories: tuple[Path, ...] = ()
    platform: str = "linux"


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of a file, not yet judged.

    `misplaced` says why the client itself would not see it. `built_in` names a kind that is no MCP server of its own.
    `directory` and `scope` are set where one file speaks for several levels.
    """

    name: str
    raw: Json
    path: KeyPath
    misplaced: str | None = None
    built_in: str | None = None
    directory: Path | None = None
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The entries of a file and what is odd about their place: (message, path) pairs."""

    entries: tuple[Found, ...] = ()
    oddities: tuple[tuple[str, KeyPath], ...] = ()


@dataclass(frozen=True, slots=True)
class Translated:
    """An entry in common field names. `wrong` makes it unusable; `notes` are what the client itself does otherwise."""

    raw: JsonObject
    env_pass: tuple[str, ...] = ()
    header_env: Mapping[str, str] = field(default_factory=dict[str, str])
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ClientRule:
    """What a client's settings say about its servers: `off` switches the matching ones off, `only` all others.

    `origin` is the setting's name. `project_only` rules speak of servers in project files.
    """

    client: str
    effect: Literal["off", "only"]
    origin: str
    file: str
    names: frozenset[str] = frozenset()
    commands: tuple[tuple[str, ...], ...] = ()
    urls: tuple[str, ...] = ()
    project_only: bool = False


def no_rules(value: Json, dialect: "Dialect", file: str) -> tuple[ClientRule, ...]:
    """Most files have none."""
    return ()


FindEntries = Callable[[Json, "Dialect", Context], Layout]
Translate = Callable[[JsonObject], Translated]
FindRules = Callable[[Json, "Dialect", str], tuple[ClientRule, ...]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One client's format.

    `roots` are the keys its servers stand under, its documented one first. `dedicated` files exist for servers alone,
    so a missing root is worth a word. `untyped` is what a URL without type means, `needs_type` that the client refuses
    it. `switch` is the field that turns a server off; None means that the client ignores both. `seconds` is the unit
    of `timeout`. `merges` means that the client lays its files over each other key by key.
    """

    client: str
    title: str
    find: FindEntries
    translate: Translate
    rules: FindRules = no_rules
    family: Family = "json"
    roots: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    dedicated: bool = True
    refuses: frozenset[Refusal] = frozenset()
    untyped: ServerType = "http"
    needs_type: bool = False
    switch: Switch | None = None
    seconds: bool = False
    cwd: bool = True
    merges: bool = False
    writable: bool = True
    variables: str = "none"
