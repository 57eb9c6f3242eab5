"""Connections of tools to this crib as values: what is asked for, how each stands, what was done.

Above: `clients` makes these, REST, the CLI and the console show them. Pure.
"""

from dataclasses import dataclass
from pathlib import Path

from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerType
from toolcrib.servers.connectable import Connectable, ConnectScope
from toolcrib.servers.edits import Edit
from toolcrib.servers.transfer import Transfer


@dataclass(frozen=True, slots=True)
class Connection:
    """One entry of this crib in a tool's file; `stale` says what is wrong with it, if anything is."""

    name: str
    type: ServerType
    file: str
    line: int | None
    agent: str | None
    stale: tuple[str, ...]

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        shape: JsonObject = {"name": self.name, "type": self.type, "file": self.file, "line": self.line}
        return shape | {"agent": self.agent, "stale": list(self.stale)}


@dataclass(frozen=True, slots=True)
class ClientState:
    """How one tool stands to this crib. `others` are servers it has besides; `file` is where the crib goes."""

    client: Connectable
    installed: bool
    file: str
    type: ServerType
    connections: tuple[Connection, ...]
    others: int

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
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
class Connected:
    """What connecting did, or would do. `reasons` say what was mended, `moved` what is behind the crib now."""

    client: Connectable
    installed: bool
    name: str
    type: ServerType
    agent: str | None
    change: Edit
    reasons: tuple[str, ...] = ()
    moved: Transfer | None = None

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        return {
            "client": self.client.name,
            "title": self.client.title,
            "installed": self.installed,
            "name": self.name,
            "type": self.type,
            "agent": self.agent,
            "reasons": list(self.reasons),
            "change": self.change.to_json(),
            "moved": self.moved.to_json() if self.moved is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Disconnected:
    """What taking it back did, or would do. `exact` says that the file is byte for byte what it was before."""

    client: Connectable
    agent: str | None
    change: Edit | None
    exact: bool
    revoked: str | None

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        return {
            "client": self.client.name,
            "title": self.client.title,
            "agent": self.agent,
            "change": self.change.to_json() if self.change is not None else None,
            "exact": self.exact,
            "revokedToken": self.revoked,
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants of one tool: as which agent, in which file, over stdio even where HTTP works."""

    client: str
    cwd: Path | None = None
    agent: str | None = None
    scope: ConnectScope = "user"
    stdio: bool = False
