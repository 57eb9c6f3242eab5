"""Projects: directories with their own default agent and bundles."""

from dataclasses import dataclass

from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Project:
    """A directory, by its real path. `trusted` if the owner trusts the definitions in its files."""

    path: str
    trusted: bool = False
    agent: str | None = None
    bundles: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the public shape, without `agentId` if the project has no default agent."""
        shape: JsonObject = {"path": self.path, "trusted": self.trusted, "bundles": list(self.bundles)}
        return shape if self.agent is None else {**shape, "agentId": self.agent}
