"""Agents: prompt and skills, brain entries (memory), and tool permissions.

`agents.zoo.input` validates user input, `agents.zoo.compile` renders the prompt. `to_json` and `of_json` are inverse,
so storage, API and export share one shape.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from toolcrib.model.errors import NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode

EntryType = Literal["decision", "milestone", "note", "summary"]
ENTRY_TYPES: tuple[EntryType, ...] = get_args(EntryType)
EntrySource = Literal["manual", "auto", "mcp"]
ListingMode = Literal["all", "search", "code"]
"""What MCP clients of an agent list: all tools, or those that find and call them."""
LISTING_MODES: tuple[ListingMode, ...] = get_args(ListingMode)
InjectFormat = Literal["compiled", "structured"]
MOST_TOOL_TOKENS = 10_000_000
HANDOVER = "handover"
"""Tag of a brain entry that one agent left for another."""

AGENT_ID = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$"
"""Ids appear in paths, URLs and prompt names: `agent_zoo_use_<id>` has at most 64 characters."""
PART_ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
"""Ids of skills, categories and entries."""
COLOUR = r"^#[0-9A-Fa-f]{6}$"


def unknown_agent(agent_id: str) -> NotFound:
    """Return the error for an unknown agent id."""
    return NotFound("agent.unknown", f"Agent with ID '{agent_id}' not found.")


@dataclass(frozen=True, slots=True)
class SkillCategory:
    """A group of skills, with its display colour."""

    id: str
    name: str
    color: str

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"id": self.id, "name": self.name, "color": self.color}


GENERAL = SkillCategory("general", "General", "#61988E")
"""The default category of skills that do not name one."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A prompt fragment that can be enabled. `tools` are granted and `requires` lists the skills needed while it is."""

    id: str
    name: str
    description: str
    category_id: str = GENERAL.id
    enabled: bool = True
    tools: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the public shape, without empty lists."""
        shape: JsonObject = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "categoryId": self.category_id,
            "enabled": self.enabled,
        }
        lists = {"tools": self.tools, "requires": self.requires}
        return shape | {key: list(value) for key, value in lists.items() if value}

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "Skill":
        """Return the skill for a validated shape."""
        tools, requires = tuple(shape.get("tools", ())), tuple(shape.get("requires", ()))
        text = (shape["id"], shape["name"], shape["description"], shape["categoryId"])
        return cls(*text, shape["enabled"], tools, requires)


class ToolListing(NamedTuple):
    """How MCP clients of an agent list its tools, and the most tokens of a list of all; None means unset."""

    mode: ListingMode | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent without its brain, which is stored separately.

    `tool_permissions`: None means the default set, an empty tuple means no tools. `listing` and `tool_tokens` decide
    what MCP clients list, never what they may call.
    """

    id: str
    name: str
    description: str = ""
    system_prompt: str = ""
    skill_categories: tuple[SkillCategory, ...] = (GENERAL,)
    skills: tuple[Skill, ...] = ()
    context_refs: tuple[str, ...] = ()
    appearance_seed: str | int | None = None
    tool_permissions: tuple[str, ...] | None = None
    include_brain: bool = False
    model: str | None = None
    mode: Mode | None = None
    listing: ListingMode | None = None
    tool_tokens: int | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape without `brainEntries` and without unset optional fields."""
        shape: JsonObject = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "systemPrompt": self.system_prompt,
            "skillCategories": [category.to_json() for category in self.skill_categories],
            "skills": [skill.to_json() for skill in self.skills],
            "contextRefs": list(self.context_refs),
            "toolPermissions": None if self.tool_permissions is None else list(self.tool_permissions),
            "includeBrain": self.include_brain,
        }
        optional = {
            "appearanceSeed": self.appearance_seed,
            "model": self.model,
            "mode": self.mode,
            "listing": self.listing,
            "toolTokens": self.tool_tokens,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "Agent":
        """Return the agent for a validated shape."""
        permissions = shape["toolPermissions"]
        return cls(
            id=shape["id"],
            name=shape["name"],
            description=shape["description"],
            system_prompt=shape["systemPrompt"],
            skill_categories=tuple(SkillCategory(**each) for each in shape["skillCategories"]),
            skills=tuple(Skill.of_json(each) for each in shape["skills"]),
            context_refs=tuple(shape["contextRefs"]),
            appearance_seed=shape.get("appearanceSeed"),
            tool_permissions=None if permissions is None else tuple(permissions),
            include_brain=shape["includeBrain"],
            model=shape.get("model"),
            mode=shape.get("mode"),
            listing=shape.get("listing"),
            tool_tokens=shape.get("toolTokens"),
        )

    @property
    def enabled_skills(self) -> tuple[Skill, ...]:
        """The enabled skills, in order."""
        return tuple(skill for skill in self.skills if skill.enabled)


@dataclass(frozen=True, slots=True)
class BrainEntry:
    """One entry of an agent's memory. `metadata` records its origin: `source`, `sessionId`, `workspaceId`.

    `metadata.writer` names the author if it is neither the owner nor the agent itself.
    """

    id: str
    agent_id: str
    type: EntryType
    content: str
    timestamp: str
    pinned: bool = False
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def writer(self) -> str | None:
        """The author, if it is neither the owner nor this agent; such content is untrusted. Handovers have one."""
        is_handover = self.metadata.get("source") == "auto" and HANDOVER in self.tags
        return "another agent" if is_handover else self.metadata.get("writer")

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "id": self.id,
            "agentId": self.agent_id,
            "type": self.type,
            "content": self.content,
            "timestamp": self.timestamp,
            "pinned": self.pinned,
            "tags": list(self.tags),
            "metadata": dict(self.metadata),
        }

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "BrainEntry":
        """Return the entry for a validated shape."""
        return cls(
            id=shape["id"],
            agent_id=shape["agentId"],
            type=shape["type"],
            content=shape["content"],
            timestamp=shape["timestamp"],
            pinned=shape["pinned"],
            tags=tuple(shape["tags"]),
            metadata=shape["metadata"],
        )


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """An agent as listed. `brain_version` increases with every change of its brain."""

    id: str
    name: str
    description: str
    version: int
    brain_version: int
    updated_at: str

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "version": self.version,
            "updatedAt": self.updated_at,
        }


def slug(text: str, *, fallback: str, longest: int = 40) -> str:
    """Return an id derived from a name: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:longest].strip("-") or fallback
