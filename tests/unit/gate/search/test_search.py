"""Ranked search: requests find tools, exact names rank first, and indexes are reused."""

from time import process_time

import anyio
import pytest

from toolcrib.gate.search import search_tools
from toolcrib.gate.search.index import FoundTool
from toolcrib.gate.search.search import ToolSearch
from toolcrib.gate.search.words import MOST_FILE_STEPS, MOST_STEPS, query_steps, split, stem
from toolcrib.gate.signatures import signature, stub
from toolcrib.gate.view import Listing
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult, Tool, ToolRef
from unit.gate.search.sentences import common_tools, sentences

pytestmark = pytest.mark.anyio

FLOOR = 0.9
"""The lowest accepted share of sentences whose tool is among the first five results."""


def make_tool(server: str, name: str, description: str = "", **arguments: str) -> Tool:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    return Tool(ToolRef(server, name), description, {"type": "object", "properties": properties})


async def find(tools: list[Tool], query: str) -> list[str]:
    found = await ToolSearch().find(Listing((1, 1), tuple(tools)), query, 10)
    return [str(each.tool.ref) for each in found]


async def test_sentences_find_their_tool_among_the_first_five() -> None:
    search, listing = ToolSearch(), Listing((1, 1), common_tools())
    cases = sentences()
    assert len(cases) >= 60
    known = {str(tool.ref) for tool in listing.tools}
    assert {ref for _, ref in cases} <= known
    missed: list[str] = []
    for sentence, ref in cases:
        found = await search.find(listing, sentence, 5)
        if ref not in [str(each.tool.ref) for each in found]:
            missed.append(f"{sentence} → {[str(each.tool.ref) for each in found]}, not {ref}")
    assert 1 - len(missed) / len(cases) >= FLOOR, "\n".join(missed)


async def test_match_in_the_name_ranks_above_one_in_the_description() -> None:
    by_name = make_tool("weather", "forecast", "Says what comes.")
    by_text = make_tool("news", "headlines", "Like a forecast, but of the past.")
    by_argument = make_tool("mail", "send", "Sends.", kind="The forecast to send.")
    assert await find([by_argument, by_text, by_name], "forecast") == [
        "weather/forecast", "news/headlines", "mail/send",
    ]  # fmt: skip


async def test_purpose_in_the_first_sentence_ranks_above_a_later_remark() -> None:
    remark = make_tool("a", "alpha", "Lists the open invoices. Never prints a label.")
    purpose = make_tool("b", "beta", "Never prints a label. Lists the open invoices.")
    assert await find([remark, purpose], "print a label") == ["b/beta", "a/alpha"]
    assert await find([remark, purpose], "open invoices") == ["a/alpha", "b/beta"]


@pytest.mark.parametrize("query", ["git_add", "git add", "gitAdd", "vcs/git_add", "vcs_git_add", "GIT-ADD"])
async def test_exact_name_ranks_first_with_the_highest_score(query: str) -> None:
    tools = (make_tool("vcs", "git_add"), make_tool("vcs", "git_add_all", "git add git add"))
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
        ("shut the bug", "closeIssue"),
        ("dele", "delete_directory"),  # unfinished
        ("搜索网页", "chinese"),
    ],
)
async def test_different_spellings_find_the_same_tool(query: str, name: str) -> None:
    tools = [
        make_tool("github", "createPullRequest", "Opens one."),
        make_tool("github", "assignIssue"),
        make_tool("github", "closeIssue"),
        make_tool("mind", "sequentialthinking", "Think sequentially."),
        make_tool("disk", "delete_directory"),
        make_tool("web", "chinese", "使用必应搜索网页内容"),
    ]
    assert (await find(tools, query))[0].endswith(f"/{name}")


async def test_query_without_known_words_finds_nothing() -> None:
    tools = [make_tool("github", "createPullRequest", "Opens one.")]
    assert await find(tools, "banana") == []
    assert await find(tools, "  ") == []
    assert await find([], "anything") == []


async def test_redefined_tool_is_indexed_again_and_other_servers_are_reused() -> None:
    search = ToolSearch()
    kept = make_tool("a", "kept", "apple")
    before = Listing((1, 1), (kept, make_tool("b", "tool", "old words")))
    after = Listing((2, 1), (kept, make_tool("b", "tool", "new words")))
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


def test_identifiers_are_split_at_case_punctuation_and_digits() -> None:
    assert list(split("getHTTPUser_v2 foo-bar.baz")) == ["get", "http", "user", "v", "2", "foo", "bar", "baz"]


def test_values_in_a_query_weigh_less_than_its_words() -> None:
    task, writing = query_steps('Save "Annual Report" of 2024 to /home/ann/report.xlsx')
    assert task["save"] == 1.0
    assert all(0 < task[term] < 1 for term in ("annual", "2024", "excel", "file"))
    assert "ann" not in task
    assert set(writing) == {"write", "excel", "sheet"}
    assert "read" in query_steps("Summarize /home/ann/report.txt")[-1]
    assert query_steps("\0 to \0 /") == [{"to": 1.0}]


def test_long_query_is_read_only_in_part() -> None:
    words = " ".join(f"word{letter}{other}" for letter in "abcdefghijklm" for other in "nopqrstuvw")
    steps = query_steps(words.replace("wordb", ". wordb").replace("wordd", ". wordd"))
    assert len({term for step in steps for term in step}) <= 100
    assert len(query_steps("send mail to Anna. " * 90)) == MOST_STEPS
    assert len(query_steps("read /a.b, " * 180)) == MOST_STEPS + MOST_FILE_STEPS


async def test_task_of_several_steps_finds_a_tool_for_each() -> None:
    papers = [
        make_tool("papers", f"paper_{verb}", f"{verb} a paper about agents.") for verb in ("read", "find", "rate")
    ]
    tools = [*papers, *(make_tool("papers", f"paper_agents_{n}", "Paper about agents.") for n in range(6))]
    tools += [
        make_tool("disk", "write_file", "Writes a file."),
        make_tool("chat", "post_message", "Posts to a channel."),
    ]
    task = "Read the paper about agents. Write a report in /home/ann/report.md, then post a message to the channel."
    found = (await find(tools, task))[:4]
    assert {"papers/paper_read", "disk/write_file", "chat/post_message"} <= set(found)


@pytest.mark.parametrize(
    "task",
    [
        "Compare red apples, ripe pears, blue plums, white grapes, green lemons, sour cherries, sweet melons, figs "
        "and dried dates. Give me a report in /home/ann/fruit.md.",
        "Create a script that checks for `/login` and redirects users in /home/ann/check.py.",
    ],
)
def test_writing_a_file_is_the_last_step_of_a_long_task(task: str) -> None:
    assert query_steps(task)[-1] == {"write": 1.0, "file": 1.0}


def test_reading_a_file_after_writing_one_is_a_step() -> None:
    task = "Save the report to /home/ann/report.md and read the figures of /home/ann/figures.csv"
    assert [step for step in query_steps(task) if len(step) == 2] == [
        {"write": 1.0, "file": 1.0}, {"read": 1.0, "file": 1.0},
    ]  # fmt: skip


async def test_tool_with_another_name_ranks_above_a_second_one_with_the_same_name() -> None:
    tools = [make_tool(disk, "write_file", "Write text to a file.") for disk in ("cloud", "disk", "drive")]
    tools.append(make_tool("notes", "write_page_file", "Write text to a file."))
    found = await find(tools, "Read the weather of today. Then write a file with the text to /home/ann/text.md.")
    assert found[:2] == ["cloud/write_file", "notes/write_page_file"]
    assert sorted(found[2:]) == ["disk/write_file", "drive/write_file"]


async def test_scores_decrease_along_the_list() -> None:
    found = await ToolSearch().find(
        Listing((1, 1), common_tools()), "Read the log, then send it by mail, and save it to /tmp/log.txt", 10
    )
    assert found
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


async def test_query_of_a_megabyte_takes_bounded_time() -> None:
    search, listing = ToolSearch(), Listing((1, 1), common_tools())
    await search.find(listing, "builds the index", 5)
    files = "put in " * 180 + "x" + " /a.b /c," * 100_000
    for query in ("é\u0301 " * 300_000, "/a" * 500_000, "'" * 1_000_000, "send mail. " * 90_000, files):
        started = process_time()
        await search.find(listing, query, 5)
        assert process_time() - started < 0.1


async def test_longer_list_begins_with_the_shorter_one() -> None:
    verbs, nouns = ("create", "list", "update", "delete"), ("file", "issue", "page", "table", "image")
    tools = [
        make_tool(f"server{number // 50}", f"{verbs[number % 4]}_{nouns[number % 5]}_{number}", "Of the workspace.")
        for number in range(3_000)
    ]
    search, listing = ToolSearch(), Listing((1, 1), tuple(sorted(tools, key=lambda tool: tool.ref)))
    task = "Create the file of Anna, then list the issues that I made, and delete the table"
    short, long = await search.find(listing, task, 3), await search.find(listing, task, 40)
    assert long[:3] == short
    assert len(long) == 40


async def test_first_search_in_5000_tools_yields_to_other_tasks() -> None:
    tools = tuple(make_tool("disk", f"shredding{number}_files", f"Folds{number} words.") for number in range(5_000))
    search, listing, turns, done = ToolSearch(), Listing((1, 1), tools), 0, anyio.Event()

    async def count_turns() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            assert stem(f"running{turns}") == f"running{turns}"
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        (found,) = await search.find(listing, "shredding4999", 1)
        assert found.tool == tools[-1]
        done.set()
    assert turns > 5


async def test_word_that_all_tools_share_still_finds_tools() -> None:
    tools = [make_tool("disk", f"file_{number}", "About a file.") for number in range(2_000)]
    assert len(await find(tools, "file")) == 10
    assert (await find([*tools, make_tool("disk", "shred_file")], "shred a file"))[0] == "disk/shred_file"


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


def test_stub_contains_the_complete_description_and_each_argument() -> None:
    text = stub("s_t", Tool(ToolRef("s", "t"), 'Does """it""".\nTwice.', SCHEMA))
    assert text.startswith("async def s_t(*, path: str, ")
    assert "size: How many." in text
    assert text.count('"""') == 2


def test_misspelt_arguments_of_search_tools_are_rejected() -> None:
    for answer in (
        search_tools.read_query({"query": "a", "limits": 1}),
        search_tools.parse_call({"ref": "a/b", "args": {}}),
    ):
        assert isinstance(answer, CallResult)
        assert answer.is_error
