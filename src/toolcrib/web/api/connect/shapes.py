"""The shapes of `/api/connect`."""

from typing import Annotated, Literal

from pydantic import Field

from toolcrib.model.servers import ServerType
from toolcrib.model.tokens import Level
from toolcrib.servers.apps.connectable import ConnectScope
from toolcrib.web.api.servers.shapes import EditShape, TransferShape
from toolcrib.web.api.shapes import Shape
from toolcrib.web.tool_costs import AppTools


class OfferShape(Shape):
    """What a connected app receives under one choice of `tools`."""

    tools: AppTools
    definitions: int = Field(description="The tools that the app lists.")
    tokens: int = Field(description="The estimated tokens of their definitions.")
    saves: int = Field(description="The tokens that this saves, compared with listing all tools.")


class ConnectionShape(Shape):
    """One entry of this crib in an app's config file."""

    name: str
    type: ServerType
    file: str
    line: int | None
    scope: ConnectScope = Field(description="Whether the file is the user's or the project's.")
    agent: str | None = Field(description="The agent it acts as.")
    stale: list[str] = Field(description="Why it cannot reach this crib.")
    has_token: bool = Field(description="Whether it has a token of its own. Without one, the app acts as the owner.")
    tools: AppTools = Field(description="What the app lists.")
    offers: list[OfferShape] = Field(
        description="What it receives under each choice. Over stdio without an agent: only `all` and `chosen`."
    )
    token: str | None = Field(description="The name of its token, which its tool set is bound to.")


class ClientShape(Shape):
    """An app that can use this crib."""

    client: str
    title: str
    state: Literal["connected", "stale", "not_connected", "not_installed"]
    installed: bool
    file: str = Field(description="The file with the crib's entry, or where it would be written.")
    type: ServerType = Field(description="The transport of the connection.")
    connections: list[ConnectionShape]
    others: int = Field(description="The number of other servers in that file.")


class ConnectRequest(Shape):
    """A request to connect an app."""

    agent: str | None = Field(
        None,
        description="Connect as this agent, with its tools and prompt. Unset in a project's file: the project's agent.",
        min_length=1,
        max_length=200,
    )
    scope: ConnectScope = "user"
    stdio: bool = Field(False, description="Connect over stdio, even if the app supports HTTP.")
    move: bool = Field(False, description="Move the app's other servers to Toolcrib.")
    anyway: bool = Field(False, description="Connect even if the app was not found.")
    level: Level | None = Field(
        None, description="`ask`: read-only tools run, all others ask. `app`: the app decides. Unset: undecided."
    )
    tools: AppTools | None = Field(
        None,
        description="What the app receives. `chosen`: its tool set, which the address does not name. Unset: as before; "
        "a new app gets the tools of your servers, and `search` over HTTP if they are many.",
    )
    chosen: list[Annotated[str, Field(min_length=1, max_length=512)]] = Field(
        [], description="The tools of its set, as `server/tool` or patterns; only with `chosen`.", max_length=2000
    )
    programs: list[str] | None = Field(
        None, description="Programs on the caller's path; unset searches the path of the crib.", max_length=200
    )
    dry_run: bool = False


class ConnectedShape(Shape):
    """The result of connecting, or of a dry run."""

    client: str
    title: str
    installed: bool
    name: str
    type: ServerType
    agent: str | None
    level: Level | None = Field(description="The access level; null over stdio or if undecided.")
    tools: AppTools = Field(description="What the app lists.")
    offers: list[OfferShape] = Field(
        description="What it receives under each choice. Over stdio without an agent: only `all` and `chosen`."
    )
    reasons: list[str] = Field(description="What was wrong with the previous entry.")
    change: EditShape
    moved: TransferShape | None


class DisconnectedShape(Shape):
    """The result of disconnecting, or of a dry run."""

    client: str
    title: str
    agent: str | None
    change: EditShape | None
    exact: bool = Field(description="Whether the file was restored byte for byte.")
    revoked_token: str | None
