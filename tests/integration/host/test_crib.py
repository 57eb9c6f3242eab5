"""The crib as a library: registering, listing and calling tools, and the audit records they leave."""

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import anyio
import anyio.lowlevel
import pytest

from toolcrib import (
    CallResult,
    Conflict,
    Crib,
    Denied,
    Inject,
    InvalidRequest,
    NotFound,
    Principal,
    Settings,
    ToolServer,
    Unavailable,
    tool,
)
from toolcrib.model.approvals import Approval
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import Filters

pytestmark = pytest.mark.anyio


class Weather:
    """A service that a tool depends on."""

    def __init__(self) -> None:
        self.closed = False
        self.requests: list[str] = []

    def at(self, city: str) -> str:
        self.requests.append(city)
        return f"sunny in {city}"


@tool(read_only=True)
async def forecast(
    city: str, days: Annotated[int, "1 to 7"] = 3, *, weather: Annotated[Weather, Inject]
) -> dict[str, object]:
    """Forecast for a city."""
    return {"city": city, "days": [weather.at(city)] * days}


@tool
async def sleep() -> str:
    """Sleep for ever."""
    await anyio.sleep_forever()
    return "never"


@tool(privileged=True)
async def burn() -> str:
    """Privileged."""
    return "burnt"


WEATHER = Weather()


async def open_weather() -> AsyncIterator[Weather]:
    WEATHER.closed = False
    yield WEATHER
    WEATHER.closed = True


def weather_server() -> ToolServer:
    return ToolServer("weather", tools=[forecast, sleep, burn], providers={Weather: open_weather})


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Crib]:
    """A crib with the weather server."""
    async with Crib(Settings(home=tmp_path / "home")) as crib:
        crib.register(weather_server())
        yield crib


async def records(crib: Crib) -> list[JsonObject]:
    """Return all audit records, oldest first."""
    return [*reversed(await crib.audit.find(Filters()))]


async def test_registered_tool_is_called_with_its_dependency_injected(crib: Crib) -> None:
    result = await crib.call("weather/forecast", {"city": "Ulm", "days": 1}, principal=crib.owner(source="cli"))
    assert result.structured_content == {"city": "Ulm", "days": ["sunny in Ulm"]}
    assert not result.is_error


async def test_providers_are_closed_with_the_crib(tmp_path: Path) -> None:
    async with Crib(Settings(home=tmp_path / "home")) as crib:
        crib.register(weather_server())
        await crib.call("weather/forecast", {"city": "Ulm"}, principal=crib.owner())
        assert not WEATHER.closed
    assert WEATHER.closed


async def test_call_leaves_an_intent_and_an_outcome(crib: Crib) -> None:
    await crib.call("weather/forecast", {"city": "Ulm"}, principal=crib.owner(source="cli"))
    intent, outcome = await records(crib)
    assert (intent["phase"], outcome["phase"], intent["id"]) == ("intent", "outcome", 1)
    assert (intent["server"], intent["tool"], intent["arguments"]) == ("weather", "forecast", {"city": "Ulm"})
    assert (intent["principal"]["source"], intent["decision"], outcome["isError"]) == ("cli", "allow", False)
    assert outcome["prev"] == intent["hash"]
    assert (await crib.audit.verify()).ok


async def test_denied_call_is_recorded(crib: Crib) -> None:
    with pytest.raises(Denied):
        await crib.call("weather/forecast", {"city": "Ulm"}, principal=crib.owner(mode="dontAsk"))
    assert {record["decision"] for record in await records(crib)} == {"deny"}


async def test_owner_sees_why_a_tool_is_hidden_and_others_that_it_does_not_exist(crib: Crib) -> None:
    with pytest.raises(Denied, match="privileged"):
        await crib.call("weather/burn", principal=crib.owner(source="cli"))
    other = Principal("token", "ide", "ide", "acceptEdits")
    with pytest.raises(NotFound, match="no tool 'weather/burn'"):
        await crib.call("weather/burn", principal=other)
    with pytest.raises(NotFound, match="no tool 'weather/none'"):
        await crib.call("weather/none", principal=other)


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_call_waits_for_its_approval_and_follows_the_answer(
    crib: Crib, decision: Literal["approve", "deny"]
) -> None:
    ended: list[CallResult | Denied] = []
    pending: list[Approval] = []

    async def call() -> None:
        try:
            ended.append(await crib.call("weather/forecast", {"city": "Ulm"}, principal=crib.owner(mode="default")))
        except Denied as error:
            ended.append(error)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            while not (pending := await crib.approvals.find(status="pending")):
                await anyio.lowlevel.checkpoint()
            await crib.approvals.answer(pending[0].id, decision, by=crib.owner(source="cli"), reason="Not today.")
    [outcome] = ended
    if decision == "approve":
        assert isinstance(outcome, CallResult)
        assert [record["approvalId"] for record in await records(crib)] == [pending[0].id] * 2
    else:
        assert isinstance(outcome, Denied)
        assert (outcome.code, "Not today." in outcome.message) == ("approval.denied", True)


async def test_explanation_names_the_deciding_step_the_fix_and_similar_names(crib: Crib) -> None:
    explained = await crib.why("weather/burn", principal=crib.owner(source="ide"))
    assert (explained.verdict, explained.decided_by.step) == ("hidden", "permissions")
    assert explained.flip is not None
    unknown = await crib.why("weather/forecats", principal=crib.owner(source="ide"))
    assert (unknown.verdict, unknown.nearest[0]) == ("unknown", "weather/forecast")


async def test_unknown_agent_is_denied(crib: Crib) -> None:
    with pytest.raises(Denied) as caught:
        await crib.call("weather/forecast", {"city": "Ulm"}, principal=crib.as_agent("nobody"))
    assert caught.value.code == "policy.denied"


async def test_wrong_arguments_are_an_error_result(crib: Crib) -> None:
    result = await crib.call("weather/forecast", {"town": "Ulm"}, principal=crib.owner())
    assert result.is_error
    assert "city" in str(result.content)
    assert "town" in str(result.content)


async def test_cancelled_call_leaves_its_outcome(crib: Crib) -> None:
    with anyio.move_on_after(0.05) as scope:
        await crib.call("weather/sleep", principal=crib.owner())
    assert scope.cancelled_caught
    _, outcome = await records(crib)
    assert (outcome["phase"], outcome["isError"]) == ("outcome", True)


async def test_call_ends_at_the_timeout_of_the_crib(tmp_path: Path) -> None:
    async with Crib(Settings(home=tmp_path / "home", tool_timeout=0.05)) as crib:
        crib.register(weather_server())
        result = await crib.call("weather/sleep", principal=crib.owner())
    assert result.is_error
    assert "0.05 s" in str(result.content)


async def test_call_does_not_run_while_the_audit_cannot_be_written(crib: Crib) -> None:
    WEATHER.requests.clear()
    with closing(sqlite3.connect(crib.home.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable) as caught:
            await crib.call("weather/forecast", {"city": "Ulm"}, principal=crib.owner())
    assert (caught.value.code, WEATHER.requests) == ("audit.unavailable", [])
    assert (await crib.call("weather/forecast", {"city": "Ulm"}, principal=crib.owner())).content


@pytest.mark.parametrize("ref", ["weather", "", "/", "weather/", "/forecast"])
async def test_malformed_tool_reference_is_refused_with_the_format(crib: Crib, ref: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await crib.call(ref, principal=crib.owner())
    assert caught.value.hint == "Write `server/tool`."


async def test_server_with_a_taken_name_is_refused(crib: Crib) -> None:
    with pytest.raises(Conflict):
        crib.register(ToolServer("toolcrib", tools=[sleep]))


async def test_home_has_one_crib_at_a_time(crib: Crib) -> None:
    with pytest.raises(Unavailable) as caught:
        async with Crib(crib.settings):
            pass
    assert caught.value.code == "crib.running"


async def test_names_survive_a_restart_in_the_order_of_first_registration(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")

    @tool(name="b_c")
    async def one() -> str:
        """One."""
        return "one"

    @tool(name="c")
    async def other() -> str:
        """Other."""
        return "other"

    async with Crib(settings) as crib:
        crib.register(ToolServer("a_b", tools=[other]))
    async with Crib(settings) as crib:
        crib.register(ToolServer("a", tools=[one]))
        crib.register(ToolServer("a_b", tools=[other]))
        names = crib.catalog.names
        assert names.refs["endpoint"]["a_b_c"] == ("a_b", "c")


GREETING = "from toolcrib import tool\n\n@tool\nasync def hi() -> str:\n    'Hi.'\n    return 'hi'\n"


async def until_added(crib: Crib, ref: str) -> None:
    """Wait for a tool from the folder."""
    with anyio.fail_after(10):
        seen = crib.feed.last
        if ToolRef.parse(ref) in crib.catalog.snapshot.tools:
            return
        async for event in crib.feed.follow(seen):
            if ref in event.data.get("added", ()):
                return


async def test_module_in_the_tools_folder_is_a_server_and_a_broken_one_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "tools"
    folder.mkdir(parents=True)
    tmp_path.joinpath("home").chmod(0o700)
    (folder / "good.py").write_text(GREETING)
    (folder / "bad.py").write_text("import nothing_like_this\n")
    async with Crib(Settings(home=tmp_path / "home")) as crib:
        result = await crib.call("good/hi", principal=crib.owner())
        assert not result.is_error
        (problem,) = crib.catalog.snapshot.problems
        assert (problem.code, problem.line) == ("tool.module", 1)
        assert problem.file is not None
        assert problem.file.endswith("bad.py")
        (folder / "bad.py").write_text(GREETING)
        await until_added(crib, "bad/hi")
        assert crib.catalog.snapshot.problems == ()


async def test_replaced_tools_folder_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "tools"
    async with Crib(Settings(home=tmp_path / "home")) as crib:
        (folder / "first.py").write_text(GREETING)
        await until_added(crib, "first/hi")
        folder.rename(tmp_path / "old")
        folder.mkdir(mode=0o700)
        (folder / "second.py").write_text(GREETING)
        await until_added(crib, "second/hi")
        (folder / "third.py").write_text(GREETING)
        await until_added(crib, "third/hi")
        assert not crib.catalog.has_server("first")


async def test_problem_in_the_tools_folder_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "home" / "tools"
    async with Crib(Settings(home=tmp_path / "home")) as crib:
        (folder / "bad.py").write_text("import nothing_like_this\n")
        for name in ("first", "second"):
            (folder / f"{name}.py").write_text(GREETING)
            await until_added(crib, f"{name}/hi")
        assert len(crib.catalog.snapshot.problems) == 1
    assert len([message for message in caplog.messages if "bad.py" in message]) == 1
