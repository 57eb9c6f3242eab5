"""Agents whose sessions list tools by search or by code: few tools, and every call goes through the gate."""

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


def use(name: str, **arguments: Json) -> list[Json]:
    step: JsonObject = {"tool": f"mcp__toolcrib__{name}", "input": arguments}
    return [{"blocks": [step]}, END]


PROGRAM = """
print(await lab_stock(item="bolt"))
for item in ["bolt", "nut"]:
    print(await lab_order(item=item, pieces=4))
"""
SCRIPTS: dict[str, Json] = {
    "find": use("find_tools", query="how many pieces are in stock"),
    "call": use("call_tool", ref="lab/stock", arguments={"item": "bolt"}),
    "hidden": use("call_tool", ref="vault/open", arguments={}),
    "describe": use("describe_tools", tools=["lab_stock"]),
    "run": use("run_code", code=PROGRAM),
    "dry": use("run_code", code=PROGRAM, dry_run=True),
    "wrong": use("run_code", code="lab_stock("),
}


async def furnished(crib: Crib, listing: str) -> PlayedRunner:
    """Register the tools and an agent that lists them in this way."""
    crib.register(ToolServer("lab", tools=[stock, order]))
    given = {"id": "clerk", "name": "Clerk", "toolPermissions": ["lab/*"], "listing": listing}
    await crib.zoo.create(AgentInput.model_validate(given), by="owner")
    crib.runners.add(runner := PlayedRunner(SCRIPTS))
    return runner


async def result_of(crib: Crib, prompt: str, listing: str, decision: str = "approve") -> tuple[str, JsonObject]:
    await furnished(crib, listing)
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
        made = [each for each in await crib.audit.find(Filters(server="lab")) if each["phase"] == "intent"]
        assert len({each["programId"] for each in made}) == 1
        assert sorted(each["tool"] for each in made) == ["order", "order", "stock"]
        assert len({each["approvalId"] for each in made if each["tool"] == "order"}) == 1


async def test_refused_or_dry_program_changes_nothing() -> None:
    for prompt, decision in (("run", "deny"), ("dry", "approve"), ("wrong", "approve")):
        async with open_crib() as crib:
            await result_of(crib, prompt, "code", decision)
            records = await crib.audit.find(Filters(server="lab"))
            assert "order" not in {each["tool"] for each in records if each["phase"] == "outcome"}
