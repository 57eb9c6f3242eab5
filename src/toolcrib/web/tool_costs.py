"""What the tools of a principal cost an MCP client, for REST and the console."""

from functools import partial

from toolcrib.gate.costs import DAYS, CostReport, costs
from toolcrib.host import Crib
from toolcrib.model.json import dumps
from toolcrib.model.principals import Principal
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.web.mcp import search_tools


async def tool_costs(crib: Crib, principal: Principal) -> CostReport:
    """Return the estimated tokens of a principal's tools, and their calls: all for the owner, others see their own."""
    own = None if principal.is_owner else principal.name
    calls = await crib.audit.calls(DAYS, agent=principal.agent, principal=own)
    search_tokens = sum(estimate_bytes(len(dumps(each))) for each in search_tools.DEFINITIONS)
    return costs(crib.gate.listing(principal).tools, partial(crib.gate.name, "endpoint"), calls, search_tokens)
