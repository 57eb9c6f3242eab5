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


class Balance(TypedDict):
    """The answer to `crib_check_credits` and `crib_grant_credits`; null has no limit."""

    agentId: str
    budget: JsonObject
    granted: JsonObject
    spent: JsonObject
    left: JsonObject
    exhausted: list[str]


class Checked(Balance):
    """The answer to `crib_check_credits`."""

    history: list[JsonObject]


class Budgets(TypedDict):
    """The answer to `crib_credit_config`; `*` is the budget of all agents that have none of their own."""

    budgets: dict[str, JsonObject]


@tool(read_only=True, title="Check credits")
async def crib_check_credits(
    agent: Annotated[str | None, "An agent's ID. Default: the calling agent."] = None,
    limit: Annotated[int, "Number of recent ledger entries to show.", Field(ge=0, le=200)] = 10,
    *,
    credits: CreditsOf,
    zoo: ZooOf,
    context: Calling,
) -> Checked:
    """Show the remaining budget of an agent: turns, tool calls, US dollars.

    Use it before long work, and when a call was refused because a budget is used up. Returns budget, granted, spent,
    left (null: no limit), the units that are exhausted, and the newest entries of the ledger.
    """
    wanted = await _existing_agent(zoo, agent or context.agent)
    balance = cast("Balance", (await credits.balance(wanted)).to_json())
    history = await credits.history(wanted, limit) if limit else ()
    return {**balance, "history": [entry.to_json() for entry in history]}


@tool(privileged=True, scheduler_blocked=True, title="Grant credits")
async def crib_grant_credits(
    agent: Annotated[str, "The agent's ID; not your own."],
    turns: Annotated[int, "Model turns.", Field(ge=0)] = 0,
    calls: Annotated[int, "Tool calls.", Field(ge=0)] = 0,
    usd: Annotated[float, "US dollars, as reported by its runtime.", Field(ge=0)] = 0.0,
    reason: Annotated[str | None, "The reason, for the ledger.", Field(max_length=500)] = None,
    *,
    credits: CreditsOf,
    zoo: ZooOf,
    context: Calling,
) -> Balance:
    """Grant another agent credits beyond its budget, once. Use it when the owner wants the agent to continue.

    It takes effect immediately, also in running sessions. Returns the new balance. A grant cannot be revoked.
    """
    await _existing_agent(zoo, agent)
    given = Amounts(turns, calls, usd)
    return cast("Balance", (await credits.grant(agent, given, by=context.principal, reason=reason)).to_json())


@tool(privileged=True, scheduler_blocked=True, title="Set budgets")
async def crib_credit_config(
    agent: Annotated[str, "The agent's ID; * for all agents without their own budget."] = DEFAULT,
    turns: Annotated[int | None, "Model turns in total.", Field(ge=0)] = None,
    calls: Annotated[int | None, "Tool calls in total.", Field(ge=0)] = None,
    usd: Annotated[float | None, "US dollars in total.", Field(ge=0)] = None,
    unlimited: Annotated[list[Unit] | None, "Units whose limit is removed."] = None,
    *,
    credits: CreditsOf,
    zoo: ZooOf,
    context: Calling,
) -> Budgets:
    """Set the budget of an agent, or of all agents without their own; without amounts, only show budgets.

    Use it when the owner wants to limit agents. Amounts that are not given stay. Past usage counts. Returns all
    budgets; null means no limit.
    """
    given = Budget(turns, calls, usd)
    if given == Budget() and not unlimited:
        found = await credits.budgets()
    else:
        if agent != DEFAULT:
            await _existing_agent(zoo, agent)
        found = await credits.configure(agent, given, by=context.principal, unlimited=unlimited or ())
    return {"budgets": {name: budget.to_json() for name, budget in found.items()}}


async def _existing_agent(zoo: Zoo, agent: str | None) -> str:
    """Return the id of an existing agent; raise if unknown."""
    if agent is None:
        raise InvalidRequest("crew.no_agent", "The caller is not an agent.", "Give the ID of an agent.")
    return (await zoo.get(agent)).agent.id


TOOLS = (crib_check_credits, crib_grant_credits, crib_credit_config)
