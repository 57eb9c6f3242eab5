"""Tool sets of apps, projects and agents: chosen in the console, enforced by rules."""

from pathlib import Path

import pytest

from integration.web.console.console_client import ConsoleClient, open_console
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.tool_costs import tool_costs
from toolcrib.web.tool_sets import ToolSet

pytestmark = pytest.mark.anyio

APP = "connect-cursor"


async def connect(console: ConsoleClient, **body: str | list[str] | bool) -> JsonObject:
    answer = await console.client.post("/api/connect/cursor", json={"anyway": True, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def listed(console: ConsoleClient, token: str = APP) -> set[str]:
    """Return the tools that the app lists."""
    found = console.crib.tokens.named(token)
    assert found is not None
    return {str(tool.ref) for tool in console.crib.gate.listing(found.principal).tools}


async def test_new_app_lists_only_toolcrib_tools_that_work_there(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        looked = await connect(console, dryRun=True)
        done = await connect(console)
        tools = listed(console)
        assert (looked["tools"], done["tools"]) == ("chosen", "chosen")
        assert {each for each in tools if not each.startswith("agent_zoo/")} == {"toolcrib/ping"}
        assert "agent_zoo/agent_zoo_inject" in tools
        offers = {each["tools"]: each for each in done["offers"]}
        assert offers["chosen"]["definitions"] == len(tools)
        assert offers["all"]["definitions"] > len(tools)
        assert offers["chosen"]["saves"] == offers["all"]["tokens"] - offers["chosen"]["tokens"] > 0
        everything = await connect(console, tools="all")
        assert (everything["tools"], len(listed(console))) == ("all", offers["all"]["definitions"])
        await connect(console)  # an existing connection keeps what it has
        assert len(listed(console)) == offers["all"]["definitions"]


async def test_other_tokens_have_the_default_tool_set(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        await console.crib.tokens.create("program")
        assert "toolcrib/list_servers" in listed(console, "program")


async def test_only_chosen_tools_are_listed_until_the_app_is_disconnected(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        done = await connect(console, tools="chosen", chosen=["agent_zoo/*", "ping"])
        assert done["tools"] == "chosen"
        assert {each.partition("/")[0] for each in listed(console)} == {"agent_zoo", "toolcrib"}
        why = await console.json("/access", tool="toolcrib/list_servers")
        assert why["answer"]["verdict"] == "allow"  # the owner is not limited
        reach = await console.client.get("/api/policy/reach", params={"pattern": "toolcrib/*", "who": APP})
        hidden = next(each for each in reach.json()[0]["groups"] if each["access"] == "hidden")
        assert hidden["reason"].startswith("It is not in the tool set of cursor.")
        assert "toolcrib/ping" not in hidden["tools"]
        assert (await console.client.post("/api/connect/cursor", json={"chosen": ["a/b"]})).status_code == 422
        assert (await console.client.delete("/api/connect/cursor")).status_code == 200
        assert console.crib.permissions.list() == ()


async def test_switches_change_the_tool_set_of_an_app_at_once(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        await connect(console)
        page = await console.page("/access/tools", app=APP)
        assert "all of 7 tools on" in page.text
        await console.send(
            "/access/tools", {"app": APP, "server_of": "toolcrib", "tool_of": "list_servers", "on": "on"}
        )
        assert {each for each in listed(console) if each.startswith("toolcrib/")} == {
            "toolcrib/ping", "toolcrib/list_servers",
        }  # fmt: skip
        part = await console.send("/access/tools", {"app": APP, "server_of": "agent_zoo"}, live=True)
        assert "none of 7 tools on" in part.text
        assert len(listed(console)) == 2
        await console.send("/access/tools", {"app": APP, "kind": "chosen"})
        assert (await console.json("/access/tools", app=APP))["kind"] == "chosen"
        assert len(listed(console)) == 2
        await console.send("/access/tools", {"app": APP, "patterns": "agent_zoo/*\r\n"})
        assert len(listed(console)) == 7
        await console.send("/access/tools", {"app": APP, "kind": "all"})
        assert not [rule for rule in console.crib.permissions.list() if rule.id.startswith("tools-")]
        found = await console.page("/access/tools", app=APP, words="brain query")
        assert [each.attributes["aria-label"] for each in found.all("input", class_="switch")] == [
            "agent_zoo/agent_zoo_query_brain_entries"
        ]


async def test_tool_set_of_a_project_applies_in_its_directory(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with open_console(tmp_path / "crib") as console:
        body = {"project": str(project), "kind": "chosen", "tools": ["toolcrib/*"]}
        assert (await console.client.put("/api/policy/tool-sets", json=body)).json()["kind"] == "chosen"
        inside = await console.crib.placed(console.crib.principals.owner("cli", cwd=str(project)))
        servers = {tool.ref.server for tool in console.crib.gate.listing(inside).tools}
        assert servers == {"toolcrib"}
        elsewhere = console.crib.gate.listing(console.crib.owner("cli")).tools
        assert {"crew", "agent_zoo"} < {tool.ref.server for tool in elsewhere}
        page = await console.page("/access/tools", project=str(project))
        assert "In this project 11 of" in page.text
        assert (await console.client.get("/api/policy/tool-sets", params={"token": "missing"})).status_code == 404


async def test_switches_of_an_agent_grant_no_privileged_tools(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        made = await console.crib.zoo.create(parse(AgentInput, {"name": "Reader"}), by="owner")
        id = made.agent.id
        await console.send("/access/tools", {"agent": id, "server_of": "agent_zoo"})
        permissions = (await console.crib.zoo.get(id)).agent.tool_permissions or ()
        assert not [each for each in permissions if each.startswith("agent_zoo") or "grant_credits" in each]
        assert "crew/*" not in permissions
        assert await console.page("/access/tools", 404, agent="missing")
        assert await console.page("/access/tools", 422)


def test_pattern_over_several_servers_is_split_when_one_is_switched_off() -> None:
    known = _refs("a/read", "a/write", "b/read", "c/read")
    chosen = ToolSet(("*/read",)).switched("b", None, False, known)
    assert [str(ref) for ref in known if chosen.has(ref)] == ["a/read", "c/read"]
    again = chosen.switched("b", "read", True, known)
    assert [str(ref) for ref in known if again.has(ref)] == ["a/read", "b/read", "c/read"]


def _refs(*texts: str) -> list[ToolRef]:
    return [ToolRef(*text.split("/")) for text in texts]


async def test_rule_of_one_app_lowers_only_its_token_count(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:

        async def counts() -> dict[str, tuple[int, int]]:
            """Return the token count of each app, from its connection and from its cost report."""
            found: dict[str, tuple[int, int]] = {}
            for state in (await console.client.get("/api/connect")).json():
                for connection in state["connections"]:
                    token = console.crib.tokens.named(connection["token"])
                    assert token is not None
                    report = await tool_costs(console.crib, token.principal)
                    found[state["client"]] = (connection["offers"][0]["tokens"], report.tokens)
            return found

        for app in ("cursor", "windsurf"):
            answer = await console.client.post(f"/api/connect/{app}", json={"anyway": True, "tools": "all"})
            assert answer.status_code == 200, answer.text
        before = await counts()
        bound = console.crib.tokens.named(APP)
        assert bound is not None
        who = {"kind": "token", "source": "ide", "name": APP, "tokenId": bound.principal.token_id}
        rule = {"effect": "deny", "pattern": "toolcrib/create_job", "principal": who}
        assert (await console.client.post("/api/policy/rules", json=rule)).status_code == 201
        after = await counts()
        assert after["windsurf"] == before["windsurf"]
        assert len(set(before["cursor"])) == len(set(after["cursor"])) == 1
        assert after["cursor"] < before["cursor"]
