"""Projects: directories that have a default agent and bundles of their own."""

from dataclasses import dataclass

from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Project:
    """A directory by its real path; `trusted` says whether its owner agreed to what its files define."""

    path: str
    trusted: bool = False
    agent: str | None = None
    bundles: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """The public shape; a project without an agent of its own leaves it out."""
        shape: JsonObject = {"path": self.path, "trusted": self.trusted, "bundles": list(self.bundles)}
        return shape if self.agent is None else {**shape, "agentId": self.agent}
