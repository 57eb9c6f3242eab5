"""The built-in server `toolcrib` through the gate: sessions, servers, settings."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.model.errors import Denied, NotFound
from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session
from toolcrib.testing.played import PlayedRunner
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio

TIMEOUT = 10.0
NAMES = {
    "ping", "get_server_info", "get_session_count", "list_active_sessions", "get_session_details", "list_servers",
    "get_config", "set_config", "create_job", "list_jobs", "delete_job",
}  # fmt: skip

CHANGING = {"set_config", "create_job", "delete_job"}


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Crib]:
    """Open a crib whose sessions play scripts."""
    settings = Settings(home=tmp_path / "home", default_cwd=tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with Crib(settings, environment=Environment({"HOME": str(tmp_path)})) as crib:
        crib.runners.add(PlayedRunner({"hi": [{"blocks": [{"text": "Hi."}]}]}))
        yield crib


async def result_of(
    crib: Crib, name: str, arguments: JsonObject | None = None, principal: Principal | None = None
) -> JsonObject:
    """Return the structured result of a tool that must succeed."""
    with anyio.fail_after(TIMEOUT):
        result = await crib.call(f"toolcrib/{name}", arguments, principal=principal or crib.owner("cli"))
    assert not result.is_error, result
    assert is_object(result.structured_content)
    return result.structured_content


async def error_of(crib: Crib, name: str, arguments: JsonObject, principal: Principal | None = None) -> str:
    """Return the error text of a tool that must fail."""
    result = await crib.call(f"toolcrib/{name}", arguments, principal=principal or crib.owner("cli"))
    assert result.is_error
    return str(result.content[0]["text"])


async def start_session(crib: Crib, cwd: Path) -> Session:
    """Create a session in a directory and run a turn."""
    session = await crib.sessions.create(NewSession("api", str(cwd), mode="acceptEdits", runner="played"))
    sent = await crib.sessions.send(session.id, "[[script:hi]]")
    log = await crib.sessions.events(session.id)
    with anyio.fail_after(TIMEOUT):
        async for batch in log.follow(sent.seq):
            if batch[-1].kind == "done":
                break
    return await crib.sessions.get(session.id)


async def test_server_has_the_documented_tools_and_marks(crib: Crib) -> None:
    tools = {
        each.ref.tool: each for each in crib.gate.listing(crib.owner("web")).tools if each.ref.server == "toolcrib"
    }
    assert tools.keys() == NAMES
    assert {name for name, each in tools.items() if not each.marks.read_only} == CHANGING
    marks = tools["set_config"].marks
    assert (marks.privileged, marks.destructive, marks.scheduler_blocked) == (True, True, True)
    assert all(each.description.strip() for each in tools.values())


async def test_set_config_is_hidden_by_default(crib: Crib) -> None:
    for source in ("cli", "api", "ide", "scheduler"):
        seen = {each.ref.tool for each in crib.gate.listing(crib.owner(source)).tools if each.ref.server == "toolcrib"}
        assert seen == NAMES - {"set_config"}
    with pytest.raises((Denied, NotFound)):
        await crib.call("toolcrib/set_config", {"name": "port", "value": 1}, principal=crib.owner("ide"))


async def test_owner_sees_all_active_sessions_and_a_session_those_of_its_directory(crib: Crib, tmp_path: Path) -> None:
    one, two = await start_session(crib, tmp_path / "one"), await start_session(crib, tmp_path / "two")
    await crib.sessions.create(NewSession("api", str(tmp_path / "one"), runner="played"))
    everything = await result_of(crib, "list_active_sessions")
    assert {each["id"] for each in everything["sessions"]} == {one.id, two.id}
    assert everything["count"] == 2
    seen = await result_of(crib, "list_active_sessions", principal=one.principal)
    assert [each["id"] for each in seen["sessions"]] == [one.id]
    assert (seen["sessions"][0]["state"], seen["sessions"][0]["title"]) == ("idle", "[[script:hi]]")


async def test_session_sees_details_of_itself_and_of_its_directory_only(crib: Crib, tmp_path: Path) -> None:
    one, two = await start_session(crib, tmp_path / "one"), await start_session(crib, tmp_path / "two")
    neighbour = await start_session(crib, tmp_path / "one")
    assert (await result_of(crib, "get_session_details", principal=one.principal))["id"] == one.id
    shown = await result_of(crib, "get_session_details", {"session_id": neighbour.id[:13]}, one.principal)
    assert (shown["id"], shown["isActive"], shown["inputTokens"]) == (neighbour.id, True, 10)
    unseen = await error_of(crib, "get_session_details", {"session_id": two.id}, one.principal)
    unknown = await error_of(crib, "get_session_details", {"session_id": "zzz"}, one.principal)
    assert unseen.replace(two.id, "") == unknown.replace("zzz", "")
    assert (await result_of(crib, "get_session_details", {"session_id": two.id}))["id"] == two.id
    assert "not made in a session" in await error_of(crib, "get_session_details", {})


async def test_servers_are_listed_with_their_state_and_hidden_ones_are_omitted(crib: Crib) -> None:
    @tool(read_only=True)
    async def nothing() -> str:
        """Do nothing."""
        return ""

    crib.register(ToolServer("extra", tools=[nothing]))
    await crib.servers.add("away", {"command": "/nowhere/at/all"})
    rows = {each["name"]: each for each in (await result_of(crib, "list_servers"))["servers"]}
    assert rows["toolcrib"] == {"name": "toolcrib", "type": "builtin", "state": "connected", "tools": len(NAMES) - 1}
    assert (rows["extra"]["type"], rows["extra"]["tools"]) == ("plugin", 1)
    assert rows["away"]["state"] == "not_checked"
    assert rows["away"]["action"] == "toolcrib mcp test away"
    assert "definition" not in rows["away"]
    given = {"id": "clerk", "name": "Clerk", "toolPermissions": ["toolcrib/*"]}
    await crib.zoo.create(parse(AgentInput, given), by="test")
    clerk = crib.as_agent("clerk", "ide")
    assert [each["name"] for each in (await result_of(crib, "list_servers", principal=clerk))["servers"]] == [
        "toolcrib"
    ]


async def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}?password=hunter2"
    settings = Settings(home=tmp_path / "home", database_url=url)
    async with Crib(settings, environment=Environment({"HOME": str(tmp_path)})) as crib:
        everything = await result_of(crib, "get_config")
        assert "hunter2" not in str(everything)
        assert {each["name"] for each in everything["settings"]} >= {"home", "port", "database_url"}
        (one,) = (await result_of(crib, "get_config", {"name": "port"}))["settings"]
        assert (one["name"], one["value"], one["origin"]) == ("port", 4242, "default")
        assert "not a setting" in await error_of(crib, "get_config", {"name": "colour"})


async def test_setting_is_changed_in_the_file_without_other_edits(crib: Crib) -> None:
    file = crib.home.settings_file
    file.write_text('# mine\nlog_level = "debug"  # loud\n\n[rules]\ndeny = ["x/y"]\n', encoding="utf-8")
    web = crib.owner("web")
    done = await result_of(crib, "set_config", {"name": "port", "value": 4243}, web)
    assert (done["value"], done["file"]) == (4243, str(file))
    await result_of(crib, "set_config", {"name": "log_level", "value": "info"}, web)
    assert file.read_text(encoding="utf-8") == (
        '# mine\nlog_level = "info"  # loud\nport = 4243\n\n[rules]\ndeny = ["x/y"]\n'
    )
    assert file.stat().st_mode & 0o777 == 0o600
    for name, value, words in [
        ("port", "many", "whole number"), ("colour", "red", "not a setting"), ("home", "/x", "cannot be set"),
        ("database_url", "sqlite:///x", "cannot be set"), ("tool_timeout", -1, "seconds"),
        ("default_cwd", str(crib.home.root.parent), "contains the crib's home"),
    ]:  # fmt: skip
        assert words in await error_of(crib, "set_config", {"name": name, "value": value}, web)
    file.write_text("this is not toml", encoding="utf-8")
    assert "cannot be edited" in await error_of(crib, "set_config", {"name": "port", "value": 1}, web)
    assert file.read_text(encoding="utf-8") == "this is not toml"


async def test_changed_setting_names_the_variable_that_overrides_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", port=5, origins={"port": "TOOLCRIB_PORT"})
    async with Crib(settings, environment=Environment({"HOME": str(tmp_path)})) as crib:
        done = await result_of(crib, "set_config", {"name": "port", "value": 6}, crib.owner("web"))
        assert done["overriddenBy"] == "TOOLCRIB_PORT"
