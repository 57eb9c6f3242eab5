"""Ranked search: sentences find tools, exact names come first, and indexes are reused."""

import pytest

from toolcrib.gate.search.index import FoundTool
from toolcrib.gate.search.search import ToolSearch
from toolcrib.gate.search.words import query_terms, split
from toolcrib.gate.signatures import signature, stub
from toolcrib.gate.view import Listing
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import Tool, ToolRef
from unit.gate.search.sentences import common_tools, sentences

pytestmark = pytest.mark.anyio

FLOOR = 0.9
"""Least share of the sentences whose tool is among the first five."""


def a_tool(server: str, name: str, description: str = "", **arguments: str) -> Tool:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    return Tool(ToolRef(server, name), description, {"type": "object", "properties": properties})


async def find(tools: list[Tool], query: str) -> list[str]:
    found = await ToolSearch().find(Listing((1, 1), tuple(tools)), query, 10)
    return [str(each.tool.ref) for each in found]


async def test_sentences_find_their_tool_among_the_first_five() -> None:
    search, listing = ToolSearch(), Listing((1, 1), common_tools())
    asked = sentences()
    assert len(asked) >= 60
    known = {str(tool.ref) for tool in listing.tools}
    assert {ref for _, ref in asked} <= known
    missed: list[str] = []
    for sentence, ref in asked:
        found = await search.find(listing, sentence, 5)
        if ref not in [str(each.tool.ref) for each in found]:
            missed.append(f"{sentence} → {[str(each.tool.ref) for each in found]}, not {ref}")
    assert 1 - len(missed) / len(asked) >= FLOOR, "\n".join(missed)


async def test_match_in_the_name_comes_before_one_in_the_description() -> None:
    by_name = a_tool("weather", "forecast", "Says what comes.")
    by_text = a_tool("news", "headlines", "Like a forecast, but of the past.")
    by_argument = a_tool("mail", "send", "Sends.", kind="The forecast to send.")
    assert await find([by_argument, by_text, by_name], "forecast") == [
        "weather/forecast", "news/headlines", "mail/send",
    ]  # fmt: skip


@pytest.mark.parametrize("query", ["git_add", "git add", "gitAdd", "vcs/git_add", "vcs_git_add", "GIT-ADD"])
async def test_exact_name_comes_first_with_the_highest_score(query: str) -> None:
    tools = (a_tool("vcs", "git_add"), a_tool("vcs", "git_add_all", "git add git add"))
    found = await ToolSearch().find(Listing((1, 1), tools), query, 5)
    assert found[0] == FoundTool(tools[0], 1.0)
    assert all(each.score < 1 for each in found[1:])


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("create pull", "createPullRequest"),
        ("pul request", "createPullRequest"),  # typo
        ("pull reqeust", "createPullRequest"),  # swapped letters
        ("sequential thinking", "sequentialthinking"),
        ("thinks sequentially", "sequentialthinking"),
        ("erase a folder", "delete_directory"),  # synonyms
        ("dele", "delete_directory"),  # unfinished
        ("搜索网页", "chinese"),
    ],
)
async def test_different_spellings_find_the_same_tool(query: str, name: str) -> None:
    tools = [
        a_tool("github", "createPullRequest", "Opens one."),
        a_tool("mind", "sequentialthinking", "Think sequentially."),
        a_tool("disk", "delete_directory"),
        a_tool("web", "chinese", "使用必应搜索网页内容"),
    ]
    assert (await find(tools, query))[0].endswith(f"/{name}")


async def test_words_that_no_tool_has_find_nothing() -> None:
    tools = [a_tool("github", "createPullRequest", "Opens one.")]
    assert await find(tools, "banana") == []
    assert await find(tools, "  ") == []
    assert await find([], "anything") == []


async def test_redefined_tool_is_indexed_again_and_other_servers_are_reused() -> None:
    search = ToolSearch()
    kept = a_tool("a", "kept", "apple")
    before = Listing((1, 1), (kept, a_tool("b", "tool", "old words")))
    after = Listing((2, 1), (kept, a_tool("b", "tool", "new words")))
    assert len(await search.find(before, "old", 5)) == 1
    assert await search.find(after, "old", 5) == []
    assert [each.tool for each in await search.find(after, "new apple", 5)].count(kept) == 1


async def test_score_does_not_depend_on_tools_that_are_not_listed() -> None:
    search = ToolSearch()
    tools = common_tools()
    visible = tuple(tool for tool in tools if tool.ref.server == "git")
    alone = await search.find(Listing((1, 1), visible), "show the commit logs", 3)
    await search.find(Listing((1, 2), tools), "show the commit logs", 3)
    assert await search.find(Listing((1, 3), visible), "show the commit logs", 3) == alone


def test_identifiers_are_split_at_case_signs_and_digits() -> None:
    assert list(split("getHTTPUser_v2 foo-bar.baz")) == ["get", "http", "user", "v", "2", "foo", "bar", "baz"]


def test_values_in_a_query_count_less_than_its_words() -> None:
    weights = query_terms('Save "Annual Report" of 2024 to /home/ann/report.xlsx')
    assert weights["save"] == 1.0
    assert all(0 < weights[term] < 1 for term in ("annual", "2024", "excel", "file"))
    assert "ann" not in weights


def test_very_long_query_is_read_in_part_only() -> None:
    assert (
        len(query_terms(" ".join(f"word{letter}{other}" for letter in "abcdefghijklm" for other in "nopqrstuvw")))
        <= 100
    )


SCHEMA: JsonObject = {
    "type": "object",
    "required": ["path", "mode"],
    "properties": {
        "size": {"type": ["integer", "null"], "default": 3, "description": "How\nmany."},
        "path": {"type": "string"},
        "mode": {"enum": ["r", "w"]},
        "where": {"$ref": "#/$defs/Point"},
        "odd-name": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
        "deep": {"$ref": "#/$defs/Node"},
    },
    "$defs": {
        "Point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {}}, "required": ["x"]},
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
    },
}


def test_signature_has_types_defaults_and_required_arguments_first() -> None:
    line = signature(Tool(ToolRef("s", "t"), "Does it.", SCHEMA))
    assert line.startswith(
        "(path: str, mode: Literal['r', 'w'], size: int | None = 3, where: {'x': float, 'y'?: Any} = "
    )
    assert "'odd-name': list[str | float] = ..." in line


def test_stub_contains_the_whole_description_and_each_argument() -> None:
    text = stub("s_t", Tool(ToolRef("s", "t"), 'Does """it""".\nTwice.', SCHEMA))
    assert text.startswith("async def s_t(*, path: str, ")
    assert "size: How many." in text
    assert text.count('"""') == 2
