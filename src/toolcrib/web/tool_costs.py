"""What the tools of a principal cost an MCP client, for REST and the console."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from toolcrib.gate.costs import DAYS, CostReport, costs, definition_tokens
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject, dumps
from toolcrib.model.principals import Principal
from toolcrib.model.servers import ServerType
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.servers.apps.connectable import connectable
from toolcrib.servers.apps.connections import AppState, OfferedTools
from toolcrib.web.mcp import code_tools, search_tools


async def tool_costs(crib: Crib, principal: Principal) -> CostReport:
    """Return the estimated tokens of a principal's tools, and their calls: all for the owner, others see their own."""
    own = None if principal.is_owner else principal.name
    calls = await crib.audit.calls(DAYS, agent=principal.agent, principal=own)
    search_tokens = _tokens_of(search_tools.DEFINITIONS)
    name = partial(crib.gate.name, "endpoint")
    return costs(crib.gate.listing(principal).tools, name, calls, search_tokens, crib.settings.search_above)


def best_offer(crib: Crib, client: str, agent: str | None) -> OfferedTools:
    """Return how an app that is newly connected should list tools: by search if it would load too many definitions."""
    if connectable(client).defers_tools:
        return "all"
    _, tokens = _everything(crib, agent)
    return "search" if tokens > crib.settings.search_above else "all"


def offers_of(crib: Crib, agent: str | None, over: ServerType = "http") -> list[JsonObject]:
    """Return what an app receives under each choice of `tools`; over stdio, only an agent can list fewer."""
    count, tokens = _everything(crib, agent)
    found: list[JsonObject] = [{"tools": "all", "definitions": count, "tokens": tokens, "saves": 0}]
    if over == "stdio" and agent is None:
        return found
    for mode, definitions in (("search", search_tools.DEFINITIONS), ("code", code_tools.DEFINITIONS)):
        received = _tokens_of(definitions)
        found.append({"tools": mode, "definitions": len(definitions), "tokens": received, "saves": tokens - received})
    return found


async def listing_of(crib: Crib, agent: str | None, named: OfferedTools | None) -> OfferedTools:
    """Return what an app lists: as its address says, else as its agent does, else all tools."""
    if named is not None or agent is None or crib.zoo.granted(agent) is None:
        return named or "all"
    return (await crib.zoo.listing(agent)).mode or "all"


async def with_offers(crib: Crib, states: Sequence[AppState]) -> list[JsonObject]:
    """Return the states of apps, each connection with what it receives under each choice."""
    shapes = [state.to_json() for state in states]
    for shape in shapes:
        for connection in shape["connections"]:
            agent = connection["agent"]
            connection["tools"] = await listing_of(crib, agent, connection["tools"])
            connection["offers"] = offers_of(crib, agent, connection["type"])
    return shapes


def _everything(crib: Crib, agent: str | None) -> tuple[int, int]:
    """Return the number and tokens of all tools that an app sees."""
    tools = crib.gate.listing(replace(crib.owner(source="ide"), agent=agent)).tools
    return len(tools), sum(definition_tokens(crib.gate.name("endpoint", tool.ref), tool) for tool in tools)


def _tokens_of(definitions: Sequence[JsonObject]) -> int:
    return sum(estimate_bytes(len(dumps(each))) for each in definitions)
