"""A remembered answer can be limited to a number of calls or a time, and its conditions can be edited."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from integration.gate.permissions.answering import SELL, Desk, calling, open_desk
from integration.web.console.console_client import ConsoleClient
from toolcrib.model.errors import InvalidRequest, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.tools import ToolServer, tool
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio

READ = SELL._replace(server="archive", tool="read_page")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    @tool
    async def read_page(path: str) -> str:
        """Read a page."""
        return path

    async with open_desk(tmp_path) as desk:
        desk.crib.register(ToolServer("archive", tools=[read_page]))
        yield desk


@pytest.fixture
async def robot(desk: Desk) -> AsyncGenerator[ApiClient]:
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        yield robot


async def answered(desk: Desk, robot: ApiClient, arguments: JsonObject, **more: object) -> JsonObject:
    async with calling(lambda: robot.call(READ, arguments)):
        return await desk.answer((await desk.question())["id"], "approve", scope="always", **more)


async def test_rule_allows_the_next_calls_and_then_asks_again(desk: Desk, robot: ApiClient) -> None:
    rule = (await answered(desk, robot, {"path": "/srv/a"}, uses=2))["rule"]
    assert rule["uses"] == 2
    for _ in range(2):
        assert not (await robot.call(READ, {"path": "/srv/a"}))["isError"]
    async with calling(lambda: robot.call(READ, {"path": "/srv/a"})):
        await desk.answer((await desk.question())["id"], "deny")
    explained = await desk.owner.permissions.explain("archive/read_page", source="api", mode="default")
    (step,) = [each for each in explained["steps"] if each.get("rule") == rule["id"]]
    assert step["reason"] == "It was limited to a number of calls and is used up."


async def test_rule_ends_at_the_chosen_time(desk: Desk, robot: ApiClient) -> None:
    end = (datetime.now(UTC) + timedelta(hours=3)).isoformat(timespec="seconds")
    rule = (await answered(desk, robot, {"path": "/srv/a"}, expiresAt=end))["rule"]
    assert datetime.fromisoformat(rule["expiresAt"]) == datetime.fromisoformat(end)
    async with calling(lambda: robot.call(READ, {"path": "/srv/b"})):
        id = (await desk.question())["id"]
        with pytest.raises(InvalidRequest, match="end in the past"):
            await desk.answer(id, "approve", scope="always", expiresAt="2020-01-01T00:00:00Z")
        await desk.answer(id, "deny")


async def test_edited_condition_replaces_the_proposed_one(desk: Desk, robot: ApiClient) -> None:
    wider = [{"pointer": "/path", "test": "path", "value": "/srv"}]
    rule = (await answered(desk, robot, {"path": "/srv/docs/a"}, conditions=wider))["rule"]
    assert rule["conditions"] == wider
    assert not (await robot.call(READ, {"path": "/srv/other/b"}))["isError"]


@pytest.mark.parametrize(
    "conditions",
    [
        [],
        [{"pointer": "/path", "test": "glob", "value": "*"}],
        [{"pointer": "/path", "test": "path", "value": "/etc"}],
        [{"pointer": "/path", "test": "path", "value": "relative"}],
    ],
)
async def test_unsuitable_conditions_are_refused(desk: Desk, robot: ApiClient, conditions: list[JsonObject]) -> None:
    async with calling(lambda: robot.call(READ, {"path": "/srv/docs/a"})):
        id = (await desk.question())["id"]
        with pytest.raises(ToolcribError):
            await desk.answer(id, "approve", scope="always", conditions=conditions)
        with pytest.raises(InvalidRequest):
            await desk.answer(id, "approve", uses=3)
        await desk.answer(id, "deny")
    assert await desk.owner.permissions.rules() == []


async def test_console_card_limits_and_edits_the_rule(desk: Desk, robot: ApiClient) -> None:
    async with desk.http() as client, calling(lambda: robot.call(READ, {"path": "/srv/docs/a"})):
        client.headers = {"origin": desk.holding.info.url}
        await client.get(desk.holding.login_url)
        visitor = ConsoleClient(desk.crib, client)
        id = (await desk.question())["id"]
        page = await visitor.page("/waiting")
        assert "/path path /srv/docs" in page.text
        form = {"decision": "always", "prefix-always": "edited", "conditions-always": "/path path /srv/docs"}
        form |= {"uses-always": "10", "until-always": "2099-12-31T18:00"}
        assert (await client.post(f"/waiting/approvals/{id}", data=form)).status_code in (204, 303)
    (rule,) = await desk.owner.permissions.rules()
    assert (rule["uses"], rule["conditions"][0]["value"], rule["expiresAt"][:4]) == (10, "/srv/docs", "2099")
