"""Search, token costs and shortened results over REST and MCP in both eras."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.types import TextContent

from deadlines import stretched
from lab import Lab, ModeName
from toolcrib import Crib, Settings
from toolcrib.web.tool_costs import best_offer

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
pytestmark = pytest.mark.anyio
both_eras = pytest.mark.parametrize("era", ERAS)


async def test_rest_search_ranks_matches_with_scores(lab: Lab) -> None:
    async with lab.http() as http:
        found = (await http.get("/api/tools", params={"q": "please say something again", "limit": 2})).json()
        assert found[0]["ref"] == "lab/echo"
        assert 0 < found[0]["score"] <= 1
        assert len(found) <= 2
        of_server = (await http.get("/api/tools", params={"q": "session", "server": "toolcrib"})).json()
        assert {tool["server"] for tool in of_server} == {"toolcrib"}


async def test_search_returns_purpose_signature_and_score_or_a_hint(lab: Lab) -> None:
    async with lab.http() as http:
        found = (await http.get("/api/tools/search", params={"q": "please say something again"})).json()
        best = found["tools"][0]
        assert (best["ref"], best["signature"].startswith("(text: str"), best["purpose"][-1]) == ("lab/echo", True, ".")
        assert 0 < best["score"] <= 1
        assert "hint" not in found
        missed = (await http.get("/api/tools/search", params={"q": "zzzqqq"})).json()
        assert missed["tools"] == []
        assert "lab" in missed["hint"]
        assert "Describe the action" in missed["hint"]


async def test_rest_costs_list_estimated_tokens_and_calls(lab: Lab) -> None:
    async with lab.http() as http:
        before = (await http.get("/api/tools/cost")).json()
        await http.post("/api/tools/lab/echo/call", json={"arguments": {"text": "a"}})
        after = (await http.get("/api/tools/cost")).json()
    assert before["estimate"] is True
    assert before["tokens"] == sum(each["tokens"] for each in before["tools"])
    calls = [{each["ref"]: each["calls"] for each in report["tools"]}["lab/echo"] for report in (before, after)]
    assert calls == [0, 1]
    (server,) = [each for each in after["servers"] if each["server"] == "lab"]
    assert server["used"] == 1


def block_text(block: Any) -> str:
    assert isinstance(block, TextContent)
    return block.text


async def tool_names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@both_eras
async def test_large_result_is_shortened_and_read_in_parts(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path="/mcp?result_tokens=100") as client:
        assert "read_result" not in await tool_names(client)
        shortened = await client.call_tool("lab_echo", {"text": "needle hay ", "times": 1_000})
        text = block_text(shortened.content[0])
        assert len(text) < 2_000
        handle = text.partition("Handle: ")[2].partition(".")[0]
        assert "read_result" in await tool_names(client)
        read = await client.call_tool("read_result", {"handle": handle, "path": "said"})
        assert block_text(read.content[0]) == f'"{"needle hay " * 1_000}"'
        assert (await client.call_tool("read_result", {"handle": "res_unknown"})).is_error
    async with lab.client("http", era, path="/mcp?tools=search") as client:
        read = await client.call_tool("call_tool", {"ref": "read_result", "arguments": {"handle": handle, "page": 1}})
        assert block_text(read.content[0]).startswith("[Page 1 of ")
    async with lab.http() as http:
        (outcome, _) = (await http.get("/api/audit", params={"server": "lab"})).json()
    assert len(outcome["resultDigest"]) == 64


@both_eras
async def test_large_result_is_linked_as_a_resource(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path="/mcp?result_tokens=100") as client:
        shortened = await client.call_tool("lab_echo", {"text": "a", "times": 5_000})
        (link,) = [each for each in shortened.content if each.type == "resource_link"]
        (contents,) = (await client.read_resource(str(link.uri))).contents
        assert "a" * 5_000 in str(contents)


async def test_results_are_whole_without_a_budget_and_from_a_single_server(lab: Lab) -> None:
    arguments = {"text": "a", "times": 5_000}
    for path, name in (
        ("/mcp?result_tokens=0", "lab_echo"),
        ("/mcp", "lab_echo"),
        ("/mcp/servers/lab?result_tokens=10", "echo"),
    ):
        async with lab.client("http", "2026-07-28", path=path) as client:
            assert "a" * 5_000 in block_text((await client.call_tool(name, arguments)).content[0])
    async with lab.http() as http:
        assert (await http.post("/mcp?result_tokens=x", json={})).status_code == 400


@both_eras
async def test_token_budget_lists_used_tools_first_and_adds_search(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era) as client:
        everything = await tool_names(client)
        await client.call_tool("lab_shout", {"text": "a"})
    async with lab.client("http", era, path="/mcp?tool_tokens=800") as client:
        listed = await tool_names(client)
        assert {"find_tools", "call_tool", "lab_shout"} <= listed
        assert len(listed) < len(everything)
        unlisted = await client.call_tool("lab_echo", {"text": "still callable"})
        assert not unlisted.is_error
        found = await client.call_tool("find_tools", {"query": "count to a number"})
        assert not found.is_error
    async with lab.client("http", era, path="/mcp?tool_tokens=1000000") as client:
        assert await tool_names(client) == everything


@pytest.mark.parametrize(
    ("client", "limit", "offer"), [("cursor", 0, "search"), ("cursor", 1_000_000, "all"), ("claude-code", 0, "all")]
)
async def test_search_is_offered_to_apps_that_would_load_too_many_definitions(
    tmp_path: Path, client: str, limit: int, offer: str
) -> None:
    async with Crib(Settings(home=tmp_path, search_above=limit)) as crib:
        assert best_offer(crib, client, None) == offer


async def test_unused_tools_are_hidden_by_rules_and_shown_again(lab: Lab) -> None:
    async with lab.http() as http:

        async def seen(source: str) -> set[str]:
            return {each["ref"] for each in (await http.get("/api/tools", params={"source": source})).json()}

        before = await seen("ide")
        used = next(ref for ref in sorted(before) if ref.startswith("toolcrib/"))
        await http.post(f"/api/tools/{used}/call", json={"arguments": {}})
        asked = {"source": "ide", "server": "toolcrib"}
        plan = (await http.post("/api/tools/cost/hide", json={**asked, "dryRun": True})).json()
        assert (plan["rules"], await seen("ide")) == ([], before)
        done = (await http.post("/api/tools/cost/hide", json=asked)).json()
        assert (done["patterns"], done["saves"]) == (plan["patterns"], plan["saves"])
        assert await seen("ide") == before - set(plan["patterns"])
        assert {used, "lab/echo"} <= await seen("ide")
        assert set(plan["patterns"]) <= await seen("api")
        rules = {each["id"]: each for each in (await http.get("/api/policy/rules")).json()}
        assert {(rules[id]["effect"], rules[id]["reason"]) for id in done["rules"]} == {("deny", done["reason"])}
        other = (await http.post("/api/tools/cost/hide", json={"agent": "reviewer", "undo": True})).json()
        assert other["rules"] == []
        undone = (await http.post("/api/tools/cost/hide", json={"undo": True})).json()
        assert (set(undone["rules"]), await seen("ide")) == (set(done["rules"]), before)
        assert (await http.post("/api/tools/cost/hide", json={})).status_code == 422


@both_eras
async def test_listing_of_an_agent_applies_unless_the_address_names_one(lab: Lab, era: ModeName) -> None:
    async def listed(query: str = "") -> set[str]:
        async with lab.client("http", era, path=f"/mcp/agents/lister{query}") as client:
            return await tool_names(client)

    async with lab.http() as http:
        agent = {"id": "lister", "name": "Lister", "toolPermissions": ["lab/*"], "listing": "search"}
        assert (await http.post("/api/agents", json=agent)).json()["listing"] == "search"
        assert await listed() == {"find_tools", "call_tool"}
        everything = await listed("?tools=all")
        assert "lab_echo" in everything
        assert await listed("?tool_tokens=1000000") == everything
        assert "run_code" in await listed("?tools=code")
        changed = await http.patch("/api/agents/lister", json={"listing": None, "toolTokens": 350})
        assert (changed.json().get("listing"), changed.json()["toolTokens"]) == (None, 350)
        within = await listed()
        assert {"find_tools", "call_tool"} < within
        assert len(within) < len(everything)
        async with lab.client("http", era, path="/mcp/agents/lister") as client:
            for name in sorted(everything & {"lab_echo", "lab_shout"}):
                assert not (await client.call_tool(name, {"text": "still callable"})).is_error
        assert await listed("?tools=search") == {"find_tools", "call_tool"}
        assert (await http.patch("/api/agents/lister", json={"toolTokens": -1})).status_code == 422


REPEATING = '''
from typing import Annotated

from toolcrib import tool

Owner = Annotated[str, "The account owner of the repository. The name is not case sensitive."]


@tool
async def open_issue(owner: Owner, title: Annotated[str, "The title"]) -> str:
    """Open an issue. All times are in UTC and follow ISO 8601, such as 2026-11-18."""
    return owner


@tool
async def shut_issue(owner: Owner) -> str:
    """Close an issue. All times are in UTC and follow ISO 8601, such as 2026-11-18."""
    return owner
'''
NOTE = "All times are in UTC"


@both_eras
async def test_repeated_text_is_shortened_until_undone_or_redefined(lab: Lab, era: ModeName) -> None:
    async def described(path: str, name: str) -> str:
        async with lab.client("http", era, path=path) as client:
            (tool,) = [each for each in (await client.list_tools()).tools if each.name == name]
            assert not (await client.call_tool(name, {"owner": "o"})).is_error
            return f"{tool.description} {tool.input_schema['properties']['owner'].get('description')}"

    lab.add_module("tracker", REPEATING)
    async with lab.http() as http:
        await until(lambda: known(http, "tracker/shut_issue"))
        whole = (await http.get("/api/tools/tracker/shut_issue")).json()
        tokens = (await http.get("/api/tools/cost")).json()["tokens"]
        plan = (await http.post("/api/tools/cost/shorten", json={"names": ["tracker"], "dryRun": True})).json()
        assert {each["ref"] for each in plan["tools"]} == {"tracker/open_issue", "tracker/shut_issue"}
        assert NOTE in await described("/mcp", "tracker_shut_issue")
        done = (await http.post("/api/tools/cost/shorten", json={"names": ["tracker"]})).json()
        assert (done["tools"], done["saves"] > 0) == (plan["tools"], True)
        for path, name in (("/mcp", "tracker_shut_issue"), ("/mcp/servers/tracker", "shut_issue")):
            assert await described(path, name) == "Close an issue.\n\nSee also `open_issue`. See also `open_issue`."
        report = (await http.get("/api/tools/cost")).json()
        assert (tokens - report["tokens"], sum(each["saved"] for each in report["tools"])) == (done["saves"],) * 2
        shown = (await http.get("/api/tools/tracker/shut_issue")).json()
        assert NOTE not in shown.pop("listed")["description"]
        assert shown == whole
        found = (await http.get("/api/tools/search", params={"q": "tracker shut issue"})).json()["tools"][0]
        assert (found["ref"], NOTE in found["description"]) == ("tracker/shut_issue", True)

        lab.add_module("tracker", REPEATING.replace("Close an issue", "Close one issue"))
        await until(lambda: known(http, "tracker/shut_issue", "Close one issue"))
        assert NOTE in await described("/mcp", "tracker_shut_issue")
        undone = (await http.post("/api/tools/cost/shorten", json={"names": ["tracker"], "undo": True})).json()
        assert undone["whole"] == ["tracker/open_issue", "tracker/shut_issue"]
        assert "listed" not in (await http.get("/api/tools/tracker/open_issue")).json()
        assert (await http.post("/api/tools/cost/shorten", json={"names": ["nothing"]})).status_code == 404


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(stretched(20)):
        while not await holds():  # noqa: ASYNC110 the test server reports no event
            await anyio.sleep(0.05)


async def known(http: httpx2.AsyncClient, ref: str, text: str = "") -> bool:
    answer = await http.get(f"/api/tools/{ref}")
    return answer.status_code == 200 and text in answer.json()["description"]
