"""The crew tools for GitHub, through the gate of a crib that has a token, against a GitHub of our own."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.agents.github.hub import TOKEN, Hub, issue, open_hub, pull
from integration.builtin.crew.crews import agent
from toolcrib.base.settings import Environment, Settings, load_settings
from toolcrib.host import Crib
from toolcrib.model.errors import Denied, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult

pytestmark = pytest.mark.anyio

SOON = 20.0
READS = {"crib_github_list_prs", "crib_github_list_issues", "crib_github_repo_info", "crib_github_get_pr_diff"}
BLOCKED = {
    "crib_github_fork_repo", "crib_github_create_pr", "crib_github_create_issue", "crib_github_comment_on_pr",
}  # fmt: skip
REST = {
    "crib_github_star_repo", "crib_github_unstar_repo", "crib_github_review_pr", "crib_github_follow_user",
}  # fmt: skip
ISSUE = {"repo": "acme/app", "title": "Bug", "body": "It breaks."}
PULL = {"repo": "acme/app", "title": "Fix", "body": "Mended.", "head": "fix"}
REVIEW = {"repo": "acme/app", "pr_number": 7, "event": "COMMENT", "body": "Hm."}
COMMENT = {"repo": "acme/app", "pr_number": 7, "body": "Thanks."}


@pytest.fixture
async def hub() -> AsyncGenerator[Hub]:
    """A running GitHub."""
    async with open_hub() as opened:
        yield opened


@asynccontextmanager
async def open_crib(home: Path, hub: Hub, **settings: Any) -> AsyncGenerator[Crib]:
    """A crib with a token for that GitHub, and an agent."""
    given = Settings(home=home, github_token=TOKEN, github_url=hub.url, **settings)
    async with Crib(given, environment=Environment({"HOME": str(home.parent)})) as opened:
        await opened.zoo.create(agent("scout"), by="test")
        yield opened


@pytest.fixture
async def crib(tmp_path: Path, hub: Hub) -> AsyncGenerator[Crib]:
    """A crib with a token."""
    async with open_crib(tmp_path / "home", hub) as opened:
        yield opened


def session(name: str, source: Any = "agent", creator: Principal | None = None) -> Principal:
    """A session of the agent that runs without asking."""
    return Principal("session", name, source, "bypassPermissions", "scout", name, creator=creator)


async def use(crib: Crib, tool: str, arguments: JsonObject, who: Principal | None = None) -> CallResult:
    """Call a tool."""
    with anyio.fail_after(SOON):
        return await crib.call(
            f"crew/crib_github_{tool}", arguments, principal=who or crib.owner("web", mode="acceptEdits")
        )


async def ok(crib: Crib, tool: str, arguments: JsonObject, who: Principal | None = None) -> Any:
    """What a tool gives that works."""
    result = await use(crib, tool, arguments, who)
    assert not result.is_error, result.content
    return result.structured_content


async def wrong(crib: Crib, tool: str, arguments: JsonObject, who: Principal | None = None) -> str:
    """What a tool says that does not."""
    result = await use(crib, tool, arguments, who)
    assert result.is_error, result.structured_content
    said = str(result.content[0]["text"])
    assert TOKEN not in said
    return said


def seen(crib: Crib, who: Principal) -> set[str]:
    """The tools for GitHub that somebody sees."""
    names = (each.ref.tool for each in crib.gate.listing(who).tools if each.ref.server == "crew")
    return {name for name in names if name.startswith("crib_github_")}


async def test_who_sees_which_of_the_tools(crib: Crib) -> None:
    tools = {each.ref.tool: each for each in crib.gate.listing(crib.owner("web")).tools}
    assert seen(crib, crib.owner("web")) == READS | BLOCKED | REST
    assert seen(crib, crib.owner("ide")) == READS | BLOCKED | REST
    assert seen(crib, crib.owner("scheduler")) == READS | REST
    child = session("child", creator=session("scheduled", "scheduler"))
    assert seen(crib, child) == READS | REST
    assert {name for name in READS | BLOCKED | REST if tools[name].marks.read_only} == READS
    assert all(tools[name].marks.open_world for name in READS | BLOCKED | REST)


async def test_a_schedule_cannot_call_what_it_does_not_see(crib: Crib, hub: Hub) -> None:
    with pytest.raises((NotFound, Denied)):
        await use(crib, "create_issue", ISSUE, session("s", "scheduler"))
    assert hub.writes == []


async def test_without_a_token_there_are_none_and_why_says_so(tmp_path: Path) -> None:
    async with Crib(Settings(home=tmp_path / "home"), environment=Environment({"HOME": str(tmp_path)})) as crib:
        assert seen(crib, crib.owner("web")) == set()
        explained = await crib.why("crew/crib_github_create_pr", principal=crib.owner("web"))
        assert (explained.verdict, "github_token" in explained.decided_by.reason) == ("unknown", True)


async def test_stars_and_followers(crib: Crib, hub: Hub) -> None:
    assert await ok(crib, "star_repo", {"repo": "acme/app"}) == {"done": "starred", "target": "acme/app"}
    assert await ok(crib, "unstar_repo", {"repo": "acme/app"}) == {"done": "unstarred", "target": "acme/app"}
    assert await ok(crib, "follow_user", {"username": "@ada"}) == {"done": "followed", "target": "ada"}
    assert [(each.method, each.path.removeprefix("/api/v3")) for each in hub.writes] == [
        ("PUT", "/user/starred/acme/app"),
        ("DELETE", "/user/starred/acme/app"),
        ("PUT", "/user/following/ada"),
    ]


async def test_a_repository_is_shown_and_forked(crib: Crib) -> None:
    shown = await ok(crib, "repo_info", {"repo": "acme/app"})
    assert (shown["fullName"], shown["stars"], shown["isPrivate"]) == ("acme/app", 5, False)
    forked = await ok(crib, "fork_repo", {"repo": "acme/app", "org": "other"})
    assert (forked["fullName"], forked["isFork"]) == ("other/app", True)
    assert (await ok(crib, "fork_repo", {"repo": "acme/app"}))["fullName"] == "me/app"


async def test_lists_are_given_by_state_and_limit(crib: Crib, hub: Hub) -> None:
    hub.pulls = [pull(3), pull(2, state="closed"), pull(1)]
    hub.issues = [issue(6, labels=[{"name": "bug"}]), issue(5, state="closed"), pull(4, pull_request={})]
    found = await ok(crib, "list_prs", {"repo": "acme/app"})
    assert [each["number"] for each in found["pullRequests"]] == [3, 1]
    assert (found["pullRequests"][0]["head"], found["pullRequests"][0]["excerpt"]) == ("acme:fix", "It breaks.")
    found = await ok(crib, "list_prs", {"repo": "acme/app", "state": "all", "limit": 2})
    assert [each["number"] for each in found["pullRequests"]] == [3, 2]
    found = await ok(crib, "list_issues", {"repo": "acme/app"})
    assert [(each["number"], each["labels"]) for each in found["issues"]] == [(6, ["bug"])]
    found = await ok(crib, "list_issues", {"repo": "acme/app", "state": "closed"})
    assert [each["number"] for each in found["issues"]] == [5]


async def test_a_diff_is_read(crib: Crib, hub: Hub) -> None:
    found = await ok(crib, "get_pr_diff", {"repo": "acme/app", "pr_number": 3})
    assert found == {"repo": "acme/app", "number": 3, "diff": hub.diff, "truncated": False}
    assert "too large" in await wrong(crib, "get_pr_diff", {"repo": "acme/app", "pr_number": 406})


async def test_what_an_agent_writes_says_so_and_what_a_person_writes_stays(crib: Crib, hub: Hub) -> None:
    scout = session("s")
    made = await ok(crib, "create_issue", {**ISSUE, "labels": ["bug"], "requested_by": "@ada\nx"}, scout)
    assert (made["number"], made["labels"]) == (42, ["bug", "toolcrib"])
    await ok(crib, "create_pr", PULL, scout)
    await ok(crib, "review_pr", REVIEW, scout)
    await ok(crib, "comment_on_pr", COMMENT, scout)
    bodies = [each.body["body"] for each in hub.writes if "body" in each.body]
    signed = "\n\n---\nWritten by the agent scout through Toolcrib"
    assert bodies == [
        f"It breaks.{signed}, requested by @ada x.", f"Mended.{signed}.", f"Hm.{signed}.", f"Thanks.{signed}.",
    ]  # fmt: skip
    await ok(crib, "comment_on_pr", COMMENT)
    assert hub.writes[-1].body == {"body": "Thanks."}


async def test_a_review_has_its_state_and_what_github_refuses_is_told(crib: Crib) -> None:
    done = await ok(crib, "review_pr", {**REVIEW, "event": "APPROVE"})
    assert done == {"state": "APPROVED", "url": "https://hub.example/review"}
    said = await wrong(crib, "review_pr", {**REVIEW, "event": "APPROVE", "pr_number": 1})
    assert "Can not approve your own pull request" in said
    said = await wrong(crib, "create_pr", {**PULL, "head": "nowhere"})
    assert "head invalid" in said
    assert "Hint:" in said


@pytest.mark.parametrize(
    ("tool", "arguments", "most"),
    [("create_issue", ISSUE, 3), ("create_pr", PULL, 3), ("comment_on_pr", COMMENT, 5), ("review_pr", REVIEW, 5)],
)
async def test_a_session_that_no_person_leads_writes_only_so_often(
    crib: Crib, hub: Hub, tool: str, arguments: JsonObject, most: int
) -> None:
    first = session("first")
    for _ in range(most):
        await ok(crib, tool, arguments, first)
    count = len(hub.writes)
    said = await wrong(crib, tool, arguments, first)
    assert f"{most} " in said
    assert "without a person" in said
    assert "without a person" in await wrong(crib, tool, arguments, session("child", creator=first))
    assert len(hub.writes) == count
    await ok(crib, tool, arguments, session("second"))
    await ok(crib, tool, arguments, session("third", "web"))
    await ok(crib, tool, arguments)


async def test_comments_and_reviews_count_together_and_failures_do_not(crib: Crib, hub: Hub) -> None:
    who = session("s")
    for _ in range(3):
        await wrong(crib, "comment_on_pr", {**COMMENT, "repo": "acme/none"}, who)
    for _ in range(2):
        await ok(crib, "comment_on_pr", COMMENT, who)
        await ok(crib, "review_pr", REVIEW, who)
    await ok(crib, "review_pr", REVIEW, who)
    assert "without a person" in await wrong(crib, "comment_on_pr", COMMENT, who)


async def test_writes_stay_with_the_allowed_owners(tmp_path: Path, hub: Hub) -> None:
    async with open_crib(tmp_path / "home", hub, github_organisations=("acme",), github_label="") as crib:
        assert (await ok(crib, "create_issue", ISSUE))["labels"] == []
        said = await wrong(crib, "create_issue", {**ISSUE, "repo": "other/app"})
        assert "github_organisations" in said
        await ok(crib, "repo_info", {"repo": "other/app"})


FAILURES: Sequence[tuple[str, JsonObject]] = [
    ("star_repo", {"repo": "acme/none"}),
    ("unstar_repo", {"repo": "acme/none"}),
    ("fork_repo", {"repo": "acme/none"}),
    ("list_prs", {"repo": "acme/none"}),
    ("create_pr", {**PULL, "repo": "acme/none"}),
    ("review_pr", {**REVIEW, "repo": "acme/none"}),
    ("create_issue", {**ISSUE, "repo": "acme/none"}),
    ("list_issues", {"repo": "acme/none"}),
    ("repo_info", {"repo": "acme/none"}),
    ("get_pr_diff", {"repo": "acme/none", "pr_number": 1}),
    ("comment_on_pr", {**COMMENT, "repo": "acme/none"}),
    ("follow_user", {"username": "nobody"}),
]


@pytest.mark.parametrize(("tool", "arguments"), FAILURES)
async def test_every_tool_says_what_is_missing_when_to_come_back_and_that_a_token_is_wrong(
    crib: Crib, hub: Hub, tool: str, arguments: JsonObject
) -> None:
    assert "GitHub did not find this" in await wrong(crib, tool, arguments)
    hub.retry_after = "33"
    assert "in 33 s" in await wrong(crib, tool, arguments)


async def test_a_token_that_is_not_accepted_is_told_with_what_to_do(tmp_path: Path, hub: Hub) -> None:
    given = Settings(home=tmp_path / "home", github_token="ghp_wrong", github_url=hub.url)
    async with Crib(given, environment=Environment({"HOME": str(tmp_path)})) as crib:
        said = await wrong(crib, "repo_info", {"repo": "acme/app"})
        assert "TOOLCRIB_GITHUB_TOKEN" in said
        assert "ghp_wrong" not in said


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("repo_info", {"repo": "../../user"}),
        ("repo_info", {}),
        ("list_prs", {"repo": "acme/app", "limit": 101}),
        ("list_issues", {"repo": "acme/app", "state": "lost"}),
        ("review_pr", {**REVIEW, "event": "MERGE"}),
        ("get_pr_diff", {"repo": "acme/app", "pr_number": 0}),
        ("create_issue", {**ISSUE, "title": ""}),
        ("comment_on_pr", {**COMMENT, "body": ""}),
    ],
)
async def test_arguments_that_do_not_fit_are_never_sent(
    crib: Crib, hub: Hub, tool: str, arguments: dict[str, Json]
) -> None:
    await wrong(crib, tool, arguments)
    assert hub.asked == []


async def test_the_token_is_shown_nowhere_and_not_changed_by_a_tool(tmp_path: Path, crib: Crib) -> None:
    shown = await crib.call("toolcrib/get_config", {}, principal=crib.owner("web", mode="acceptEdits"))
    assert TOKEN not in str(shown)
    assert TOKEN not in repr(crib.settings)
    rows = {row["name"]: row["value"] for row in crib.settings.describe()}
    assert rows["github_token"] == "***"
    for name, value in {"github_token": "x", "github_url": "https://evil.example", "github_organisations": "x"}.items():
        result = await crib.call(
            "toolcrib/set_config", {"name": name, "value": value}, principal=crib.owner("web", mode="acceptEdits")
        )
        assert result.is_error


def test_settings_for_github_come_from_variables_and_the_file(tmp_path: Path) -> None:
    variables = {
        "TOOLCRIB_HOME": str(tmp_path),
        "TOOLCRIB_GITHUB_TOKEN": TOKEN,
        "TOOLCRIB_GITHUB_ORGANISATIONS": "a, b",
    }
    (tmp_path / "toolcrib.toml").write_text(
        'github_url = "https://hub.example/api/v3/"\ngithub_label = ""\ngithub_organisations = ["c"]\n', "utf-8"
    )
    settings = load_settings(Environment(variables)).settings
    assert (settings.github_token, settings.github_url) == (TOKEN, "https://hub.example/api/v3")
    assert (settings.github_organisations, settings.github_label) == (("a", "b"), "")
    for wrong_line in ('github_url = "ftp://x"', 'github_url = "https://u:p@x"', "github_organisations = [1]"):
        (tmp_path / "toolcrib.toml").write_text(wrong_line, "utf-8")
        assert load_settings(Environment({"TOOLCRIB_HOME": str(tmp_path)})).problems
