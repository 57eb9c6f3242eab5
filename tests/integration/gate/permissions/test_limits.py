"""Limits on how often and how fast a session calls, and the time in which a person thinks."""

from pathlib import Path

import anyio
import pytest
from mcp.types import ElicitResult

from integration.gate.permissions.answering import SELL, Desk, open_desk, upstream
from lab import ModeName
from toolcrib.model.errors import Denied
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio

LOOK = ToolRef("shop", "look")
ERAS: list[ModeName] = ["legacy", "2026-07-28"]


async def limit(desk: Desk, text: str) -> None:
    """Write a limit into the crib's file, and have it read."""
    (desk.crib.home.settings_file).write_text(text, encoding="utf-8")
    await desk.crib.permissions.look()


def session(desk: Desk, name: str) -> Principal:
    return desk.crib.principals.owner("api", session=name, mode="bypassPermissions")


async def test_a_session_calls_a_tool_so_often_and_others_go_on(desk: Desk) -> None:
    await limit(desk, '[[limits]]\npattern = "shop/sell"\ncalls = 2\n')
    one, two = session(desk, "one"), session(desk, "two")
    for _ in range(2):
        await desk.crib.call(SELL, {"what": "tea"}, principal=one)
    with pytest.raises(Denied) as caught:
        await desk.crib.call(SELL, {"what": "tea"}, principal=one)
    said = "Limit reached: shop/sell may be called 2 times in a session and was called 2 times."
    assert (caught.value.code, said in caught.value.message) == ("limit.reached", True)
    await desk.crib.call(LOOK, {}, principal=one)
    await desk.crib.call(SELL, {"what": "tea"}, principal=two)
    assert [record["phase"] for record in await desk.records()][-3:] == ["outcome", "intent", "outcome"]
    assert len(desk.shop.sold) == 4


async def test_a_limit_of_a_server_counts_all_its_tools(desk: Desk) -> None:
    await limit(desk, '[[limits]]\npattern = "shop/*"\neach = "server"\ncalls = 2\n')
    one = session(desk, "one")
    await desk.crib.call(LOOK, {}, principal=one)
    await desk.crib.call(SELL, {"what": "tea"}, principal=one)
    with pytest.raises(Denied, match="server shop may be called 2 times"):
        await desk.crib.call(LOOK, {}, principal=one)
    await desk.crib.call(ToolRef("toolcrib", "ping"), {}, principal=one)


async def test_a_rate_says_when_to_try_again_over_every_door(desk: Desk) -> None:
    await limit(desk, "[[limits]]\ncalls = 1\nseconds = 600\n")
    secret = await desk.token("ide")
    async with desk.mcp(secret, "2026-07-28") as client:
        assert not (await client.call_tool("shop_sell", {"what": "tea"})).is_error
        refused = await client.call_tool("shop_sell", {"what": "tea"})
    assert (refused.is_error, "within 600 s" in str(refused.content)) == (True, True)
    assert "Try again in" in str(refused.content)
    async with desk.http() as http:
        body = {"arguments": {"what": "tea"}}
        assert (await http.post("/api/tools/shop/sell/call", json=body)).status_code == 200
        refusal = await http.post("/api/tools/shop/sell/call", json=body)
    assert (refusal.status_code, refusal.json()["code"]) == (429, "limit.reached")
    assert len(desk.shop.sold) == 2


async def test_a_refused_call_does_not_count(desk: Desk) -> None:
    await limit(desk, '[[limits]]\npattern = "shop/sell"\ncalls = 1\n')
    one = session(desk, "one")
    rule = await desk.owner.permissions.add_rule({"effect": "deny", "pattern": "shop/sell"})
    with pytest.raises(Denied):
        await desk.crib.call(SELL, {"what": "tea"}, principal=one)
    await desk.owner.permissions.remove_rule(rule["id"])
    assert (await desk.crib.call(SELL, {"amount": "x"}, principal=one)).is_error
    assert not (await desk.crib.call(SELL, {"what": "tea"}, principal=one)).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_the_time_in_which_a_person_thinks_about_a_servers_question_is_not_the_tools(
    tmp_path: Path, era: ModeName
) -> None:
    legacy = upstream("upstreams.legacy", "plain") | {"share": "session"}  # so it is clear whom it asks
    async with open_desk(tmp_path, legacy=legacy) as desk:
        desk.crib.gate._default_timeout = 0.5  # pyright: ignore[reportPrivateUsage] the setting is read at the start

        async def thinks(context: object, params: object) -> ElicitResult:
            await anyio.sleep(1.2)  # longer than the tool may take
            return ElicitResult(action="accept", content={"text": "blue"})

        async with desk.mcp(await desk.token("ide"), era, elicitation_callback=thinks) as client:
            answer = await client.call_tool("legacy_ask", {"text": "Which colour?"})
            assert "blue" in str(answer.structured_content)
            silent = await client.call_tool("legacy_sleep", {})
            assert (silent.is_error, "0.5 s" in str(silent.content)) == (True, True)
