"""What the tools of a principal cost an MCP client, for REST and the console."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from toolcrib.gate.costs import DAYS, CostReport, costs, definition_tokens
from toolcrib.gate.policy.decide import sees
from toolcrib.gate.programs import code_tools
from toolcrib.gate.search import search_tools
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject, dumps
from toolcrib.model.principals import Principal
from toolcrib.model.servers import ServerType
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.model.tools import Tool
from toolcrib.servers.apps.connectable import connectable
from toolcrib.servers.apps.connections import AppState, OfferedTools
from toolcrib.web.tool_sets import ToolSetScope, app_scope, default_set, rules_of

AppTools: TypeAlias = Literal["all", "chosen", "search", "code"]
"""What an app receives: all tools, its tool set, or the tools that find and call the others."""
APP_TOOLS: tuple[AppTools, ...] = ("all", "chosen", "search", "code")


async def tool_costs(crib: Crib, principal: Principal) -> CostReport:
    """Return the estimated tokens of a principal's tools, and their calls: all for the owner, others see their own."""
    own = None if principal.is_owner else principal.name
    calls = await crib.audit.calls(DAYS, agent=principal.agent, principal=own)
    search_tokens = _tokens_of(search_tools.DEFINITIONS)
    name = partial(crib.gate.name, "endpoint")
    tools = crib.gate.listing(principal).tools
    listed = {tool.ref: tool for tool in crib.gate.listed(principal)}
    shorter = await crib.gate.shortened.shorter(tools)
    return costs(tools, name, calls, search_tokens, crib.settings.search_above, listed, shorter)


def best_offer(crib: Crib, client: str, agent: str | None) -> OfferedTools:
    """Return how an app that is newly connected should list tools: by search if it would load too many definitions."""
    if connectable(client).defers_tools:
        return "all"
    _, tokens = _received_tools(crib, app_scope(client, agent), agent).chosen
    return "search" if tokens > crib.settings.search_above else "all"


def offers_of(crib: Crib, client: str | None, agent: str | None, over: ServerType = "http") -> list[JsonObject]:
    """Return what an app receives under each choice of `tools`; over stdio, only an agent can search.

    `chosen` is the tool set of the app, and for one that is not connected the set it would get.
    """
    scope = app_scope(client, agent) if client is not None else None
    (count, tokens), (some, cost) = _received_tools(crib, scope, agent)
    found: list[JsonObject] = [
        {"tools": "all", "definitions": count, "tokens": tokens, "saves": 0},
        {"tools": "chosen", "definitions": some, "tokens": cost, "saves": tokens - cost},
    ]
    if over == "stdio" and agent is None:
        return found
    for mode, definitions in (("search", search_tools.DEFINITIONS), ("code", code_tools.DEFINITIONS)):
        received = _tokens_of(definitions)
        found.append({"tools": mode, "definitions": len(definitions), "tokens": received, "saves": tokens - received})
    return found


async def listing_of(crib: Crib, client: str, agent: str | None, named: OfferedTools | None) -> AppTools:
    """Return what an app lists: as its address says, else as its agent does, else its tool set or all tools."""
    listing = named or "all"
    if named is None and agent is not None and crib.zoo.granted(agent) is not None:
        listing = (await crib.zoo.listing(agent)).mode or "all"
    has_set = bool(rules_of(crib, app_scope(client, agent)))
    return "chosen" if listing == "all" and has_set else listing


async def with_offers(crib: Crib, states: Sequence[AppState]) -> list[JsonObject]:
    """Return the states of apps, each connection with what it receives under each choice."""
    shapes = [state.to_json() for state in states]
    for shape in shapes:
        for connection in shape["connections"]:
            client, agent = shape["client"], connection["agent"]
            connection["tools"] = await listing_of(crib, client, agent, connection["tools"])
            connection["offers"] = offers_of(crib, client, agent, connection["type"])
            connection["token"] = app_scope(client, agent).name if connection["hasToken"] else None
    return shapes


class _Received(NamedTuple):
    """The number and tokens of all tools that an app may have, and of those in its tool set."""

    everything: tuple[int, int]
    chosen: tuple[int, int]


def _received_tools(crib: Crib, scope: ToolSetScope | None, agent: str | None) -> _Received:
    token = crib.tokens.named(scope.name) if scope is not None else None
    principal = token.principal if token is not None else replace(crib.owner(source="ide"), agent=agent)
    rules, limits = crib.permissions.rules(), rules_of(crib, scope) if scope is not None else []
    if limits:
        grants, without = crib.permissions.grants(principal), rules.without([rule.id for rule in limits])
        offered = [tool for tool in crib.catalog.at(principal.cwd).tools.values() if tool.kind != "runtime"]
        tools = [tool for tool in offered if sees(tool, principal, grants, without)]
        some = crib.gate.listing(principal).tools
    else:
        tools = crib.gate.listing(principal).tools
        wanted = default_set(crib, agent)
        some = [tool for tool in tools if wanted.has(tool.ref)]
    return _Received(_cost(crib, tools), _cost(crib, some))


def _cost(crib: Crib, tools: Sequence[Tool]) -> tuple[int, int]:
    listed = crib.gate.shortened.listed(tools)
    return len(tools), sum(definition_tokens(crib.gate.name("endpoint", tool.ref), tool) for tool in listed)


def _tokens_of(definitions: Sequence[JsonObject]) -> int:
    return sum(estimate_bytes(len(dumps(each))) for each in definitions)
