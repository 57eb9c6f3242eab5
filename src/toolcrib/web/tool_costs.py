"""What the tools of a principal cost an MCP client, for REST and the console."""

from dataclasses import replace
from functools import partial

from toolcrib.gate.costs import DAYS, CostReport, costs, definition_tokens
from toolcrib.host import Crib
from toolcrib.model.json import dumps
from toolcrib.model.principals import Principal
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.servers.apps.connectable import connectable
from toolcrib.servers.apps.connections import OfferedTools
from toolcrib.web.mcp import search_tools


async def tool_costs(crib: Crib, principal: Principal) -> CostReport:
    """Return the estimated tokens of a principal's tools, and their calls: all for the owner, others see their own."""
    own = None if principal.is_owner else principal.name
    calls = await crib.audit.calls(DAYS, agent=principal.agent, principal=own)
    search_tokens = sum(estimate_bytes(len(dumps(each))) for each in search_tools.DEFINITIONS)
    name = partial(crib.gate.name, "endpoint")
    return costs(crib.gate.listing(principal).tools, name, calls, search_tokens, crib.settings.search_above)


def best_offer(crib: Crib, client: str, agent: str | None) -> OfferedTools:
    """Return how an app that is newly connected should list tools: by search if it would load too many definitions."""
    if connectable(client).defers_tools:
        return "all"
    principal = replace(crib.owner(source="ide"), agent=agent)
    tools = crib.gate.listing(principal).tools
    tokens = sum(definition_tokens(crib.gate.name("endpoint", tool.ref), tool) for tool in tools)
    return "search" if tokens > crib.settings.search_above else "all"
