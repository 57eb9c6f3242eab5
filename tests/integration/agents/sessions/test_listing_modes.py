"""Agents whose sessions list tools by search or by code: few listed tools, and every call passes the gate."""

import pytest

from integration.agents.sessions.test_sessions import END, only, open_crib, turn
from toolcrib import Crib, ToolServer, tool
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.model.json import Json, JsonObject
from toolcrib.store.audit import Filters
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def stock(item: str) -> int:
    """Count the pieces of an item in stock."""
    return len(item)


@tool
async def order(item: str, pieces: int) -> str:
    """Order pieces of an item."""
    return f"ordered {pieces} {item}"


def steps(name: str, **arguments: Json) -> list[Json]:
    step: JsonObject = {"tool": f"mcp__toolcrib__{name}", "input": arguments}
    return [{"blocks": [step]}, END]


PROGRAM = """
print(await lab_stock(item="bolt"))
for item in ["bolt", "nut"]:
    print(await lab_order(item=item, pieces=4))
"""
SCRIPTS: dict[str, Json] = {
    "find": steps("find_tools", query="how many pieces are in stock"),
    "call": steps("call_tool", ref="lab/stock", arguments={"item": "bolt"}),
    "hidden": steps("call_tool", ref="vault/open", arguments={}),
    "describe": steps("describe_tools", tools=["lab_stock"]),
    "run": steps("run_code", code=PROGRAM),
    "dry": steps("run_code", code=PROGRAM, dry_run=True),
    "wrong": steps("run_code", code="lab_stock("),
}


async def set_up(crib: Crib, listing: str) -> PlayedRunner:
    """Register the tools and an agent with this listing mode."""
    crib.register(ToolServer("lab", tools=[stock, order]))
    fields = {"id": "clerk", "name": "Clerk", "toolPermissions": ["lab/*"], "listing": listing}
    await crib.zoo.create(AgentInput.model_validate(fields), by="owner")
    crib.runners.add(runner := PlayedRunner(SCRIPTS))
    return runner


async def result_of(crib: Crib, prompt: str, listing: str, decision: str = "approve") -> tuple[str, JsonObject]:
    await set_up(crib, listing)
    async with crib.session(runner="played", agent="clerk", mode="default") as session:
        result = only(await turn(session, prompt, crib, decision=decision), "tool_result").data
    return result["content"][0]["text"], result


async def test_search_mode_finds_and_calls_tools_through_the_gate() -> None:
    async with open_crib() as crib:
        text, _ = await result_of(crib, "find", "search")
        assert "lab/stock" in text
    async with open_crib() as crib:
        text, _ = await result_of(crib, "call", "search")
        assert text == "4"
        records = await crib.audit.find(Filters(server="lab"))
        assert {(each["door"], each["tool"]) for each in records} == {("session", "stock")}
    async with open_crib() as crib:
        assert (await result_of(crib, "hidden", "search"))[1]["isError"] is True


async def test_code_mode_describes_tools_and_runs_a_program_after_one_approval() -> None:
    async with open_crib() as crib:
        assert "async def lab_stock(*, item: str)" in (await result_of(crib, "describe", "code"))[0]
    async with open_crib() as crib:
        text, result = await result_of(crib, "run", "code")
        assert text == "{'result': 4}\nordered 4 bolt\nordered 4 nut"
        assert result["isError"] is False
        intents = [each for each in await crib.audit.find(Filters(server="lab")) if each["phase"] == "intent"]
        assert len({each["programId"] for each in intents}) == 1
        assert sorted(each["tool"] for each in intents) == ["order", "order", "stock"]
        assert len({each["approvalId"] for each in intents if each["tool"] == "order"}) == 1


async def test_refused_or_dry_program_changes_nothing() -> None:
    for prompt, decision in (("run", "deny"), ("dry", "approve"), ("wrong", "approve")):
        async with open_crib() as crib:
            await result_of(crib, prompt, "code", decision)
            records = await crib.audit.find(Filters(server="lab"))
            assert "order" not in {each["tool"] for each in records if each["phase"] == "outcome"}
