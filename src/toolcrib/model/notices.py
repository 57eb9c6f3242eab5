"""Notices to the owner, and the channels that deliver them in addition to the console."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject

Level = Literal["info", "warning", "error"]
ChannelKind = Literal["webhook", "desktop"]


@dataclass(frozen=True, slots=True)
class OwnerNotice:
    """A message to the owner; `agent` and `session` identify the sender."""

    message: str
    title: str = ""
    level: Level = "info"
    agent: str | None = None
    session: str | None = None

    def to_json(self) -> JsonObject:
        """Return the data of the event `notice`, without absent fields."""
        shape: JsonObject = {"level": self.level, "message": self.message}
        optional = {"title": self.title or None, "agentId": self.agent, "sessionId": self.session}
        return shape | {name: value for name, value in optional.items() if value is not None}

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "OwnerNotice":
        """Return the notice for the data of an event, from any publisher."""
        level: Level = shape["level"] if shape.get("level") in get_args(Level) else "info"
        title, message = str(shape.get("title") or ""), str(shape.get("message", ""))
        return cls(message, title, level, shape.get("agentId"), shape.get("sessionId"))


@dataclass(frozen=True, slots=True)
class Channel:
    """A configured channel. `config` may contain secrets and is never shown in full."""

    kind: ChannelKind
    config: JsonObject = field(repr=False)
    set_by: str
    set_at: datetime
