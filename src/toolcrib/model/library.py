"""The library: what agents write down for all others."""

from dataclasses import dataclass
from datetime import datetime

from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """One entry. `author` is who wrote it last, `agent` and `session` where that was an agent."""

    key: str
    content: str
    title: str
    category: str
    tags: tuple[str, ...]
    author: str
    created_at: datetime
    updated_at: datetime
    agent: str | None = None
    session: str | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
        shape: JsonObject = {
            "key": self.key,
            "title": self.title,
            "content": self.content,
            "category": self.category,
            "tags": list(self.tags),
            "author": self.author,
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
            "updatedAt": self.updated_at.isoformat(timespec="milliseconds"),
        }
        optional = {"agentId": self.agent, "sessionId": self.session}
        return shape | {name: value for name, value in optional.items() if value is not None}
