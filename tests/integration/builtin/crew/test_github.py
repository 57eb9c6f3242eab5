"""The crew tools for GitHub through the gate, against a fake GitHub server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.agents.github.fake_github import TOKEN, FakeGitHub, issue, open_fake_github, pull
from integration.builtin.crew.crews import agent_input
from toolcrib.base.settings import Environment, Settings, load_settings
from toolcrib.host import Crib
from toolcrib.model.errors import Denied, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult

pytestmark = pytest.mark.anyio

TIMEOUT = 20.0
READS = {"crib_github_list_prs", "crib_github_list_issues", "crib_github_repo_info", "crib_github_get_pr_diff"}
SCHEDULER_BLOCKED = {
    "crib_github_fork_repo", "crib_github_create_pr", "crib_github_create_issue", "crib_github_comment_on_pr",
}  # fmt: skip
OTHERS = {
    "crib_github_star_repo", "crib_github_unstar_repo", "crib_github_review_pr", "crib_github_follow_user",
}  # fmt: skip
ISSUE = {"repo": "acme/app", "title": "Bug", "body": "It breaks."}
PULL = {"repo": "acme/app", "title": "Fix", "body": "Mended.", "head": "fix"}
REVIEW = {"repo": "acme/app", "pr_number": 7, "event": "COMMENT", "body": "Hm."}
COMMENT = {"repo": "acme/app", "pr_number": 7, "body": "Thanks."}


@pytest.fixture
async def hub() -> AsyncGenerator[FakeGitHub]:
    """Run a fake GitHub server."""
    async with open_fake_github() as opened:
        yield opened


@asynccontextmanager
async def open_crib(home: Path, hub: FakeGitHub, **settings: Any) -> AsyncGenerator[Crib]:
    """Open a crib with a token for the fake GitHub, and an agent."""
    settings_with_token = Settings(home=home, github_token=TOKEN, github_url=hub.url, **settings)
    async with Crib(settings_with_token, environment=Environment({"HOME": str(home.parent)})) as opened:
        await opened.zoo.create(agent_input("scout"), by="test")
        yield opened


@pytest.fixture
async def crib(tmp_path: Path, hub: FakeGitHub) -> AsyncGenerator[Crib]:
    """Open a crib with a token."""
    async with open_crib(tmp_path / "home", hub) as opened:
        yield opened


def session(name: str, source: Any = "agent", creator: Principal | None = None) -> Principal:
    """Return a session of the agent that runs without asking."""
    return Principal("session", name, source, "bypassPermissions", "scout", name, creator=creator)


async def call(crib: Crib, tool: str, arguments: JsonObject, principal: Principal | None = None) -> CallResult:
    """Call a crew tool for GitHub."""
    with anyio.fail_after(TIMEOUT):
        return await crib.call(
            f"crew/crib_github_{tool}", arguments, principal=principal or crib.owner("web", mode="acceptEdits")
        )


async def result_of(crib: Crib, tool: str, arguments: JsonObject, principal: Principal | None = None) -> Any:
    """Return the structured result of a tool that must succeed."""
    result = await call(crib, tool, arguments, principal)
    assert not result.is_error, result.content
    return result.structured_content


async def error_of(crib: Crib, tool: str, arguments: JsonObject, principal: Principal | None = None) -> str:
    """Return the error text of a tool that must fail; it must not contain the token."""
    result = await call(crib, tool, arguments, principal)
    assert result.is_error, result.structured_content
    error = str(result.content[0]["text"])
    assert TOKEN not in error
    return error


def visible_tools(crib: Crib, principal: Principal) -> set[str]:
    """Return the tools for GitHub that a principal sees."""
    names = (each.ref.tool for each in crib.gate.listing(principal).tools if each.ref.server == "crew")
    return {name for name in names if name.startswith("crib_github_")}


async def test_schedules_do_not_see_the_blocked_github_tools(crib: Crib) -> None:
    tools = {each.ref.tool: each for each in crib.gate.listing(crib.owner("web")).tools}
    assert visible_tools(crib, crib.owner("web")) == READS | SCHEDULER_BLOCKED | OTHERS
    assert visible_tools(crib, crib.owner("ide")) == READS | SCHEDULER_BLOCKED | OTHERS
    assert visible_tools(crib, crib.owner("scheduler")) == READS | OTHERS
    child = session("child", creator=session("scheduled", "scheduler"))
    assert visible_tools(crib, child) == READS | OTHERS
    assert {name for name in READS | SCHEDULER_BLOCKED | OTHERS if tools[name].marks.read_only} == READS
    assert all(tools[name].marks.open_world for name in READS | SCHEDULER_BLOCKED | OTHERS)


async def test_schedule_cannot_call_a_blocked_github_tool(crib: Crib, hub: FakeGitHub) -> None:
    with pytest.raises((NotFound, Denied)):
        await call(crib, "create_issue", ISSUE, session("s", "scheduler"))
    assert hub.writes == []


async def test_github_tools_are_missing_without_a_token_and_why_names_the_setting(tmp_path: Path) -> None:
    async with Crib(Settings(home=tmp_path / "home"), environment=Environment({"HOME": str(tmp_path)})) as crib:
        assert visible_tools(crib, crib.owner("web")) == set()
        explained = await crib.why("crew/crib_github_create_pr", principal=crib.owner("web"))
        assert (explained.verdict, "github_token" in explained.decided_by.reason) == ("unknown", True)


async def test_star_unstar_and_follow_send_the_matching_requests(crib: Crib, hub: FakeGitHub) -> None:
    assert await result_of(crib, "star_repo", {"repo": "acme/app"}) == {"done": "starred", "target": "acme/app"}
    assert await result_of(crib, "unstar_repo", {"repo": "acme/app"}) == {"done": "unstarred", "target": "acme/app"}
    assert await result_of(crib, "follow_user", {"username": "@ada"}) == {"done": "followed", "target": "ada"}
    assert [(each.method, each.path.removeprefix("/api/v3")) for each in hub.writes] == [
        ("PUT", "/user/starred/acme/app"),
        ("DELETE", "/user/starred/acme/app"),
        ("PUT", "/user/following/ada"),
    ]


async def test_repository_is_shown_and_forked(crib: Crib) -> None:
    shown = await result_of(crib, "repo_info", {"repo": "acme/app"})
    assert (shown["fullName"], shown["stars"], shown["isPrivate"]) == ("acme/app", 5, False)
    forked = await result_of(crib, "fork_repo", {"repo": "acme/app", "org": "other"})
    assert (forked["fullName"], forked["isFork"]) == ("other/app", True)
    assert (await result_of(crib, "fork_repo", {"repo": "acme/app"}))["fullName"] == "me/app"


async def test_lists_are_filtered_by_state_and_limit(crib: Crib, hub: FakeGitHub) -> None:
    hub.pulls = [pull(3), pull(2, state="closed"), pull(1)]
    hub.issues = [issue(6, labels=[{"name": "bug"}]), issue(5, state="closed"), pull(4, pull_request={})]
    found = await result_of(crib, "list_prs", {"repo": "acme/app"})
    assert [each["number"] for each in found["pullRequests"]] == [3, 1]
    assert (found["pullRequests"][0]["head"], found["pullRequests"][0]["excerpt"]) == ("acme:fix", "It breaks.")
    found = await result_of(crib, "list_prs", {"repo": "acme/app", "state": "all", "limit": 2})
    assert [each["number"] for each in found["pullRequests"]] == [3, 2]
    found = await result_of(crib, "list_issues", {"repo": "acme/app"})
    assert [(each["number"], each["labels"]) for each in found["issues"]] == [(6, ["bug"])]
    found = await result_of(crib, "list_issues", {"repo": "acme/app", "state": "closed"})
    assert [each["number"] for each in found["issues"]] == [5]


async def test_diff_is_returned_unless_it_is_too_large(crib: Crib, hub: FakeGitHub) -> None:
    found = await result_of(crib, "get_pr_diff", {"repo": "acme/app", "pr_number": 3})
    assert found == {"repo": "acme/app", "number": 3, "diff": hub.diff, "truncated": False}
    assert "too large" in await error_of(crib, "get_pr_diff", {"repo": "acme/app", "pr_number": 406})


async def test_texts_of_agents_are_signed_and_texts_of_persons_are_not(crib: Crib, hub: FakeGitHub) -> None:
    scout = session("s")
    made = await result_of(crib, "create_issue", {**ISSUE, "labels": ["bug"], "requested_by": "@ada\nx"}, scout)
    assert (made["number"], made["labels"]) == (42, ["bug", "toolcrib"])
    await result_of(crib, "create_pr", PULL, scout)
    await result_of(crib, "review_pr", REVIEW, scout)
    await result_of(crib, "comment_on_pr", COMMENT, scout)
    bodies = [each.body["body"] for each in hub.writes if "body" in each.body]
    signed = "\n\n---\nWritten by the agent scout through Toolcrib"
    assert bodies == [
        f"It breaks.{signed}, requested by @ada x.", f"Mended.{signed}.", f"Hm.{signed}.", f"Thanks.{signed}.",
    ]  # fmt: skip
    await result_of(crib, "comment_on_pr", COMMENT)
    assert hub.writes[-1].body == {"body": "Thanks."}


async def test_review_returns_its_state_and_github_errors_are_passed_on(crib: Crib) -> None:
    done = await result_of(crib, "review_pr", {**REVIEW, "event": "APPROVE"})
    assert done == {"state": "APPROVED", "url": "https://hub.example/review"}
    error = await error_of(crib, "review_pr", {**REVIEW, "event": "APPROVE", "pr_number": 1})
    assert "Can not approve your own pull request" in error
    error = await error_of(crib, "create_pr", {**PULL, "head": "nowhere"})
    assert "head invalid" in error
    assert "Hint:" in error


@pytest.mark.parametrize(
    ("tool", "arguments", "limit"),
    [("create_issue", ISSUE, 3), ("create_pr", PULL, 3), ("comment_on_pr", COMMENT, 5), ("review_pr", REVIEW, 5)],
)
async def test_unattended_session_and_its_children_share_a_write_limit(
    crib: Crib, hub: FakeGitHub, tool: str, arguments: JsonObject, limit: int
) -> None:
    first = session("first")
    for _ in range(limit):
        await result_of(crib, tool, arguments, first)
    count = len(hub.writes)
    error = await error_of(crib, tool, arguments, first)
    assert f"{limit} " in error
    assert "without a person" in error
    assert "without a person" in await error_of(crib, tool, arguments, session("child", creator=first))
    assert len(hub.writes) == count
    await result_of(crib, tool, arguments, session("second"))
    await result_of(crib, tool, arguments, session("third", "web"))
    await result_of(crib, tool, arguments)


async def test_comments_and_reviews_share_a_limit_without_failures(crib: Crib, hub: FakeGitHub) -> None:
    principal = session("s")
    for _ in range(3):
        await error_of(crib, "comment_on_pr", {**COMMENT, "repo": "acme/none"}, principal)
    for _ in range(2):
        await result_of(crib, "comment_on_pr", COMMENT, principal)
        await result_of(crib, "review_pr", REVIEW, principal)
    await result_of(crib, "review_pr", REVIEW, principal)
    assert "without a person" in await error_of(crib, "comment_on_pr", COMMENT, principal)


async def test_writes_to_other_owners_are_refused(tmp_path: Path, hub: FakeGitHub) -> None:
    async with open_crib(tmp_path / "home", hub, github_organisations=("acme",), github_label="") as crib:
        assert (await result_of(crib, "create_issue", ISSUE))["labels"] == []
        error = await error_of(crib, "create_issue", {**ISSUE, "repo": "other/app"})
        assert "github_organisations" in error
        await result_of(crib, "repo_info", {"repo": "other/app"})


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
    ("follow_user", {"username": "unknown"}),
]


@pytest.mark.parametrize(("tool", "arguments"), FAILURES)
async def test_every_github_tool_reports_not_found_and_the_retry_time(
    crib: Crib, hub: FakeGitHub, tool: str, arguments: JsonObject
) -> None:
    assert "GitHub did not find this" in await error_of(crib, tool, arguments)
    hub.retry_after = "33"
    assert "in 33 s" in await error_of(crib, tool, arguments)


async def test_rejected_token_error_names_the_setting_and_hides_the_token(tmp_path: Path, hub: FakeGitHub) -> None:
    settings_with_token = Settings(home=tmp_path / "home", github_token="ghp_wrong", github_url=hub.url)
    async with Crib(settings_with_token, environment=Environment({"HOME": str(tmp_path)})) as crib:
        error = await error_of(crib, "repo_info", {"repo": "acme/app"})
        assert "TOOLCRIB_GITHUB_TOKEN" in error
        assert "ghp_wrong" not in error


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
async def test_invalid_arguments_are_never_sent_to_github(
    crib: Crib, hub: FakeGitHub, tool: str, arguments: dict[str, Json]
) -> None:
    await error_of(crib, tool, arguments)
    assert hub.requests == []


async def test_github_token_is_masked_and_cannot_be_changed_by_a_tool(tmp_path: Path, crib: Crib) -> None:
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


def test_github_settings_are_read_from_variables_and_the_file(tmp_path: Path) -> None:
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
    for invalid_line in ('github_url = "ftp://x"', 'github_url = "https://u:p@x"', "github_organisations = [1]"):
        (tmp_path / "toolcrib.toml").write_text(invalid_line, "utf-8")
        assert load_settings(Environment({"TOOLCRIB_HOME": str(tmp_path)})).problems
