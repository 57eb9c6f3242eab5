"""Server definitions: where they are defined, what they contain, and what is wrong with them.

The `servers` package reads these values from files, `upstream` connects to them. Must never read a file or a variable.
A `ServerSpec` may contain secrets, so its values are excluded from `repr`; `ServerEntry.definition` is masked for
display.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.protocol import Era
from toolcrib.model.sandbox import OFF, RefusedAccess, Sandbox, SandboxGrants

ServerType = Literal["stdio", "http", "sse"]
Scope = Literal["managed", "local", "project", "user"]
Share = Literal["shared", "session"]
Placement = Literal["node", "one"]
"""Where a server runs if nodes share a database: on each node that uses it, or on one node for all of them."""
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
STATE_LABELS: Final[dict[ServerState, str]] = {
    "connected": "Connected",
    "connecting": "Connecting…",
    "not_checked": "Not checked",
    "disabled": "Disabled",
    "shadowed": "Shadowed",
    "invalid": "Invalid",
    "untrusted": "Not trusted",
    "needs_auth": "Needs sign-in",
    "failed": "Can't reach",
}
"""Per state: its label for people. A failure that the setup causes has its own (`ServerStatus.label`)."""


def _no_strings() -> Mapping[str, str]:
    return {}


def _no_values() -> Mapping[str, Any]:
    return {}


class OtherName(NamedTuple):
    """An additional name of a server, and the file that uses it."""

    name: str
    file: str


@dataclass(frozen=True, slots=True)
class ServerNames:
    """The names of a definition other than the one its server is known by here. Rules and limits apply under each.

    An untrusted file can claim a name. Such a name may only restrict, never allow.

    `identity` is independent of the name and place of the definition; it is empty for servers without a file. `trusted`
    names come from trusted places that are in force; they count for every rule. `claimed` are all others; they count
    for deny, ask and limits, never for allow. `bound` is what remembered answers are bound to: the identity and, for a
    program that a project runs, its directory.
    """

    identity: str = ""
    trusted: tuple[OtherName, ...] = ()
    claimed: tuple[OtherName, ...] = ()
    bound: str = ""

    @property
    def others(self) -> tuple[OtherName, ...]:
        """All other names, trusted ones first."""
        return self.trusted + self.claimed

    def matching(self, text: str) -> OtherName | None:
        """Return the entry with this name, or None."""
        return next((other for other in self.others if other.name == text), None)


NO_NAMES = ServerNames()
"""Names of servers without aliases or a file."""


@dataclass(frozen=True, slots=True)
class DefinitionSource:
    """The location of one definition: file format, scope, file and line.

    `project` is the real path of the project that contains the file, None outside of projects; trust is bound to it.
    `directory` is the directory that relative paths start from. `root` is the directory of the plugin that contains the
    file.
    """

    client: str
    scope: Scope
    file: str
    line: int | None = None
    project: str | None = None
    directory: str | None = None
    root: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape (`sources` of a server)."""
        return {"client": self.client, "scope": self.scope, "file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Globs over tool names. `allow` None means all; an empty `allow` means none; `deny` wins."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Auth:
    """How to sign in to a remote server: a stored credential, or the OAuth client data from its definition."""

    type: Literal["oauth"] = "oauth"
    credential_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One valid definition in canonical form. Values are not expanded.

    `variables` names the interpolation syntax of the file. `env_pass` are variables passed on from our environment by
    name. `header_env` are headers that use `${VAR}` references, independent of the file's syntax. `env_file` is only
    read when the server starts. `extra` contains unknown fields. `may_reveal`: a person agreed to pass their
    credentials and files to a project's server.
    """

    name: str
    type: ServerType
    source: DefinitionSource
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
    placement: Placement = "node"
    variables: str = "toolcrib"
    may_reveal: bool = False
    sandbox: Sandbox = OFF
    extra: Mapping[str, Any] = field(default_factory=_no_values, repr=False)


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server as listed: a validated definition, with every place that defines the same.

    `spec` is None for an invalid definition. `digest` is what trust is bound to. `shadowed_by` is the alias of the
    server that took the name. `same_as` are the other names used in its places, `names` all names of the definition.
    """

    name: str
    alias: str
    source: DefinitionSource
    definition: JsonObject = field(repr=False)
    spec: ServerSpec | None = None
    sources: tuple[DefinitionSource, ...] = ()
    enabled: bool = True
    trusted: bool = False
    digest: str = ""
    shadowed_by: str | None = None
    same_as: tuple[str, ...] = ()
    names: ServerNames = NO_NAMES
    problems: tuple[Problem, ...] = ()

    @property
    def state(self) -> ServerState:
        """The state as far as the files determine it; connections refine it."""
        if self.spec is None:
            return "invalid"
        if self.shadowed_by is not None:
            return "shadowed"
        if not self.enabled:
            return "disabled"
        return "not_checked" if self.trusted else "untrusted"

    @property
    def startable(self) -> bool:
        """Whether this server may be connected: valid, not shadowed, enabled and trusted."""
        return self.state == "not_checked"

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox that the server starts in."""
        return self.spec.sandbox if self.spec is not None else OFF

    def to_json(self) -> JsonObject:
        """Return the public shape of a server without a connection."""
        shape: JsonObject = {
            "name": self.name,
            "alias": self.alias,
            "type": self.spec.type if self.spec else None,
            "state": self.state,
            "label": STATE_LABELS[self.state],
            "enabled": self.enabled,
            "trusted": self.trusted,
            "sources": [source.to_json() for source in self.sources or (self.source,)],
            "sameAs": list(self.same_as),
            "problems": [problem.to_json() for problem in self.problems],
            "tools": 0,
            "definition": self.definition,
        }
        if self.spec is not None and self.spec.type == "stdio":
            shape["sandbox"] = self.sandbox.to_json()
        if self.shadowed_by is not None:
            shape["shadowedBy"] = self.shadowed_by
        return shape


@dataclass(frozen=True, slots=True)
class Discovery:
    """All servers found from one working directory, and problems with whole files.

    `project` is the real path of the project that contains the working directory. `hidden` are servers that the owner
    removed although an app's file still defines them. `agreed` are the names under which the owner trusted definitions
    anywhere, each with the identity of the definition.
    """

    servers: tuple[ServerEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    hidden: tuple[ServerEntry, ...] = ()
    project: str | None = None
    files: tuple[str, ...] = ()
    agreed: tuple[tuple[str, OtherName], ...] = ()

    def find(self, name: str) -> ServerEntry | None:
        """Return the server with this alias, else the one in force under this or another of its names, else any."""
        named = [entry for entry in self.servers if entry.name == name]
        in_force = [entry for entry in self.servers if entry.spec is not None and entry.shadowed_by is None]
        by_name = [entry for entry in in_force if entry.name == name]
        by_alias = [entry for entry in self.servers if entry.alias == name]
        also = [entry for entry in in_force if name in entry.same_as]
        return next(iter([*by_alias, *by_name, *also, *named]), None)

    def startable(self) -> tuple[ServerEntry, ...]:
        """Return the servers that may be connected now."""
        return tuple(entry for entry in self.servers if entry.startable)


@dataclass(frozen=True, slots=True)
class ResolvedServer:
    """What to start or call. `problems` names every key that could not be resolved. `sandbox` None is no sandbox.

    `trace` is the command of a tracer that runs it, if any.
    """

    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    auth: Auth | None = None
    problems: tuple[Problem, ...] = ()
    sandbox: SandboxGrants | None = None
    trace: tuple[str, ...] = ()


UpstreamState = Literal["not_checked", "connecting", "connected", "needs_auth", "failed"]


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """State of a connection, with a message and, if needed, the next step.

    `is_known`: the server's tools have been listed, possibly in an earlier run; `tools` is their number. `latency_ms`
    is the duration of the last ping or list. `last_error` is kept after recovery; `error_code` is its code, `is_setup`
    whether the definition or the server has to change, in contrast to a server that cannot be reached. `retry_at` is
    the time of the next attempt (Unix seconds), if one is planned, `connecting_since` the start of the current one.
    `refused` is what its sandbox refused, `problems` the same for people, `learned` what the profile `learn` recorded.
    """

    state: UpstreamState = "not_checked"
    sentence: str = ""
    action: str | None = None
    is_known: bool = False
    tools: int = 0
    latency_ms: float | None = None
    last_error: str | None = None
    error_code: str | None = None
    is_setup: bool = False
    exited_with: int | None = None
    stderr: tuple[str, ...] = ()
    era: Era | None = None
    version: str | None = None
    server_title: str | None = None
    pid: int | None = None
    retry_at: float | None = None
    connecting_since: float | None = None
    refused: tuple[RefusedAccess, ...] = ()
    learned: JsonObject | None = None
    problems: tuple[Problem, ...] = ()
