"""Limits on the number and rate of calls, and the time that a person needs to answer a server's question."""

from pathlib import Path

import anyio
import pytest
from mcp.types import ElicitResult

from integration.gate.permissions.shop_lab import SELL, ShopLab, open_shop_lab, upstream
from lab import ModeName
from toolcrib.model.errors import Denied
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio

LOOK = ToolRef("shop", "look")
ERAS: list[ModeName] = ["legacy", "2026-07-28"]


async def set_limit(lab: ShopLab, text: str) -> None:
    """Write a limit into the settings file and let the crib read it."""
    (lab.crib.home.settings_file).write_text(text, encoding="utf-8")
    await lab.crib.permissions.look()


def session(lab: ShopLab, name: str) -> Principal:
    return lab.crib.principals.owner("api", session=name, mode="bypassPermissions")


async def test_call_limit_applies_to_each_session(lab: ShopLab) -> None:
    await set_limit(lab, '[[limits]]\npattern = "shop/sell"\ncalls = 2\n')
    one, two = session(lab, "one"), session(lab, "two")
    for _ in range(2):
        await lab.crib.call(SELL, {"what": "tea"}, principal=one)
    with pytest.raises(Denied) as caught:
        await lab.crib.call(SELL, {"what": "tea"}, principal=one)
    expected = "Limit reached: shop/sell may be called 2 times in a session and was called 2 times."
    assert (caught.value.code, expected in caught.value.message) == ("limit.reached", True)
    await lab.crib.call(LOOK, {}, principal=one)
    await lab.crib.call(SELL, {"what": "tea"}, principal=two)
    assert [record["phase"] for record in await lab.records()][-3:] == ["outcome", "intent", "outcome"]
    assert len(lab.shop.sold) == 4


async def test_server_limit_counts_all_its_tools(lab: ShopLab) -> None:
    await set_limit(lab, '[[limits]]\npattern = "shop/*"\neach = "server"\ncalls = 2\n')
    one = session(lab, "one")
    await lab.crib.call(LOOK, {}, principal=one)
    await lab.crib.call(SELL, {"what": "tea"}, principal=one)
    with pytest.raises(Denied, match="server shop may be called 2 times"):
        await lab.crib.call(LOOK, {}, principal=one)
    await lab.crib.call(ToolRef("toolcrib", "ping"), {}, principal=one)


async def test_rate_limit_error_names_the_retry_time_at_every_door(lab: ShopLab) -> None:
    await set_limit(lab, "[[limits]]\ncalls = 1\nseconds = 600\n")
    secret = await lab.token("ide")
    async with lab.mcp(secret, "2026-07-28") as client:
        assert not (await client.call_tool("shop_sell", {"what": "tea"})).is_error
        refused = await client.call_tool("shop_sell", {"what": "tea"})
    assert (refused.is_error, "within 600 s" in str(refused.content)) == (True, True)
    assert "Try again in" in str(refused.content)
    async with lab.http() as http:
        body = {"arguments": {"what": "tea"}}
        assert (await http.post("/api/tools/shop/sell/call", json=body)).status_code == 200
        refusal = await http.post("/api/tools/shop/sell/call", json=body)
    assert (refusal.status_code, refusal.json()["code"]) == (429, "limit.reached")
    assert len(lab.shop.sold) == 2


async def test_refused_calls_do_not_count_against_a_limit(lab: ShopLab) -> None:
    await set_limit(lab, '[[limits]]\npattern = "shop/sell"\ncalls = 1\n')
    one = session(lab, "one")
    rule = await lab.owner.permissions.add_rule({"effect": "deny", "pattern": "shop/sell"})
    with pytest.raises(Denied):
        await lab.crib.call(SELL, {"what": "tea"}, principal=one)
    await lab.owner.permissions.remove_rule(rule["id"])
    assert (await lab.crib.call(SELL, {"amount": "x"}, principal=one)).is_error
    assert not (await lab.crib.call(SELL, {"what": "tea"}, principal=one)).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_elicitation_time_does_not_count_against_the_tool_timeout(tmp_path: Path, era: ModeName) -> None:
    legacy = upstream("upstreams.legacy", "plain") | {"share": "session"}  # the elicitation needs a session of its own
    async with open_shop_lab(tmp_path, legacy=legacy) as lab:
        lab.crib.gate._default_timeout = 0.5  # pyright: ignore[reportPrivateUsage] the setting is read at the start

        async def answer_slowly(context: object, params: object) -> ElicitResult:
            await anyio.sleep(1.2)  # longer than the tool's timeout
            return ElicitResult(action="accept", content={"text": "blue"})

        async with lab.mcp(await lab.token("ide"), era, elicitation_callback=answer_slowly) as client:
            answer = await client.call_tool("legacy_ask", {"text": "Which colour?"})
            assert "blue" in str(answer.structured_content)
            timed_out = await client.call_tool("legacy_sleep", {})
            assert (timed_out.is_error, "0.5 s" in str(timed_out.content)) == (True, True)
