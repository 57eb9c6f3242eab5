"""GitHub over HTTP: what is asked and given, pages, limits, and hosts that misbehave."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from integration.agents.github.hub import TOKEN, Hub, client, endless, issue, open_host, open_hub, pull
from toolcrib.agents.github.github import LONGEST_DIFF, GitHub, Opening
from toolcrib.model.errors import Denied, ToolcribError

pytestmark = pytest.mark.anyio

SOON = 20.0


@pytest.fixture
async def hub() -> AsyncGenerator[Hub]:
    """A running GitHub."""
    async with open_hub() as opened:
        yield opened


@pytest.fixture
async def github(hub: Hub) -> AsyncGenerator[GitHub]:
    """The desk that speaks to it."""
    async with client(hub.url) as opened:
        yield opened


async def test_a_request_carries_the_token_and_the_version_of_the_api(hub: Hub, github: GitHub) -> None:
    found = await github.repository("acme/app")
    assert (found["fullName"], found["defaultBranch"], found["license"]) == ("acme/app", "trunk", "MIT")
    assert [(each.path, each.token) for each in hub.asked] == [("/api/v3/repos/acme/app", f"Bearer {TOKEN}")]


async def test_lists_go_over_pages_until_there_are_enough(hub: Hub, github: GitHub) -> None:
    hub.pulls = [pull(number) for number in range(250, 0, -1)]
    assert [each["number"] for each in await github.pulls("acme/app", "open", 230)] == list(range(250, 20, -1))
    assert len(hub.asked) == 3
    assert len(await github.pulls("acme/app", "open", 5)) == 5
    assert hub.asked[-1].query == {"state": "open", "per_page": "5"}


async def test_pull_requests_among_issues_are_left_out_and_made_up_for(hub: Hub, github: GitHub) -> None:
    hub.issues = [issue(number, **({"pull_request": {}} if number % 2 else {})) for number in range(300, 0, -1)]
    found = await github.issues("acme/app", "all", 60)
    assert [each["number"] for each in found] == list(range(300, 180, -2))


async def test_a_moved_repository_is_read_where_it_is_and_not_written_to(hub: Hub, github: GitHub) -> None:
    assert (await github.repository("acme/moved"))["fullName"] == "acme/renamed"
    with pytest.raises(ToolcribError) as caught:
        await github.open_issue("acme/moved", Opening("x", "y"))
    assert caught.value.code == "github.refused"
    assert "crib_github_repo_info" in str(caught.value.hint)
    assert len(hub.writes) == 1


async def test_a_pull_request_goes_to_the_default_branch_and_gets_the_label(hub: Hub, github: GitHub) -> None:
    made = await github.open_pull("acme/app", Opening("Fix", "It was broken."), "fix", None)
    assert (made["number"], made["base"], made["labels"]) == (41, "trunk", ["toolcrib"])
    assert [(each.path, each.body) for each in hub.writes] == [
        ("/api/v3/repos/acme/app/pulls", {"title": "Fix", "body": "It was broken.", "head": "fix", "base": "trunk"}),
        ("/api/v3/repos/acme/app/issues/41/labels", {"labels": ["toolcrib"]}),
    ]


async def test_a_pull_request_stands_although_its_label_could_not_be_put_on(hub: Hub, github: GitHub) -> None:
    hub.may_label = False
    made = await github.open_pull("acme/app", Opening("Fix", ""), "fix", "main")
    assert (made["number"], made["base"], made["labels"]) == (41, "main", [])
    assert "toolcrib" in made["notice"]


async def test_an_issue_has_the_label_once_and_none_where_there_is_none(hub: Hub) -> None:
    async with client(hub.url) as github:
        made = await github.open_issue("acme/app", Opening("Bug", "b", ("toolcrib", "bug"), "Bug"))
        assert made["labels"] == ["toolcrib", "bug"]
        assert hub.writes[-1].body["type"] == "Bug"
    async with client(hub.url, label=None) as github:
        assert (await github.open_issue("acme/app", Opening("Bug", "b")))["labels"] == []
        assert "type" not in hub.writes[-1].body


async def test_a_diff_is_cut_at_its_bound(hub: Hub, github: GitHub) -> None:
    assert await github.diff("acme/app", 3) == (hub.diff, False)
    hub.diff = "+x\n" * LONGEST_DIFF
    diff, is_more = await github.diff("acme/app", 3)
    assert (len(diff), is_more) == (LONGEST_DIFF, True)


async def test_with_allowed_owners_nothing_is_written_elsewhere_and_everything_read(hub: Hub) -> None:
    async with client(hub.url, owners=["ACME"]) as github:
        await github.star("acme/app")
        for write in (
            github.star("other/app"),
            github.unstar("other/app"),
            github.follow("ada"),
            github.fork("other/app"),
            github.fork("acme/app", "other"),
            github.open_issue("other/app", Opening("x", "y")),
            github.open_pull("other/app", Opening("x", "y"), "fix", None),
            github.review("other/app", 2, "COMMENT", "x"),
            github.comment("other/app", 2, "x"),
        ):
            with pytest.raises(Denied) as caught:
                await write
            assert caught.value.code == "github.owner"
            assert "acme" in caught.value.message
        assert len(hub.writes) == 1
        assert (await github.repository("other/app"))["fullName"] == "other/app"
    async with client(hub.url, owners=[]) as github:
        with pytest.raises(Denied):
            await github.star("acme/app")


REFUSED: list[tuple[Callable[[GitHub], Awaitable[object]], str]] = [
    (lambda github: github.repository("acme/none"), "github.unknown"),
    (lambda github: github.repository("not a repo"), "github.invalid"),
    (lambda github: github.open_issue("acme/old", Opening("x", "y")), "github.forbidden"),
    (lambda github: github.open_issue("acme/app", Opening("gone", "y")), "github.unknown"),
    (lambda github: github.open_pull("acme/app", Opening("x", "y"), "nowhere", "main"), "github.refused"),
    (lambda github: github.review("acme/app", 1, "APPROVE", ""), "github.refused"),
    (lambda github: github.diff("acme/app", 406), "github.refused"),
    (lambda github: github.follow("nobody"), "github.unknown"),
]


@pytest.mark.parametrize(("call", "code"), REFUSED)
async def test_what_github_refuses_says_why_and_what_next(
    github: GitHub, call: Callable[[GitHub], Awaitable[object]], code: str
) -> None:
    with pytest.raises(ToolcribError) as caught:
        await call(github)
    assert caught.value.code == code
    assert caught.value.hint
    assert TOKEN not in caught.value.message


async def test_a_wrong_token_and_used_up_limits_are_told_apart(hub: Hub, github: GitHub) -> None:
    async with client(hub.url, "wrong") as stranger:
        with pytest.raises(ToolcribError) as caught:
            await stranger.repository("acme/app")
        assert caught.value.code == "github.token"
    hub.remaining = 0
    with pytest.raises(ToolcribError) as caught:
        await github.repository("acme/app")
    assert caught.value.code == "github.limited"
    hub.remaining, hub.retry_after = 10, "17"
    with pytest.raises(ToolcribError) as caught:
        await github.star("acme/app")
    assert (caught.value.code, "in 17 s" in str(caught.value.hint)) == ("github.limited", True)


async def failing(base: str) -> ToolcribError:
    """How reading a list there fails."""
    async with client(base) as github:
        with pytest.raises(ToolcribError) as caught, anyio.fail_after(SOON):
            await github.pulls("acme/app", "open", 300)
    assert TOKEN not in caught.value.message
    return caught.value


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_the_token_does_not_follow_a_redirect_to_another_host(status: int) -> None:
    async with open_hub() as elsewhere:

        async def answer(_: Request) -> Response:
            return RedirectResponse(f"{elsewhere.url}/repos/acme/app/pulls", status)

        async with open_host(answer) as base:
            error = await failing(base)
        assert (error.code, elsewhere.asked) == ("github.failed", [])


async def test_the_token_does_not_follow_a_next_page_elsewhere() -> None:
    async with open_hub() as elsewhere:

        async def answer(_: Request) -> Response:
            return JSONResponse([pull(1)], headers={"link": f'<{elsewhere.url}/repos/acme/app/pulls>; rel="next"'})

        async with open_host(answer) as base:
            error = await failing(base)
        assert (error.code, elsewhere.asked) == ("github.failed", [])


async def test_a_redirect_out_of_the_api_of_the_same_host_is_refused() -> None:
    asked: list[str] = []

    async def answer(request: Request) -> Response:
        asked.append(request.url.path)
        return RedirectResponse("/login")

    async with open_host(answer) as base:
        assert (await failing(base)).code == "github.failed"
    assert asked == ["/api/v3/repos/acme/app/pulls"]


async def loops(request: Request) -> Response:
    """Redirects to itself."""
    return RedirectResponse(str(request.url))


async def no_json(_: Request) -> Response:
    """A page for people."""
    return PlainTextResponse("<html>Sign in</html>")


async def no_list(_: Request) -> Response:
    """JSON, but not what was asked for."""
    return JSONResponse({"message": "hello"})


async def strange_list(_: Request) -> Response:
    """Endless pages of nothing."""
    return JSONResponse([None, 1, "x"], headers={"link": '<?page=2>; rel="next"'})


async def broken(_: Request) -> Response:
    """A failure of its own."""
    return PlainTextResponse("boom", 500)


async def too_large(request: Request) -> Response:
    """More than anybody wants."""
    return endless(request)


@pytest.mark.parametrize("answer", [loops, no_json, no_list, broken, too_large])
async def test_a_host_that_misbehaves_is_one_failure(answer: Callable[[Request], Awaitable[Response]]) -> None:
    async with open_host(answer) as base:
        assert (await failing(base)).code == "github.failed"


async def test_pages_without_end_are_left_after_some() -> None:
    async with open_host(strange_list) as base, client(base) as github:
        with anyio.fail_after(SOON):
            assert await github.pulls("acme/app", "open", 100) == []


async def test_a_host_that_is_not_there_or_does_not_answer_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_hub() as hub:
        gone = hub.url
    assert (await failing(gone)).code == "github.failed"
    monkeypatch.setattr("toolcrib.agents.github.api.TIMEOUT", 0.3)
    stop = anyio.Event()

    async def hangs(_: Request) -> Response:
        await stop.wait()
        return PlainTextResponse("")

    async with open_host(hangs) as base:
        error = await failing(base)
        stop.set()
    assert (error.code, "0.3 s" in error.message) == ("github.failed", True)


async def test_what_others_wrote_wrongly_becomes_empty_fields(hub: Hub, github: GitHub) -> None:
    hub.issues = [{"state": "open", "number": "7", "labels": ["a", {"name": 3}, None], "user": None, "body": 5}]
    (found,) = await github.issues("acme/app", "open", 5)
    assert (found["number"], found["labels"], found["author"], found["excerpt"]) == (0, ["a"], "", "")
