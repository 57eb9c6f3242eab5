"""The accepted fields of agents and brain entries, with their limits.

`AgentInput` creates an agent; `AgentChanges` changes only the fields it names; likewise for entries. `check` validates
rules that span several fields.

Must never accept text that could break a prompt, a URL or a screen: control characters, lone surrogates, unbounded
text.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from toolcrib.model.agents import AGENT_ID, COLOUR, MOST_TOOL_TOKENS, PART_ID, EntrySource, EntryType, ListingMode
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.model.times import moment

LONGEST_NAME = 200
LONGEST_DESCRIPTION = 4_000
LONGEST_PROMPT = 256 * 1024
"""Characters of a system prompt; more than is useful for any model."""
LONGEST_FRAGMENT = 64 * 1024
"""Characters of a skill's text or of a brain entry."""
MOST_SKILLS = 200

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_BREAK = re.compile(r"[\n\t\u2028\u2029]")
_TOOL = re.compile(r"\*|[\w-]+|[^\s/]+/\S+")
"""All tools, one tool by its own name (built-in, or as models see it), or tools of servers."""


def _text(value: str) -> str:
    """Validate multi-line text; normalise line breaks."""
    value = value.replace("\r\n", "\n").replace("\r", "\n")
    if found := _CONTROL.search(value):
        code = f"U+{ord(found[0]):04X}"
        raise PydanticCustomError(
            "control_character",
            "has the control character {code} at position {at}",
            {"code": code, "at": found.start()},
        )
    return value


def _line(value: str) -> str:
    """Validate single-line text; strip it."""
    value = _text(value).strip()
    if not value:
        raise PydanticCustomError("empty", "is empty")
    if _BREAK.search(value):
        raise PydanticCustomError("line_break", "has a line break or a tab; it must be one line")
    return value


def _pattern(value: str) -> str:
    """Validate a tool pattern."""
    if not _TOOL.fullmatch(value):
        raise PydanticCustomError("tool_pattern", "is not a tool pattern; write `server/tool`, with `*` as a wildcard")
    return value


def _moment(value: str) -> str:
    """Normalise a timestamp to the form that sorts as text."""
    try:
        return moment(value)
    except ValueError:
        raise PydanticCustomError("moment", "is not a date and time, such as 2026-01-31T12:00:00Z") from None


Line = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_line)]
Fragment = Annotated[str, Field(max_length=LONGEST_FRAGMENT), AfterValidator(_text)]
Pattern = Annotated[str, Field(max_length=300), AfterValidator(_line), AfterValidator(_pattern)]
Patterns = Annotated[list[Pattern], Field(max_length=1_000)]
Reference = Annotated[str, Field(max_length=2_000), AfterValidator(_line)]
Moment = Annotated[str, Field(max_length=40), AfterValidator(_moment)]
Tags = Annotated[list[Annotated[str, Field(max_length=100), AfterValidator(_line)]], Field(max_length=50)]
AgentId = Annotated[str, Field(pattern=AGENT_ID, description="Letters, digits, `_` and `-`; at most 50.")]
PartId = Annotated[str, Field(pattern=PART_ID)]


class InputFields(BaseModel):
    """Base of inputs: camelCase fields, strictly typed, unknown fields forbidden."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True)


class CategoryInput(InputFields):
    """A group of skills."""

    id: PartId | None = Field(None, description="Derived from the name if missing.")
    name: Line
    color: str = Field("#61988E", pattern=COLOUR)


class SkillInput(InputFields):
    """One skill."""

    id: PartId | None = Field(None, description="Derived from the name if missing.")
    name: Line
    description: Fragment = Field("", description="The text for the prompt.")
    category_id: PartId | None = Field(None, description="One of the agent's categories.")
    enabled: bool = True
    tools: Patterns = Field([], description="Tools granted while the skill is on: `server/tool`, with `*`.")
    requires: list[PartId] = Field([], max_length=50, description="Skills that must also be on.")


class SkillChanges(InputFields):
    """Changes to a skill."""

    name: Line = ""
    description: Fragment = ""
    category_id: PartId = ""
    enabled: bool = True
    tools: Patterns = []
    requires: list[PartId] = Field([], max_length=50)


class MetadataInput(InputFields):
    """The origin of an entry."""

    source: EntrySource | None = None
    session_id: Line | None = None
    workspace_id: Line | None = None


class EntryChanges(InputFields):
    """Changes to an entry; fields that are not named stay the same."""

    type: EntryType = "note"
    content: Annotated[Fragment, Field(min_length=1)] = ""
    timestamp: Moment = ""
    pinned: bool = False
    tags: Tags = []
    metadata: MetadataInput = MetadataInput()


class EntryInput(EntryChanges):
    """An entry of a brain."""

    id: PartId | None = None
    agent_id: str | None = Field(None, max_length=LONGEST_NAME, description="Optional: taken from the URL.")
    type: EntryType = Field(...)
    content: Annotated[Fragment, Field(min_length=1)] = Field(...)
    timestamp: Moment = Field("", description="The current time if missing.")


class AgentChanges(InputFields):
    """Changes to an agent; fields that are not named stay the same. Lists are replaced as a whole."""

    id: AgentId | None = Field(None, description="Cannot be changed.")
    name: Line = ""
    description: Annotated[str, Field(max_length=LONGEST_DESCRIPTION), AfterValidator(_text)] = ""
    system_prompt: Annotated[str, Field(max_length=LONGEST_PROMPT), AfterValidator(_text)] = ""
    skill_categories: list[CategoryInput] = Field([], max_length=100)
    skills: list[SkillInput] = Field([], max_length=MOST_SKILLS)
    context_refs: list[Reference] = Field([], max_length=200)
    appearance_seed: Line | Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    tool_permissions: Patterns | None = Field(None, description="null: the default set; []: none.")
    include_brain: bool = Field(False, description="Put pinned entries and context references into the prompt.")
    model: Line | None = None
    mode: Mode | None = None
    listing: ListingMode | None = Field(None, description="What MCP clients list, unless their address says otherwise.")
    tool_tokens: Annotated[int, Field(ge=0, le=MOST_TOOL_TOKENS)] | None = Field(
        None, description="List at most these tokens of definitions, and search for the rest."
    )
    version: int | None = Field(None, description="The version that was read, as in `If-Match`; any other is refused.")
    brain_entries: list[EntryInput] = Field(
        [], max_length=10_000, description="Used when an agent is created; otherwise see `…/brain`."
    )
    created_at: str | None = Field(None, description="Only read.")
    updated_at: str | None = Field(None, description="Only read.")
    tokens: JsonObject | None = Field(None, description="Only read.")


class AgentInput(AgentChanges):
    """An agent to be created."""

    id: AgentId | None = Field(None, description="Derived from the name if missing.")
    name: Line = Field(...)


READ_ONLY = frozenset({"version", "brain_entries", "created_at", "updated_at", "tokens"})
"""Fields of responses that changes ignore, so that a response can be sent back."""


def named(given: InputFields, leave: frozenset[str] = frozenset()) -> JsonObject:
    """Return the fields that were set, under their public names, with nested values in full."""
    whole = given.model_dump(by_alias=True)
    return {to_camel(name): whole[to_camel(name)] for name in given.model_fields_set - leave}
