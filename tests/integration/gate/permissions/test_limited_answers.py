"""A remembered answer can be limited to a number of calls or a time, and its conditions can be edited."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from integration.gate.permissions.shop_lab import SELL, ShopLab, background_call, open_shop_lab
from integration.web.console.console_client import ConsoleClient
from toolcrib.model.errors import InvalidRequest, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.tools import ToolServer, tool
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio

READ = SELL._replace(server="archive", tool="read_page")


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[ShopLab]:
    @tool
    async def read_page(path: str) -> str:
        """Read a page."""
        return path

    async with open_shop_lab(tmp_path) as lab:
        lab.crib.register(ToolServer("archive", tools=[read_page]))
        yield lab


@pytest.fixture
async def robot(lab: ShopLab) -> AsyncGenerator[ApiClient]:
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        yield robot


async def approve_always(lab: ShopLab, robot: ApiClient, arguments: JsonObject, **more: object) -> JsonObject:
    async with background_call(lambda: robot.call(READ, arguments)):
        return await lab.answer((await lab.pending_approval())["id"], "approve", scope="always", **more)


async def test_rule_allows_the_next_calls_and_then_asks_again(lab: ShopLab, robot: ApiClient) -> None:
    rule = (await approve_always(lab, robot, {"path": "/srv/a"}, uses=2))["rule"]
    assert rule["uses"] == 2
    for _ in range(2):
        assert not (await robot.call(READ, {"path": "/srv/a"}))["isError"]
    async with background_call(lambda: robot.call(READ, {"path": "/srv/a"})):
        await lab.answer((await lab.pending_approval())["id"], "deny")
    explained = await lab.owner.permissions.explain("archive/read_page", source="api", mode="default")
    (step,) = [each for each in explained["steps"] if each.get("rule") == rule["id"]]
    assert step["reason"] == "It was limited to a number of calls and is used up."


async def test_rule_ends_at_the_chosen_time(lab: ShopLab, robot: ApiClient) -> None:
    end = (datetime.now(UTC) + timedelta(hours=3)).isoformat(timespec="seconds")
    rule = (await approve_always(lab, robot, {"path": "/srv/a"}, expiresAt=end))["rule"]
    assert datetime.fromisoformat(rule["expiresAt"]) == datetime.fromisoformat(end)
    async with background_call(lambda: robot.call(READ, {"path": "/srv/b"})):
        id = (await lab.pending_approval())["id"]
        with pytest.raises(InvalidRequest, match="end in the past"):
            await lab.answer(id, "approve", scope="always", expiresAt="2020-01-01T00:00:00Z")
        await lab.answer(id, "deny")


async def test_edited_condition_replaces_the_proposed_one(lab: ShopLab, robot: ApiClient) -> None:
    wider = [{"pointer": "/path", "test": "path", "value": "/srv"}]
    rule = (await approve_always(lab, robot, {"path": "/srv/docs/a"}, conditions=wider))["rule"]
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
async def test_unsuitable_conditions_are_refused(lab: ShopLab, robot: ApiClient, conditions: list[JsonObject]) -> None:
    async with background_call(lambda: robot.call(READ, {"path": "/srv/docs/a"})):
        id = (await lab.pending_approval())["id"]
        with pytest.raises(ToolcribError):
            await lab.answer(id, "approve", scope="always", conditions=conditions)
        with pytest.raises(InvalidRequest):
            await lab.answer(id, "approve", uses=3)
        await lab.answer(id, "deny")
    assert await lab.owner.permissions.rules() == []


async def test_console_card_limits_and_edits_the_rule(lab: ShopLab, robot: ApiClient) -> None:
    async with lab.http() as client, background_call(lambda: robot.call(READ, {"path": "/srv/docs/a"})):
        client.headers = {"origin": lab.holding.info.url}
        await client.get(lab.holding.login_url)
        visitor = ConsoleClient(lab.crib, client)
        id = (await lab.pending_approval())["id"]
        page = await visitor.page("/waiting")
        assert "/path path /srv/docs" in page.text
        form = {"decision": "always", "prefix-always": "edited", "conditions-always": "/path path /srv/docs"}
        form |= {"uses-always": "10", "until-always": "2099-12-31T18:00"}
        assert (await client.post(f"/waiting/approvals/{id}", data=form)).status_code in (204, 303)
    (rule,) = await lab.owner.permissions.rules()
    assert (rule["uses"], rule["conditions"][0]["value"], rule["expiresAt"][:4]) == (10, "/srv/docs", "2099")
