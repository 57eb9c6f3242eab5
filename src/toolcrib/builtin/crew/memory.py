"""Crew tools for memory: an agent's own brain, searched by key, words, type or tag.

A key is the id of a brain entry, so users can see and edit the same entries.

Must never access another agent's brain.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.agents.zoo.brain import ITSELF, MOST_SEARCHED, EntryQuery
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.builtin.caller import Calling, own_agent
from toolcrib.model.agents import BrainEntry, EntryType
from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject
from toolcrib.tools import Inject, tool

if TYPE_CHECKING:
    from toolcrib.agents.zoo import input as agent_input
else:
    agent_input = lazy_module("toolcrib.agents.zoo.input")

MOST_RECALLED: Final = 100

ZooOf = Annotated[Zoo, Inject]
Key = Annotated[str, "The memory's key."]


class Memory(TypedDict):
    """One memory."""

    key: str
    type: str
    content: str
    tags: list[str]
    pinned: bool
    at: str


class SavedMemory(TypedDict):
    """The answer to `crib_save_memory`."""

    key: str
    created: bool


class Recalled(TypedDict):
    """The answer to `crib_recall_memory`."""

    memories: list[Memory]
    more: bool


class Forgotten(TypedDict):
    """The answer to `crib_delete_memory`."""

    key: str
    deleted: bool


@tool(title="Remember")
async def crib_save_memory(
    content: Annotated[str, "What to remember, up to 65536 characters."],
    key: Annotated[
        str | None, "A name to find it by; an existing memory with it is replaced. Generated if missing."
    ] = None,
    type: Annotated[EntryType, "The type of the memory."] = "note",
    tags: Annotated[list[str] | None, "Tags to find it by, up to 50."] = None,
    pinned: Annotated[bool, "Pinned memories are part of your prompt, if the owner enabled that."] = False,
    *,
    zoo: ZooOf,
    context: Calling,
) -> SavedMemory:
    """Save something to your own memory, which lasts beyond this session.

    Use it for decisions, facts and lessons that matter later; for what all agents should know, use
    crib_library_write. Returns the key, and whether the memory is new.
    """
    agent = own_agent(context)
    given: JsonObject = {
        "type": type,
        "content": content,
        "tags": tags or [],
        "pinned": pinned,
        "timestamp": datetime.now(UTC).isoformat(),
        "metadata": {"sessionId": context.session} if context.session else {},
    }
    made = parse(agent_input.EntryInput, given if key is None else {**given, "id": key})
    try:
        return {"key": (await zoo.brain.add(agent, made, source="mcp", author=ITSELF)).id, "created": True}
    except Conflict:  # the key exists
        changed = await zoo.brain.change(agent, made.id or "", parse(agent_input.EntryChanges, given), author=ITSELF)
        return {"key": changed.id, "created": False}


@tool(read_only=True, title="Recall")
async def crib_recall_memory(
    key: Annotated[str | None, "Only the memory with this key."] = None,
    query: Annotated[str | None, "Words that must all occur in it."] = None,
    type: Annotated[EntryType | None, "Only memories of this type."] = None,
    tags: Annotated[list[str] | None, "Only memories with any of these tags."] = None,
    limit: Annotated[int, "Maximum number of results.", Field(ge=1, le=MOST_RECALLED)] = 20,
    *,
    zoo: ZooOf,
    context: Calling,
) -> Recalled:
    """Recall what you have saved to your own memory, newest first.

    Use it at the start of work that may continue earlier work, and before you ask a question again. Without filters it
    returns the newest. Returns memories, and whether there are more than the limit.
    """
    agent = own_agent(context)
    if key is not None:
        return {"memories": [_memory(await zoo.brain.get(agent, key))], "more": False}
    wanted = EntryQuery(type, tuple(tags or ()), limit=MOST_SEARCHED if query else limit + 1)
    words = (query or "").casefold().split()
    found = [entry for entry in await zoo.brain.find(agent, wanted) if _matches(entry, words)]
    return {"memories": [_memory(entry) for entry in found[:limit]], "more": len(found) > limit}


@tool(destructive=True, title="Forget")
async def crib_delete_memory(key: Key, *, zoo: ZooOf, context: Calling) -> Forgotten:
    """Delete one of your memories permanently. Use it for memories that are wrong or outdated. Returns the key."""
    await zoo.brain.delete(own_agent(context), key, author=ITSELF)
    return {"key": key, "deleted": True}


def _matches(entry: BrainEntry, words: list[str]) -> bool:
    text = " ".join((entry.id, entry.content, *entry.tags)).casefold()
    return all(word in text for word in words)


def _memory(entry: BrainEntry) -> Memory:
    return {
        "key": entry.id,
        "type": entry.type,
        "content": entry.content,
        "tags": list(entry.tags),
        "pinned": entry.pinned,
        "at": entry.timestamp,
    }


TOOLS = (crib_save_memory, crib_recall_memory, crib_delete_memory)
