"""The shapes of `/api/agents`, beside the input fields of `zoo.input`."""

from typing import Literal

from pydantic import Field

from toolcrib.agents.zoo.input import AgentId
from toolcrib.agents.zoo.transfer import LARGEST
from toolcrib.model.agents import EntryType, ListingMode
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.web.api.shapes import ProblemShape, Shape

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
    """A part of the prompt that can be enabled."""

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
    """The estimated token cost of one skill."""

    id: str
    tokens: int


class TokensShape(Shape):
    """The estimated token cost of a prompt."""

    estimate: bool
    prompt: int
    system_prompt: int
    skills: list[SkillTokens]
    memory: int
    context: int
    memory_budget: int


class AgentFields(Shape):
    """The fields of an agent."""

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
    listing: ListingMode | None = Field(None, description="What MCP clients list.")
    tool_tokens: int | None = Field(None, description="The most tokens of definitions that MCP clients list.")


class AgentShape(AgentFields):
    """One stored agent; `brainEntries` are the newest 200."""

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
    """A deleted agent."""

    id: str


class RemovedEntry(Shape):
    """A deleted entry."""

    success: bool
    entry_id: str


class RevisionShape(Shape):
    """One change of an agent."""

    version: int
    at: str
    author: str
    kind: RevisionKind


class RevisionDetails(RevisionShape):
    """One change with the resulting agent and the diff."""

    agent: AgentFields | None
    diff: str = Field(description="The differences to the compared version.")


class ImportFile(Shape):
    """One file of another app."""

    name: str = Field(max_length=4096)
    text: str = Field(max_length=LARGEST)


class AgentImport(Shape):
    """Files to import agents or skills from."""

    files: list[ImportFile] = Field(max_length=1_000)
    agent_id: AgentId | None = Field(None, description="The agent to add skills to; by default each becomes an agent.")
    dry_run: bool = False


class TakenAgent(Shape):
    """An agent that was created or received a skill."""

    id: str
    name: str
    skill: str = ""


class AgentImportAnswer(Shape):
    """What was imported, and which problems occurred."""

    taken: list[TakenAgent]
    problems: list[ProblemShape]
    dry_run: bool


class ExportedFile(Shape):
    """One file."""

    path: str
    text: str


class AgentExport(Shape):
    """An agent as files of another app."""

    files: list[ExportedFile]
    problems: list[ProblemShape]


class LibrarySkill(SkillShape):
    """A library skill with its category."""

    category: CategoryShape
