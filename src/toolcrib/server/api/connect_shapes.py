"""The shapes of `/api/connect`: what is asked and answered about tools that use this crib."""

from typing import Literal

from pydantic import Field

from toolcrib.model.servers import ServerType
from toolcrib.server.api.server_shapes import EditShape, TransferShape
from toolcrib.server.api.shapes import Shape


class ConnectionShape(Shape):
    """One entry of this crib in a tool's file."""

    name: str
    type: ServerType
    file: str
    line: int | None
    agent: str | None = Field(description="The agent it asks as.")
    stale: list[str] = Field(description="What keeps it from reaching this crib.")


class ClientShape(Shape):
    """A tool that can use this crib."""

    client: str
    title: str
    state: Literal["connected", "stale", "not_connected", "not_installed"]
    installed: bool
    file: str = Field(description="Where the crib stands, or would be written.")
    type: ServerType = Field(description="How it would be reached.")
    connections: list[ConnectionShape]
    others: int = Field(description="How many other servers stand in that file.")


class ConnectRequest(Shape):
    """Write this crib into a tool's own file."""

    agent: str | None = Field(None, description="As this agent only.", min_length=1, max_length=200)
    scope: Literal["user", "project"] = "user"
    stdio: bool = Field(False, description="Start a process, also where HTTP works.")
    move: bool = Field(False, description="Take the tool's other servers over, so that they stand here alone.")
    anyway: bool = Field(False, description="Also if the tool was not found on this machine.")
    dry_run: bool = False


class ConnectedShape(Shape):
    """What connecting did, or would do."""

    client: str
    title: str
    installed: bool
    name: str
    type: ServerType
    agent: str | None
    reasons: list[str] = Field(description="What was wrong with the entry that stood there.")
    change: EditShape
    moved: TransferShape | None


class DisconnectedShape(Shape):
    """What taking it back did, or would do."""

    client: str
    title: str
    agent: str | None
    change: EditShape | None
    exact: bool = Field(description="Whether the file is byte for byte what it was before.")
    revoked_token: str | None
