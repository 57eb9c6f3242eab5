"""Servers as their owners wrote them down: where a definition stands, what it says, what is wrong with it.

`config` makes these values from files, `connect` opens links from them, the CLI and the API show them. Nothing here
reads a file or a variable. A `ServerSpec` may hold secrets, so its values stay out of every `repr`; what is shown to
people is `ServerEntry.definition`, which is masked when it is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem

ServerType = Literal["stdio", "http", "sse"]
Scope = Literal["managed", "local", "project", "user"]
Share = Literal["shared", "session"]
ServerState = Literal[
    "connected",
    "connecting",
    "not_checked",
    "disabled",
    "shadowed",
    "invalid",
    "untrusted",
    "needs_auth",
    "failed",
]


def _no_strings() -> Mapping[str, str]:
    return {}


def _no_values() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Source:
    """The place of one definition: whose format, at which level, in which file and line.

    `project` is the real path of the project the file belongs to, None above projects; trust is bound to it.
    `directory` is the directory of that project the file speaks for; relative paths start there.
    """

    client: str
    scope: Scope
    file: str
    line: int | None = None
    project: str | None = None
    directory: str | None = None

    def to_json(self) -> JsonObject:
        """The public shape (`sources` of a server)."""
        return {"client": self.client, "scope": self.scope, "file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Globs over tool names. `allow` None means all; an empty `allow` means none; `deny` wins."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Auth:
    """How a remote server is signed in to: a stored credential, or what its client knew for getting one."""

    type: Literal["oauth"] = "oauth"
    credential_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One usable definition, in canonical terms, its values exactly as written: nothing is expanded.

    `variables` names the interpolation syntax of the file it came from. `env_pass` are variables handed on from our
    environment by name. `header_env` are headers whose value is made of `${VAR}` references whatever the file's own
    syntax. `env_file` is read when the server is started, never before. `extra` keeps what was not understood.
    """

    name: str
    type: ServerType
    source: Source
    alias: str = ""
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=_no_strings, repr=False)
    env_pass: tuple[str, ...] = ()
    env_file: str | None = None
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=_no_strings, repr=False)
    header_env: Mapping[str, str] = field(default_factory=_no_strings, repr=False)
    enabled: bool = True
    timeout_ms: int | None = None
    auth: Auth | None = None
    tools: ToolFilter = ToolFilter()
    share: Share = "shared"
    variables: str = "toolcrib"
    extra: Mapping[str, Any] = field(default_factory=_no_values, repr=False)


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server of the list: a definition that was judged, with every place that says the same.

    `spec` is None for a definition that cannot be used. `digest` is what trust is bound to. `shadowed_by` is the alias
    of the server that took the name.
    """

    name: str
    alias: str
    source: Source
    definition: JsonObject = field(repr=False)
    spec: ServerSpec | None = None
    sources: tuple[Source, ...] = ()
    enabled: bool = True
    trusted: bool = False
    digest: str = ""
    shadowed_by: str | None = None
    same_as: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def state(self) -> ServerState:
        """What reading alone can know; links refine it."""
        if self.spec is None:
            return "invalid"
        if self.shadowed_by is not None:
            return "shadowed"
        if not self.enabled:
            return "disabled"
        return "not_checked" if self.trusted else "untrusted"

    @property
    def startable(self) -> bool:
        """Whether this server may be connected: usable, in force, switched on and trusted."""
        return self.state == "not_checked"

    def to_json(self) -> JsonObject:
        """The public shape of a server that has no link yet."""
        shape: JsonObject = {
            "name": self.name,
            "alias": self.alias,
            "type": self.spec.type if self.spec else None,
            "state": self.state,
            "enabled": self.enabled,
            "trusted": self.trusted,
            "sources": [source.to_json() for source in self.sources or (self.source,)],
            "sameAs": list(self.same_as),
            "problems": [problem.to_json() for problem in self.problems],
            "tools": 0,
            "definition": self.definition,
        }
        if self.shadowed_by is not None:
            shape["shadowedBy"] = self.shadowed_by
        return shape


@dataclass(frozen=True, slots=True)
class Discovery:
    """Everything that was found from one working directory, and what is wrong with whole files.

    `project` is the real path of the project around the working directory. `hidden` are servers the owner removed from
    the list although another tool's file still has them.
    """

    servers: tuple[ServerEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    hidden: tuple[ServerEntry, ...] = ()
    project: str | None = None
    files: tuple[str, ...] = ()

    def find(self, name: str) -> ServerEntry | None:
        """The server of this alias, else the one in force under this name, else any of this name."""
        named = [entry for entry in self.servers if entry.name == name]
        in_force = [entry for entry in named if entry.spec is not None and entry.shadowed_by is None]
        by_alias = [entry for entry in self.servers if entry.alias == name]
        return next(iter([*by_alias, *in_force, *named]), None)

    def startable(self) -> tuple[ServerEntry, ...]:
        """The servers that may be connected now."""
        return tuple(entry for entry in self.servers if entry.startable)
