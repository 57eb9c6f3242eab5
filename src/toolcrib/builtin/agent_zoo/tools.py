"""The tools of the built-in server `agent_zoo`: inject agents into any chat, and store their memories.

The handlers are plain functions of an injected `Zoo`. Every result is one JSON text and the same structured content.
Failures are results too, with `error`, `code` and `message`, so that a model can act on them. An agent can read the
brains of others, but writes only to its own. Prompts and resources are in `source`, which combines both.
"""

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from pydantic import BaseModel

from toolcrib.agents.zoo.brain import UNPINNED, EntryQuery
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.builtin.caller import author_of
from toolcrib.model.agents import EntryType, InjectFormat
from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject, dumps
from toolcrib.model.tools import CallResult
from toolcrib.tools import Context, Inject, ToolServer, tool

if TYPE_CHECKING:
    from toolcrib.agents.zoo import input as agent_input
else:
    agent_input = lazy_module("toolcrib.agents.zoo.input")

SERVER = "agent_zoo"
Answer: TypeAlias = JsonObject | CallResult
ZooOf = Annotated[Zoo, Inject]
Fields = TypeVar("Fields", bound=BaseModel)

AgentArgument = Annotated[str, "Agent ID, as returned by agent_zoo_list_agents."]
EntryArgument = Annotated[str, "Brain entry ID."]
TypeArgument = Annotated[EntryType, "The type of the entry."]
OptionalType = Annotated[EntryType | None, "The type of the entry."]
_CODES = {"agent.unknown": "AGENT_NOT_FOUND", "agent.entry_unknown": "ENTRY_NOT_FOUND"}
_QUERIED = 200


@tool(read_only=True, title="Inject an agent")
async def agent_zoo_inject(
    agentId: Annotated[str, "Agent ID to inject."],
    format: Annotated[
        InjectFormat, "compiled: one prompt. structured: system prompt and skills separately."
    ] = "compiled",
    *,
    zoo: ZooOf,
    context: Annotated[Context, Inject],
) -> Answer:
    """Get an agent's compiled prompt. Use it when a chat should become that agent, then follow the prompt it returns.

    Returns agentId, agentName and prompt; with format "structured" the systemPrompt and the enabled skills.
    """
    return await _answer(zoo.inject(agentId, format, context.principal.cwd))


@tool(read_only=True, title="List agents")
async def agent_zoo_list_agents(*, zoo: ZooOf) -> Answer:
    """List all agents. Use it to find the ID of the agent to inject. Returns id and name of each."""
    return {"agents": [{"id": agent.id, "name": agent.name} for agent in await zoo.list()]}


@tool(read_only=True, title="Show an agent")
async def agent_zoo_get_agent(agentId: Annotated[str, "Agent ID to retrieve."], *, zoo: ZooOf) -> Answer:
    """Get an agent with all its fields. Use it to inspect an agent; to become it, use inject."""
    return await _answer(zoo.whole(agentId))


@tool(title="Remember something")
async def agent_zoo_create_brain_entry(
    agentId: AgentArgument,
    type: TypeArgument,
    content: Annotated[str, "The content to remember."],
    tags: Annotated[list[str] | None, "Tags to find it by."] = None,
    pinned: Annotated[
        bool, "Pinned entries are part of the agent's prompt. Only for the owner and the agent itself."
    ] = False,
    metadata: Annotated[dict[str, str] | None, "sessionId and workspaceId, if known."] = None,
    *,
    zoo: ZooOf,
    context: Annotated[Context, Inject],
) -> Answer:
    """Add an entry to an agent's brain. Use it for decisions, milestones, notes and summaries worth keeping."""
    known = {"sessionId": context.session} if context.session else {}
    metadata = {**known, **(metadata or {}), "source": "mcp"}
    given = {"type": type, "content": content, "tags": tags or [], "pinned": pinned, "metadata": metadata}

    async def work() -> JsonObject:
        await _check_own(agentId, zoo, context)
        author = author_of(context.principal, agentId)
        made = (
            await zoo.brain.add(agentId, parse(agent_input.EntryInput, given), source="mcp", author=author)
        ).to_json()
        return {**made, "warnings": [UNPINNED]} if pinned and not made["pinned"] else made

    return await _answer(work())


@tool(title="Change a memory")
async def agent_zoo_update_brain_entry(
    agentId: AgentArgument,
    entryId: EntryArgument,
    type: OptionalType = None,
    content: Annotated[str | None, "The new content."] = None,
    tags: Annotated[list[str] | None, "The new tags."] = None,
    pinned: Annotated[bool | None, "Whether it is pinned."] = None,
    metadata: Annotated[dict[str, str] | None, "sessionId and workspaceId; members that are not given stay."] = None,
    *,
    zoo: ZooOf,
    context: Annotated[Context, Inject],
) -> Answer:
    """Change an entry of an agent's brain. Fields that are not given stay as they are. Returns the whole entry."""
    # The source of an entry never changes.
    kept = None if metadata is None else {name: value for name, value in metadata.items() if name != "source"}
    named = {"type": type, "content": content, "tags": tags, "pinned": pinned, "metadata": kept}

    async def work() -> JsonObject:
        await _check_own(agentId, zoo, context)
        author = author_of(context.principal, agentId)
        return (
            await zoo.brain.change(
                agentId, entryId, parse(agent_input.EntryChanges, _without_none(named)), author=author
            )
        ).to_json()

    return await _answer(work())


@tool(destructive=True, title="Forget a memory")
async def agent_zoo_delete_brain_entry(
    agentId: AgentArgument, entryId: EntryArgument, *, zoo: ZooOf, context: Annotated[Context, Inject]
) -> Answer:
    """Delete an entry of an agent's brain for good. Returns success and the entry's ID."""

    async def work() -> JsonObject:
        await _check_own(agentId, zoo, context)
        await zoo.brain.delete(agentId, entryId, author=author_of(context.principal, agentId))
        return {"success": True, "entryId": entryId}

    return await _answer(work())


@tool(read_only=True, title="Search memories")
async def agent_zoo_query_brain_entries(
    agentId: AgentArgument,
    type: OptionalType = None,
    tags: Annotated[list[str] | None, "Entries with any of these tags."] = None,
    dateFrom: Annotated[str | None, "First day or time, ISO 8601."] = None,
    dateTo: Annotated[str | None, "Last day or time, ISO 8601."] = None,
    pinned: Annotated[bool | None, "Only pinned entries, or only others."] = None,
    *,
    zoo: ZooOf,
) -> Answer:
    """Find entries of an agent's brain, newest first, at most 200. Returns agentId and entries."""
    query = EntryQuery(type, tuple(tags or ()), dateFrom, dateTo, pinned, _QUERIED)

    async def work() -> JsonObject:
        found = await zoo.brain.find(agentId, query)
        return {"agentId": agentId, "entries": [entry.to_json() for entry in found]}

    return await _answer(work())


def agent_zoo_server(zoo: Zoo) -> ToolServer:
    """Return the tools of this zoo."""
    return ToolServer(
        SERVER,
        tools=[
            agent_zoo_inject,
            agent_zoo_list_agents,
            agent_zoo_get_agent,
            agent_zoo_create_brain_entry,
            agent_zoo_update_brain_entry,
            agent_zoo_delete_brain_entry,
            agent_zoo_query_brain_entries,
        ],
        providers={Zoo: lambda: zoo},
        kind="builtin",
        instructions="List the agents, inject one, follow its prompt; keep what it should remember in its brain.",
    )


def failed(code: str, message: str) -> CallResult:
    """Return a failure as a result that a model can act on."""
    shape: JsonObject = {"error": True, "code": code, "message": message}
    text = {"type": "text", "text": dumps(shape).decode()}
    return CallResult((text,), is_error=True, structured_content=shape, has_structured=True)


async def _answer(work: Awaitable[JsonObject]) -> Answer:
    """Return the result of the work, or its failure."""
    try:
        return await work
    except (NotFound, InvalidRequest, Conflict, Denied) as error:
        return failed(_CODES.get(error.code, "INVALID_ARGUMENTS"), error.message)


async def _check_own(agent_id: str, zoo: Zoo, context: Context) -> None:
    """Raise if an agent writes to another agent's brain, whose content may become a prompt."""
    own = context.principal.agent
    if own is not None and own != agent_id:
        await zoo.whole(agent_id)  # raises for an unknown agent
        raise InvalidRequest("request.invalid", f"Agent '{own}' may change only its own brain: use agentId={own}.")


def _without_none(fields: Mapping[str, Json]) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}
