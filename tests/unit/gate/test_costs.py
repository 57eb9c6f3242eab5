"""The cost of a tool set: sums by server, and suggestions."""

from toolcrib.gate.costs import costs
from toolcrib.model.json import dumps
from toolcrib.model.tools import Tool, ToolRef


def make_tool(server: str, name: str, size: int = 0) -> Tool:
    return Tool(ToolRef(server, name), "x" * size, {"type": "object", "properties": {}})


def test_tokens_are_estimated_from_the_definition_as_listed() -> None:
    tool = make_tool("disk", "read", 400)
    (cost,) = costs([tool], lambda ref: f"{ref.server}_{ref.tool}", {tool.ref: 3}, 100).tools
    listed = dumps({"name": "disk_read", **tool.definition})
    assert abs(cost.tokens - len(listed) / 4) <= 1
    assert cost.calls == 3


def test_servers_are_summed_and_unused_tools_are_suggested_for_hiding() -> None:
    tools = [make_tool("big", "a", 4_000), make_tool("big", "b", 4_000), make_tool("small", "c")]
    report = costs(tools, lambda ref: ref.tool, {ToolRef("big", "a"): 2}, 100)
    big, small = report.servers()
    assert (big["server"], big["tools"], big["used"], big["calls"]) == ("big", 2, 1, 2)
    assert big["tokens"] + small["tokens"] == report.tokens
    (hide,) = report.suggestions()
    assert (hide["kind"], hide["tools"]) == ("hide", ["big/b"])


def test_search_mode_is_suggested_for_a_large_catalog_only() -> None:
    large = costs([make_tool("s", str(number), 4_000) for number in range(20)], lambda ref: ref.tool, {}, 100)
    assert large.suggestions()[0]["kind"] == "search"
    assert large.suggestions()[0]["saves"] == large.tokens - 100
