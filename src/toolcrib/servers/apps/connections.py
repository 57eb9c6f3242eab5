"""Connections of apps to this crib as values: requests, states and results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerType
from toolcrib.model.tokens import Level
from toolcrib.servers.apps.connectable import Connectable, ConnectScope
from toolcrib.servers.edits import Edit
from toolcrib.servers.transfer import Transfer

OfferedTools = Literal["all", "search", "code"]
"""What an app lists: all tools, or those that find and call them."""
OFFERS: tuple[OfferedTools, ...] = get_args(OfferedTools)


@dataclass(frozen=True, slots=True)
class AppConnection:
    """One entry of this crib in an app's file; `stale` lists what is wrong with it.

    Without a token, the app acts as the owner. `tools` is how it lists tools,
    if its address says so.
    """

    name: str
    type: ServerType
    file: str
    line: int | None
    agent: str | None
    stale: tuple[str, ...]
    has_token: bool = True
    tools: OfferedTools | None = None
    scope: ConnectScope = "user"

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        shape: JsonObject = {"name": self.name, "type": self.type, "file": self.file, "line": self.line}
        shape["scope"] = self.scope
        return shape | {"agent": self.agent, "stale": list(self.stale), "hasToken": self.has_token, "tools": self.tools}


@dataclass(frozen=True, slots=True)
class AppState:
    """The state of one app. `others` counts its other servers; `file` is where the crib's entry goes."""

    client: Connectable
    installed: bool
    file: str
    type: ServerType
    connections: tuple[AppConnection, ...]
    others: int

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        if not self.connections:
            state = "not_connected" if self.installed else "not_installed"
        else:
            state = "stale" if any(each.stale for each in self.connections) else "connected"
        return {
            "client": self.client.name,
            "title": self.client.title,
            "state": state,
            "installed": self.installed,
            "file": self.file,
            "type": self.type,
            "connections": [each.to_json() for each in self.connections],
            "others": self.others,
        }


@dataclass(frozen=True, slots=True)
class AppConnected:
    """The result of connecting, or of a dry run. `reasons` lists what was repaired, `moved` the servers taken over.

    If the address `names_tools`, it says how tools are listed; otherwise an agent may have its own way.
    """

    client: Connectable
    installed: bool
    name: str
    type: ServerType
    agent: str | None
    change: Edit
    reasons: tuple[str, ...] = ()
    moved: Transfer | None = None
    level: Level | None = None
    tools: OfferedTools = "all"
    names_tools: bool = False

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        return {
            "client": self.client.name,
            "title": self.client.title,
            "installed": self.installed,
            "name": self.name,
            "type": self.type,
            "agent": self.agent,
            "level": self.level,
            "tools": self.tools,
            "reasons": list(self.reasons),
            "change": self.change.to_json(),
            "moved": self.moved.to_json() if self.moved is not None else None,
        }


@dataclass(frozen=True, slots=True)
class AppDisconnected:
    """The result of disconnecting, or of a dry run. `exact` means the file is byte for byte what it was before."""

    client: Connectable
    agent: str | None
    change: Edit | None
    exact: bool
    revoked: str | None

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        return {
            "client": self.client.name,
            "title": self.client.title,
            "agent": self.agent,
            "change": self.change.to_json() if self.change is not None else None,
            "exact": self.exact,
            "revokedToken": self.revoked,
        }


@dataclass(frozen=True, slots=True)
class AppConnectRequest:
    """A request to connect one app: as which agent, in which file, and whether to force stdio.

    `programs` are those the caller found on its own path; None searches the path of this process. `level` limits the
    app's access; None keeps the level of an existing token and leaves a new one undecided. `tools` is how an app over
    HTTP lists tools; None keeps what an existing entry says, and uses `tools_if_new` for a new one.
    """

    client: str
    cwd: Path | None = None
    agent: str | None = None
    scope: ConnectScope = "user"
    stdio: bool = False
    programs: frozenset[str] | None = None
    level: Level | None = None
    tools: OfferedTools | None = None
    tools_if_new: OfferedTools = "all"
