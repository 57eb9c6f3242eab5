"""Crew tools for credits: an agent's balance and, for trusted callers, grants and budgets.

Granting and budgeting are privileged: they must be granted by name.
"""

from typing import Annotated, Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.agents.credits import DEFAULT, Amounts, Budget, Credits
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.builtin.caller import Calling
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.tools import Inject, tool

CreditsOf = Annotated[Credits, Inject]
ZooOf = Annotated[Zoo, Inject]
Unit = Literal["turns", "calls", "usd"]


class Stands(TypedDict):
    """The answer to `crib_check_credits` and `crib_grant_credits`; null has no limit."""

    agentId: str
    budget: JsonObject
    granted: JsonObject
    spent: JsonObject
    left: JsonObject
    exhausted: list[str]


class Checked(Stands):
    """The answer to `crib_check_credits`."""

    history: list[JsonObject]


class Budgets(TypedDict):
    """The answer to `crib_credit_config`; `*` is the budget of all agents that have none of their own."""

    budgets: dict[str, JsonObject]


@tool(read_only=True, title="Check credits")
async def crib_check_credits(
    agent: Annotated[str | None, "An agent's ID; without one, the agent that asks."] = None,
    limit: Annotated[int, "How many of the newest entries of the ledger to show.", Field(ge=0, le=200)] = 10,
    *,
    credits: CreditsOf,
    zoo: ZooOf,
    context: Calling,
) -> Checked:
    """Show what an agent may still use: turns, calls of tools, US dollars.

    Use it before long work, and when a call was refused because a budget is used up. Returns budget, granted, spent,
    left (null: no limit), the units that are exhausted, and the newest entries of the ledger.
    """
    wanted = await _known(zoo, agent or context.agent)
    stands = cast("Stands", (await credits.standing(wanted)).to_json())
    history = await credits.history(wanted, limit) if limit else ()
    return {**stands, "history": [entry.to_json() for entry in history]}


@tool(privileged=True, scheduler_blocked=True, title="Grant credits")
async def crib_grant_credits(
    agent: Annotated[str, "The agent's ID; not your own."],
    turns: Annotated[int, "Turns of its model.", Field(ge=0)] = 0,
    calls: Annotated[int, "Calls of tools.", Field(ge=0)] = 0,
    usd: Annotated[float, "US dollars, as its runtime reports them.", Field(ge=0)] = 0.0,
    reason: Annotated[str | None, "Why, for the ledger.", Field(max_length=500)] = None,
    *,
    credits: CreditsOf,
    zoo: ZooOf,
    context: Calling,
) -> Stands:
    """Give another agent more than its budget, once. Use it when the owner wants it to go on.

    It counts at once, also in sessions under way. Returns how the agent stands then. Grants are never taken back.
    """
    await _known(zoo, agent)
    given = Amounts(turns, calls, usd)
    return cast("Stands", (await credits.grant(agent, given, by=context.principal, reason=reason)).to_json())


@tool(privileged=True, scheduler_blocked=True, title="Set budgets")
async def crib_credit_config(
    agent: Annotated[str, "The agent's ID; * stands for all that have no budget of their own."] = DEFAULT,
    turns: Annotated[int | None, "Turns of its model in all.", Field(ge=0)] = None,
    calls: Annotated[int | None, "Calls of tools in all.", Field(ge=0)] = None,
    usd: Annotated[float | None, "US dollars in all.", Field(ge=0)] = None,
    unlimited: Annotated[list[Unit] | None, "Units that have no limit any more."] = None,
    *,
    credits: CreditsOf,
    zoo: ZooOf,
    context: Calling,
) -> Budgets:
    """Set the budget of an agent, or of all that have none of their own; without amounts only show budgets.

    Use it when the owner wants agents to be held to limits. What is not given stays. What an agent has spent so far
    counts. Returns all budgets; null has no limit.
    """
    given = Budget(turns, calls, usd)
    if given == Budget() and not unlimited:
        found = await credits.budgets()
    else:
        if agent != DEFAULT:
            await _known(zoo, agent)
        found = await credits.configure(agent, given, by=context.principal, unlimited=unlimited or ())
    return {"budgets": {name: budget.to_json() for name, budget in found.items()}}


async def _known(zoo: Zoo, agent: str | None) -> str:
    """Return the id of an existing agent; raise if unknown."""
    if agent is None:
        raise InvalidRequest("crew.no_agent", "This call comes from no agent.", "Give the ID of one.")
    return (await zoo.get(agent)).agent.id


TOOLS = (crib_check_credits, crib_grant_credits, crib_credit_config)
