"""Notices to the owner, and the channels they go to beside the console."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject

Level = Literal["info", "warning", "error"]
ChannelKind = Literal["webhook", "desktop"]
CHANNEL_KINDS: tuple[ChannelKind, ...] = get_args(ChannelKind)


@dataclass(frozen=True, slots=True)
class OwnerNotice:
    """Something the owner should know; `agent` and `session` say who wants it known."""

    message: str
    title: str = ""
    level: Level = "info"
    agent: str | None = None
    session: str | None = None

    def to_json(self) -> JsonObject:
        """Data of the event `notice`; absent parts are left out."""
        shape: JsonObject = {"level": self.level, "message": self.message}
        optional = {"title": self.title or None, "agentId": self.agent, "sessionId": self.session}
        return shape | {name: value for name, value in optional.items() if value is not None}

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "OwnerNotice":
        """The notice of an event, whoever told it."""
        level: Level = shape["level"] if shape.get("level") in get_args(Level) else "info"
        title, message = str(shape.get("title") or ""), str(shape.get("message", ""))
        return cls(message, title, level, shape.get("agentId"), shape.get("sessionId"))


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as it was set. What is in `config` may be a secret: it is never shown whole."""

    kind: ChannelKind
    config: JsonObject = field(repr=False)
    set_by: str
    set_at: datetime
