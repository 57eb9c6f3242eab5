"""The offer of a server: read page by page within limits, checked for each tool, stored and restored."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import ToolFilter
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.definitions import UpstreamTool, check_tool, mcp_param_headers
from toolcrib.upstream.handshake import ServerIntroduction
from toolcrib.upstream.offer import (
    PROMPTS,
    SKILLS,
    TOOLS,
    UNLISTED_SKILLS_LIMIT,
    Offer,
    passes,
    read_offer,
    tools_of,
    with_skill,
)

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
SCHEMA_WORDS = st.sampled_from(
    ["type", "properties", "$ref", "allOf", "items", "$defs", "x-mcp-header", "not", "enum", "a", "object", "#/$defs/a"]
)
SCHEMAS = st.recursive(
    SCHEMA_WORDS | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCHEMA_WORDS, inner, max_size=4),
    max_leaves=20,
)
MEMBERS = ("title", "description", "outputSchema", "annotations", "icons", "_meta", "execution", "other")


def introduction(**capabilities: object) -> ServerIntroduction:
    """Return the introduction of a server with these capabilities."""
    return ServerIntroduction("legacy", "2025-11-25", dict(capabilities), {"name": "server"}, "Be kind.", {})


class ScriptedServer:
    """A server that returns these pages in turn; an error in place of a page is raised."""

    def __init__(self, **pages: Sequence[JsonObject | ProtocolError]) -> None:
        self.pages = {name: list(listed) for name, listed in pages.items()}
        self.requests: list[tuple[str, JsonObject]] = []

    async def respond(self, method: str, params: JsonObject) -> JsonObject:
        """Return the next page."""
        self.requests.append((method, params))
        kind = method.removesuffix("/list").replace("/", "_")
        pages = self.pages.get(kind)
        if not pages:
            raise ProtocolError(-32601, "Method not found")
        page = pages.pop(0) if len(pages) > 1 else pages[0]
        if isinstance(page, ProtocolError):
            raise page
        return page


@given(
    st.fixed_dictionaries(
        {"name": st.text(min_size=1)}, optional={**dict.fromkeys(MEMBERS, ANY_JSON), "inputSchema": SCHEMAS}
    )
)
def test_any_tool_definition_becomes_valid_for_every_client(raw: JsonObject) -> None:
    before = orjson.dumps(raw)
    for strict in (True, False):
        checked = check_tool(raw, strict_headers=strict)
        if isinstance(checked, Problem):
            assert strict and "x-mcp-header" in checked.message
            continue
        assert checked.name == raw["name"]
        assert checked.input_schema["type"] == "object" and isinstance(checked.input_schema["properties"], dict)
        assert checked.output_schema is None or isinstance(checked.output_schema, dict)
        mcp_param_headers(checked.headers, {"a": 1})
    assert orjson.dumps(raw) == before


def test_valid_definition_passes_unchanged() -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}, "future": 1}
    raw: JsonObject = {
        "name": "tool",
        "title": "Tool",
        "description": "Does it.",
        "inputSchema": schema,
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": True, "future": 1},
        "icons": [{"src": "https://example.com/i.png"}],
        "_meta": {"ui": {"resourceUri": "ui://x"}},
        "future": {"a": [1]},
    }
    offer = Offer("modern", "2026-07-28", tools=(raw,))
    (tool,), problems = tools_of(offer, "shop", ToolFilter(), 3.0)
    assert problems == () == tool.problems
    assert {"name": "tool", **tool.definition} == raw
    assert (tool.kind, tool.timeout, str(tool.ref)) == ("upstream", 3.0, "shop/tool")
    assert not tool.marks.read_only and tool.marks.open_world


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "x-mcp-header": "Region", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "two words"}}},
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": 3}}},
        {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {
            "type": "object",
            "properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
        },
    ],
)
def test_tool_with_invalid_headers_is_left_out_only_in_the_modern_era(schema: JsonObject) -> None:
    raw = {"name": "tool", "inputSchema": schema}
    left_out = check_tool(raw, strict_headers=True)
    assert isinstance(left_out, Problem) and "'tool'" in left_out.message
    kept = check_tool(raw, strict_headers=False)
    assert isinstance(kept, UpstreamTool) and kept.headers == ()


def test_arguments_are_repeated_in_the_headers_that_the_schema_names() -> None:
    region = {"type": "string", "x-mcp-header": "Region"}
    nested = {"type": "object", "properties": {"deep": {"type": "integer", "x-mcp-header": "Deep"}}}
    flag = {"type": "boolean", "x-mcp-header": "Flag"}
    properties: JsonObject = {"region": region, "outer": nested, "other": {"type": "string"}, "flag": flag}
    schema: JsonObject = {"type": "object", "properties": properties}
    checked = check_tool({"name": "tool", "inputSchema": schema}, strict_headers=True)
    assert isinstance(checked, UpstreamTool)
    arguments = {"region": "Köln ", "outer": {"deep": 7}, "other": "x", "flag": True}
    assert mcp_param_headers(checked.headers, arguments) == {
        "Mcp-Param-Region": "=?base64?S8O2bG4g?=",
        "Mcp-Param-Deep": "7",
        "Mcp-Param-Flag": "true",
    }
    assert mcp_param_headers(checked.headers, {"region": None, "outer": 3}) == {}


@pytest.mark.anyio
async def test_only_announced_lists_are_requested_and_tools_always() -> None:
    server = ScriptedServer(tools=[{"tools": [{"name": "a"}]}], prompts=[{"prompts": [{"name": "b"}]}])
    offer = await read_offer(server.respond, introduction())
    assert [tool["name"] for tool in offer.tools] == ["a"] and offer.prompts == ()
    assert [method for method, _ in server.requests] == ["tools/list"]
    silent = await read_offer(ScriptedServer().respond, introduction(prompts={}))
    assert silent.tools == () and [problem.code for problem in silent.problems] == ["server.offer"]
    assert "prompts" in silent.problems[0].message


@pytest.mark.anyio
async def test_tool_that_is_listed_again_unchanged_stays_the_same_object() -> None:
    schema = {"type": "object", "properties": {"n": {"default": 1}}}
    plain, other = {"name": "plain", "inputSchema": schema}, {"name": "other", "inputSchema": schema}
    first = await read_offer(ScriptedServer(tools=[{"tools": [plain, other]}]).respond, introduction())
    changed: JsonObject = {"name": "other", "inputSchema": {"type": "object", "properties": {"n": {"default": True}}}}
    listed = orjson.loads(orjson.dumps([changed, plain, {"name": "new"}]))
    second = await read_offer(ScriptedServer(tools=[{"tools": listed}]).respond, introduction(), first)
    before = {tool.ref.tool: tool for tool in tools_of(first, "server", ToolFilter())[0]}
    after = {tool.ref.tool: tool for tool in tools_of(second, "server", ToolFilter())[0]}
    assert list(after) == ["other", "plain", "new"]
    assert after["plain"] is before["plain"]
    assert after["other"].input_schema["properties"]["n"]["default"] is True, "1 and true are equal only in Python"
    renamed = {tool.ref: tool for tool in tools_of(second, "elsewhere", ToolFilter(), 3)[0]}
    assert {(ref.server, tool.timeout) for ref, tool in renamed.items()} == {("elsewhere", 3)}


@pytest.mark.anyio
async def test_checking_all_tools_does_not_change_the_offer() -> None:
    tools = tuple({"name": f"tool {number}"} for number in range(30))
    offer = Offer("legacy", "2025-11-25", tools=(*tools, {"name": "x" * 2_000}))
    check_all = await offer.check_all()
    assert check_all == offer
    assert check_all.checked_tools == offer.checked_tools
    assert all(check_all.checks[raw["name"]] is check_all.known[raw["name"]] for raw in tools)


def test_slices_of_the_tools_are_the_same_objects_each_time() -> None:
    offer = Offer("legacy", "2025-11-25", tools=tuple({"name": name} for name in ("a", "b", "hidden", "c")))
    tools, _ = tools_of(offer, "server", ToolFilter(deny=("hidden",)))
    assert [tool.ref.tool for tool in tools] == ["a", "b", "c"]
    assert (len(tools), tools[-1].ref.tool) == (3, "c")
    assert [id(tool) for tool in (*tools[:2], *tools[2:])] == [id(tool) for tool in tools]


@pytest.mark.anyio
async def test_failed_list_keeps_its_known_items_and_does_not_affect_other_lists() -> None:
    abilities = introduction(tools={}, prompts={}, resources={})
    whole = ScriptedServer(
        tools=[{"tools": [{"name": "a"}], "nextCursor": "2"}, {"tools": [{"name": "b"}]}],
        prompts=[{"prompts": [{"name": "p"}]}],
        resources=[{"resources": [{"uri": "r://1"}]}],
        resources_templates=[ProtocolError(-32603, "broken")],
    )
    before = await read_offer(whole.respond, abilities)
    assert [tool["name"] for tool in before.tools] == ["a", "b"]
    assert [each["uri"] for each in before.resources] == ["r://1"] and before.templates == ()
    assert len(before.problems) == 1 and "templates" in before.problems[0].message
    after = await read_offer(ScriptedServer(tools=[ProtocolError(-32603, "busy")]).respond, abilities, before, [TOOLS])
    assert after.tools == before.tools and after.prompts == before.prompts
    assert len(after.problems) == 2
    healed = await read_offer(ScriptedServer(tools=[{"tools": []}]).respond, abilities, after, [TOOLS, PROMPTS])
    assert healed.tools == () and healed.prompts == before.prompts


@given(st.lists(st.dictionaries(st.sampled_from(["name", "uri", "x"]), ANY_JSON, max_size=3), max_size=4), ANY_JSON)
def test_stored_offer_is_read_back_unchanged(tools: list[dict[str, Any]], info: Any) -> None:
    named = tuple(tool for tool in tools if isinstance(tool.get("name"), str))
    offer = Offer(
        "legacy", "2025-11-25", {"tools": {}}, {"name": info}, None, named, problems=(Problem("server.offer", "x"),)
    )
    assert Offer.from_json(offer.to_json()) == offer


@given(st.binary(max_size=50) | ANY_JSON.map(orjson.dumps))
def test_invalid_stored_offer_is_ignored(stored: bytes) -> None:
    assert Offer.from_json(stored) is None


def test_filter_passes_tools_that_are_allowed_and_not_denied() -> None:
    names = ("read_file", "read_dir", "write_file")

    def passing(chosen: ToolFilter) -> list[str]:
        return [name for name in names if passes(chosen, name)]

    assert passing(ToolFilter()) == list(names)
    assert passing(ToolFilter(allow=())) == []
    assert passing(ToolFilter(allow=("read_*",), deny=("*_dir",))) == ["read_file"]
    assert passing(ToolFilter(deny=("*_file",))) == ["read_dir"]


SKILLED = introduction(resources={}, extensions={"io.modelcontextprotocol/skills": {}})


def skill(name: str) -> JsonObject:
    """Return a dynamic skill."""
    fields: JsonObject = {"name": name, "description": "Text."}
    return {"uri": f"skill://{name}/SKILL.md", "frontmatter": fields, "resources": "dynamic"}


@pytest.mark.anyio
async def test_unlisted_skill_is_kept_until_the_server_no_longer_has_it() -> None:
    gone = ProtocolError(-32602, "No such skill")
    server = ScriptedServer(
        skills=[{"skills": [skill("a")]}], skills_get=[{"skill": skill("b")}, {"skill": skill("b")}, gone]
    )
    listed = await read_offer(server.respond, SKILLED, None, [SKILLS])
    known = await with_skill(server.respond, listed, "skill://b/SKILL.md")
    again = await read_offer(server.respond, SKILLED, known, [SKILLS])
    last = await read_offer(server.respond, SKILLED, again, [SKILLS])
    assert [len(each.skills) for each in (listed, known, again, last)] == [1, 2, 2, 1]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer", [{"skill": skill("a")}, {"skill": []}, {}, {"skill": {**skill("b"), "resources": 1}}]
)
async def test_answer_with_another_or_invalid_skill_is_refused(answer: JsonObject) -> None:
    offer = await read_offer(ScriptedServer(skills=[{"skills": []}]).respond, SKILLED, None, [SKILLS])
    with pytest.raises(Unavailable, match="cannot be used"):
        await with_skill(ScriptedServer(skills_get=[answer]).respond, offer, "skill://b/SKILL.md")


@pytest.mark.anyio
async def test_number_of_requested_unlisted_skills_is_limited() -> None:
    many = [skill(f"s{number}") for number in range(3 * UNLISTED_SKILLS_LIMIT)]
    server = ScriptedServer(
        skills=[{"skills": many}, {"skills": []}], skills_get=[ProtocolError(-32602, "No such skill")]
    )
    offer = await read_offer(server.respond, SKILLED, None, [SKILLS])
    assert (await read_offer(server.respond, SKILLED, offer, [SKILLS])).skills == ()
    assert len(server.requests) == 2 + UNLISTED_SKILLS_LIMIT
