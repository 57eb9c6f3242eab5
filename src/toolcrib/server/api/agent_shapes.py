"""The shapes of `/api/agents`: what is asked and answered about agents, beside the fields of `zoo.input`."""

from typing import Literal

from pydantic import Field

from toolcrib.model.agents import EntryType
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.server.api.shapes import ProblemShape, Shape
from toolcrib.zoo.input import AgentId
from toolcrib.zoo.transfer import LARGEST

RevisionKind = Literal["created", "changed", "restored", "deleted"]


class AgentSummaryShape(Shape):
    """One agent in a list."""

    id: str
    name: str
    description: str
    version: int
    updated_at: str


class CategoryShape(Shape):
    """A group of skills."""

    id: str
    name: str
    color: str


class SkillShape(Shape):
    """A fragment of the prompt with a switch."""

    id: str
    name: str
    description: str
    category_id: str
    enabled: bool
    tools: list[str] = Field(default=[])
    requires: list[str] = Field(default=[])


class EntryShape(Shape):
    """Something an agent remembers."""

    id: str
    agent_id: str
    type: EntryType
    content: str
    timestamp: str
    pinned: bool
    tags: list[str]
    metadata: dict[str, str]


class SkillTokens(Shape):
    """What one skill costs, by estimate."""

    id: str
    tokens: int


class TokensShape(Shape):
    """What a prompt costs, by estimate."""

    estimate: bool
    prompt: int
    system_prompt: int
    skills: list[SkillTokens]
    memory: int
    context: int
    memory_budget: int


class AgentFields(Shape):
    """One agent as such."""

    id: str
    name: str
    description: str
    system_prompt: str
    skill_categories: list[CategoryShape]
    skills: list[SkillShape]
    context_refs: list[str]
    appearance_seed: str | int | None = None
    tool_permissions: list[str] | None
    include_brain: bool
    model: str | None = None
    mode: Mode | None = None


class AgentShape(AgentFields):
    """One agent as it is kept; `brainEntries` are the newest 200."""

    version: int
    created_at: str
    updated_at: str
    brain_entries: list[EntryShape]
    tokens: TokensShape


class InjectShape(Shape):
    """What a chat needs to become an agent, in either format."""

    agent_id: str
    agent_name: str
    prompt: str = ""
    warnings: list[str] = Field(default=[])
    system_prompt: str = ""
    skills: list[JsonObject] = Field(default=[])


class RemovedAgent(Shape):
    """An agent that was deleted."""

    id: str


class RemovedEntry(Shape):
    """An entry that was deleted."""

    success: bool
    entry_id: str


class RevisionShape(Shape):
    """One change of an agent."""

    version: int
    at: str
    author: str
    kind: RevisionKind


class RevisionDetails(RevisionShape):
    """One change in full: what the agent became, and what that changed."""

    agent: AgentFields | None
    diff: str = Field(description="Against the version before, or the one asked for.")


class ImportFile(Shape):
    """One file of another tool."""

    name: str = Field(max_length=4096)
    text: str = Field(max_length=LARGEST)


class AgentImport(Shape):
    """Files to take agents or skills from."""

    files: list[ImportFile] = Field(max_length=1_000)
    agent_id: AgentId | None = Field(None, description="The agent that skills are for; else each becomes an agent.")
    dry_run: bool = False


class TakenAgent(Shape):
    """An agent that was made, or that was given a skill."""

    id: str
    name: str
    skill: str = ""


class AgentImportAnswer(Shape):
    """What was taken, and what was not as it is."""

    taken: list[TakenAgent]
    problems: list[ProblemShape]
    dry_run: bool


class ExportedFile(Shape):
    """One file."""

    path: str
    text: str


class AgentExport(Shape):
    """An agent as files of another tool."""

    files: list[ExportedFile]
    problems: list[ProblemShape]


class LibrarySkill(SkillShape):
    """A skill to pick, with the category it comes from."""

    category: CategoryShape
