"""Tools that a principal cannot see cannot be called at any door or under any name; listed tools are allowed."""

from collections.abc import AsyncGenerator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.gate.permissions.shop_lab import ShopLab, expire_approvals_after, open_shop_lab, upstream
from integration.web.mcp.test_bad_input import HEADERS, META
from toolcrib.model.errors import NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio

CALLS: dict[str, JsonObject] = {
    "shop/sell": {"what": "tea"},
    "shop/look": {},
    "shop/close": {},
    "shifts/tool": {"text": "a"},
    "shifts/become": {"way": "plain"},
}
PRIVILEGED = "shop/close"
LOOK_ALIKES = (
    "Tool", "TOOL", "tool ", " tool", "tооl", "ｔｏｏｌ", "tool\u200b", "tool\u00ad", "too\u0131l", "tool\x00",
    "tool/", "./tool", "../shifts/tool", "shifts/tool", "shifts_tool", "shifts_Tool", "SHIFTS_TOOL", "shifts-tool",
    "shifts.tool", "mcp__shifts__tool", "shifts__tool", "%74ool", "tool%20", "tool?",
)  # fmt: skip


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[ShopLab]:
    """Open a crib with a shop and an upstream server."""
    async with open_shop_lab(tmp_path, shifts=upstream("upstreams.changing_tools")) as lab:
        yield lab


async def mcp(http: httpx2.AsyncClient, method: str, path: str = "/mcp", **params: object) -> JsonObject:
    """Send one request as a modern client."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {name: value for name, value in HEADERS.items() if name != "mcp-name"} | {"mcp-method": method}
    name = params.get("name")
    if isinstance(name, str) and name.isascii() and name.isprintable() and name == name.strip():
        headers["mcp-name"] = name
    return (await http.post(path, json=body, headers=headers)).json()


def intents(records: list[JsonObject]) -> list[JsonObject]:
    return [record for record in records if record["phase"] == "intent"]


async def runs_at_endpoints(http: httpx2.AsyncClient) -> list[bool]:
    """Return whether the tool runs through the search endpoint, and through that of its server."""
    found = await mcp(http, "tools/call", "/mcp?tools=search", name="call_tool", arguments={"ref": "shifts/tool"})
    alone = await mcp(http, "tools/call", "/mcp/servers/shifts", name="tool", arguments={})
    return ["called plain" in str(answer) for answer in (found, alone)]


async def test_denied_upstream_tool_is_unknown_by_every_name_at_every_door(lab: ShopLab) -> None:
    ide = await lab.token("ide", mode="bypassPermissions")
    robot = await lab.token("robot", source="api", mode="bypassPermissions")
    async with lab.http(ide) as http:
        assert await runs_at_endpoints(http) == [True, True], "the tool runs without the rule"
    before = len(intents(await lab.records("tool")))
    await lab.owner.permissions.add_rule({"effect": "deny", "pattern": "shifts/tool"})
    assert "shifts/tool" not in {tool["ref"] for tool in await lab.owner.tools()}
    async with lab.http(ide) as http:
        listed = await mcp(http, "tools/list")
        assert "shifts_tool" not in {tool["name"] for tool in listed["result"]["tools"]}
        for name in ("tool", *LOOK_ALIKES):
            answer = await mcp(http, "tools/call", name=name, arguments={})
            assert answer["error"]["code"] in (-32602, -32020), (name, answer)
        assert await runs_at_endpoints(http) == [False, False]
    async with lab.rest(robot) as program:
        assert "shifts/tool" not in {tool["ref"] for tool in await program.tools()}
        for name in ("tool", *LOOK_ALIKES):
            with pytest.raises(ToolcribError) as caught:
                await program.call(ToolRef("shifts", name), {})
            assert caught.value.code in ("tool.unknown", "route.unknown", "server.unknown", "request.malformed"), name
        for server in ("Shifts", "SHIFTS", "ѕhifts", "shifts ", "shifts/", "mcp__shifts"):
            with pytest.raises(NotFound):
                await program.call(ToolRef(server, "tool"), {})
    async with lab.http(robot) as http:
        for path in (
            "shifts/%74ool",
            "shifts%2Ftool",
            "shifts//tool",
            "shifts/./tool",
            "shop/../shifts/tool",
            "%73hifts/tool",
        ):
            answer = await http.post(f"/api/tools/{path}/call", json={"arguments": {}})
            assert answer.status_code in (404, 405), (path, answer.text)
    for source in ("agent", "scheduler", "ide"):
        with pytest.raises(ToolcribError):
            principal = lab.crib.principals.owner(source, session="child", mode="bypassPermissions")
            await lab.crib.call("shifts/tool", {}, principal=principal)
    assert len(intents(await lab.records("tool"))) == before


PATTERNS = (
    "*",
    "shop/*",
    "shifts/*",
    "*/tool",
    "shop/sell",
    "shop/look",
    "shop/close",
    "shifts/tool",
    "s*/*o*",
    "nothing/*",
)
CONDITIONS: list[list[JsonObject]] = [[], [], [{"pointer": "/what", "test": "equals", "value": "tea"}]]


@st.composite
def rules(draw: st.DrawFn) -> JsonObject:
    rule: JsonObject = {
        "effect": draw(st.sampled_from(["allow", "ask", "deny"])),
        "pattern": draw(st.sampled_from(PATTERNS)),
    }
    if conditions := draw(st.sampled_from(CONDITIONS)):
        rule["conditions"] = conditions
    where: JsonObject = {}
    if sources := draw(st.sampled_from([[], [], ["ide"], ["api"], ["ide", "api"]])):
        where["sources"] = sources
    if modes := draw(st.sampled_from([[], [], ["default"], ["plan", "acceptEdits"]])):
        where["modes"] = modes
    return rule | ({"where": where} if where else {})


def may_be_seen(ref: str, rule_list: list[JsonObject], principal: Principal) -> bool:
    """Return the expected visibility, computed independently of the crib's own code."""

    def denies(rule: JsonObject) -> bool:
        where = rule.get("where", {})
        return (
            rule["effect"] == "deny"
            and "conditions" not in rule
            and (rule["pattern"] == "*" or fnmatchcase(ref, rule["pattern"]))
            and principal.source in where.get("sources", [principal.source])
            and principal.mode in where.get("modes", [principal.mode])
        )

    return ref != PRIVILEGED and not any(denies(rule) for rule in rule_list)


class Doors:
    """All doors for one principal: lists the tools there and calls each of them."""

    def __init__(self, lab: ShopLab, principal: Principal, http: httpx2.AsyncClient) -> None:
        self.lab = lab
        self.principal = principal
        self.http = http

    async def check(self, rule_list: list[JsonObject]) -> None:
        expected = {ref for ref in CALLS if may_be_seen(ref, rule_list, self.principal)}
        gate = self.lab.crib.gate
        listed = {str(tool.ref) for tool in gate.listing(self.principal).tools} & CALLS.keys()
        assert listed == expected
        names = {gate.name("endpoint", ToolRef(*ref.split("/"))): ref for ref in CALLS}
        over_mcp = {tool["name"] for tool in (await mcp(self.http, "tools/list"))["result"]["tools"]}
        assert {ref for name, ref in names.items() if name in over_mcp} == expected
        for name, ref in names.items():
            answer = await mcp(self.http, "tools/call", name=name, arguments=CALLS[ref])
            assert (answer.get("error", {}).get("code") == -32602) == (ref not in expected), (ref, answer)
        if self.principal.source == "api":
            tools: list[Any] = (await self.http.get("/api/tools")).json()
            assert {tool["ref"] for tool in tools} & CALLS.keys() == expected
            for ref, arguments in CALLS.items():
                answer = await self.http.post(f"/api/tools/{ref}/call", json={"arguments": arguments})
                assert (answer.status_code == 404) == (ref not in expected), (ref, answer.text)
        for ref, arguments in CALLS.items():
            await self.through_library(ref, arguments, ref in expected)

    async def through_library(self, ref: str, arguments: JsonObject, is_seen: bool) -> None:
        verdict = self.lab.crib.gate.explain(self.principal, ToolRef(*ref.split("/")), arguments).verdict
        try:
            await self.lab.crib.call(ref, arguments, principal=self.principal)
        except NotFound:
            assert not is_seen
        except ToolcribError:
            assert is_seen
            assert verdict in ("ask", "deny")
        else:
            assert is_seen
            assert verdict == "allow"


@pytest.fixture
async def doors(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[list[Doors]]:
    """Return three principals with their doors; approvals expire at once."""
    expire_approvals_after(monkeypatch, 0)
    principals: list[Doors] = []
    for name, source, mode in (("a", "ide", "acceptEdits"), ("b", "api", "default"), ("c", "api", "plan")):
        http = lab.http(await lab.token(name, source=source, mode=mode))
        principals.append(Doors(lab, Principal("token", name, source, mode), http))  # pyright: ignore[reportArgumentType]
    yield principals
    for each in principals:
        await each.http.aclose()


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rule_list=st.lists(rules(), max_size=5))
async def test_listed_tools_are_the_visible_tools_at_every_door(
    lab: ShopLab, doors: list[Doors], rule_list: list[JsonObject]
) -> None:
    added = [await lab.owner.permissions.add_rule(rule) for rule in rule_list]
    try:
        for each in doors:
            await each.check(rule_list)
    finally:
        for rule in added:
            await lab.owner.permissions.remove_rule(rule["id"])
