"""The library: entries that agents write for all other agents."""

from dataclasses import dataclass
from datetime import datetime

from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """One entry. `author` is the last author; `agent` and `session` are set if that was an agent."""

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
        """Return the public shape, without absent fields."""
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
