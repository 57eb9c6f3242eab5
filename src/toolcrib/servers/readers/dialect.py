"""The description of one app's format, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.servers import Scope, ServerType
from toolcrib.servers.syntax.document import Family, KeyPath

Switch = Literal["disabled", "enabled", "active"]
Refusal = Literal["comments", "trailing commas", "byte order mark"]


@dataclass(frozen=True, slots=True)
class ReadingContext:
    """The context of a layout: file, platform, and the project's directories, nearest first."""

    file: Path
    directories: tuple[Path, ...] = ()
    platform: str = "linux"


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """One entry of a file, not yet judged.

    `misplaced` is the reason why the app itself would not find it, and `fix` what to do about it. `is_elsewhere` marks
    an entry under a key of another app; nothing is added next to it. `built_in` names a kind that is not an MCP server.
    `directory` and `scope` are set where one file covers several scopes.
    """

    name: str
    raw: Json
    path: KeyPath
    misplaced: str | None = None
    fix: str | None = None
    is_elsewhere: bool = False
    built_in: str | None = None
    directory: Path | None = None
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The entries of a file, and oddities of their location and notes as (message, path) pairs."""

    entries: tuple[FoundEntry, ...] = ()
    oddities: tuple[tuple[str, KeyPath], ...] = ()
    notes: tuple[tuple[str, KeyPath], ...] = ()


@dataclass(frozen=True, slots=True)
class Translated:
    """An entry in common field names. `wrong` makes it unusable; `notes` describe where the app itself differs."""

    raw: JsonObject
    env_pass: tuple[str, ...] = ()
    header_env: Mapping[str, str] = field(default_factory=dict[str, str])
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ClientRule:
    """A rule in an app's settings: `off` disables the matching servers, `only` all others.

    `origin` is the name of the setting. `project_only` rules apply to servers in project files.
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
    """Return no rules, as for most files."""
    return ()


FindEntries = Callable[[Json, "Dialect", ReadingContext], Layout]
Translate = Callable[[JsonObject], Translated]
FindRules = Callable[[Json, "Dialect", str], tuple[ClientRule, ...]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One app's format.

    `roots` are the keys that contain its servers, the documented one first. `dedicated` files contain only servers, so
    a missing root is reported. `untyped` is the type of a URL without one; `needs_type` means the app refuses it.
    `switch` is the field that disables a server; None means the app ignores both. `seconds` is the unit of `timeout`.
    `merges` means the app merges its files key by key. `fix` says where servers belong if not in this file.
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
    fix: str | None = None
