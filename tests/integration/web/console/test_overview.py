"""The start page: approvals, calls and the filter in its address."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from integration.web.console.console_client import ConsoleClient, open_console
from toolcrib import ToolServer, tool
from toolcrib.gate.audit.statistics import start_of_hour
from toolcrib.store.audit import moment

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def count(to: int) -> int:
    """Count."""
    if to < 0:
        raise ValueError("too small")
    return to


@pytest.fixture
async def busy(tmp_path: Path) -> AsyncGenerator[ConsoleClient]:
    """A crib with three calls of two callers; one call failed."""
    async with open_console(tmp_path) as console:
        crib = console.crib
        crib.register(ToolServer("lab", tools=[count]))
        for to in (1, -1):
            await crib.call("lab/count", {"to": to}, principal=crib.owner(source="cli"))
        await crib.call("lab/count", {"to": 2}, principal=crib.owner(source="api", cwd=str(tmp_path)))
        yield console


async def test_calls_are_plotted_with_tables(busy: ConsoleClient) -> None:
    page = await busy.page("/")
    assert len(page.all("svg")) == 2
    assert page.all("table")
    value = await busy.json("/")
    assert (value["summary"]["calls"], value["summary"]["errors"]) == (3, 1)
    assert sum(each["calls"] for each in value["series"]) == 3
    assert [each["name"] for each in value["topTools"]] == ["lab/count"]
    assert value["isComplete"]


async def test_new_calls_are_counted_once(busy: ConsoleClient) -> None:
    await busy.json("/")
    await busy.crib.call("lab/count", {"to": 3}, principal=busy.crib.owner(source="cli"))
    for _ in range(2):
        assert (await busy.json("/", range="week"))["summary"]["calls"] == 4


@pytest.mark.parametrize(("range", "hours"), [("day", 24), ("week", 24 * 7), ("month", 24 * 30)])
async def test_calls_at_the_edges_of_a_range_are_counted_as_in_the_log(
    busy: ConsoleClient, range: str, hours: int
) -> None:
    hour = start_of_hour(datetime.now(UTC))
    first = hour - timedelta(hours=hours - 1)  # still inside if the next hour begins during the test
    moments = [hour, first, first - timedelta(hours=1, milliseconds=1), first + timedelta(hours=7)]
    for at in moments:
        record = {"phase": "outcome", "at": moment(at), "server": "lab", "tool": "count", "isError": False}
        await busy.crib.audit.record(record)
    by = busy.crib.owner(source="cli")
    await busy.crib.changes.make("rules.add", {}, anyio.lowlevel.checkpoint, by=by, door="api")
    shown, log = await busy.json("/", range=range), await busy.json("/activity", range=range)
    assert shown["summary"]["calls"] == sum(each["calls"] for each in shown["series"]) == 6
    assert (log["total"] - log["changes"], log["changes"]) == (6, 1)
    assert "6 calls and 1 change." in (await busy.page("/activity", range=range)).text


async def test_filter_is_in_the_address(busy: ConsoleClient, tmp_path: Path) -> None:
    value = await busy.json("/", range="month", project=str(tmp_path))
    assert value["summary"]["calls"] == 1
    assert value["filters"] == {"project": str(tmp_path)}
    assert "project=" in value["ranges"][0]["url"]
    assert (await busy.json("/", agent="missing"))["summary"]["calls"] == 0


async def test_unknown_range_is_refused_with_the_choices(busy: ConsoleClient) -> None:
    assert "Use day, week, month." in (await busy.page("/", status=422, range="century")).text


async def test_tool_page_shows_its_usage(busy: ConsoleClient) -> None:
    usage = (await busy.json("/tools/lab/count"))["usage"]
    assert (usage["calls"], usage["errors"]) == (3, 1)
    assert "3 calls in 7 days" in (await busy.page("/tools/lab/count")).text


async def test_servers_are_on_the_start_page_and_their_own(busy: ConsoleClient) -> None:
    assert (await busy.page("/")).all("div", id="servers")
    assert (await busy.page("/servers")).all("div", id="servers")
