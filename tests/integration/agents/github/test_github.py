"""GitHub over HTTP: requests and results, pages, limits, and faulty hosts."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from integration.agents.github.fake_github import (
    TOKEN,
    FakeGitHub,
    client,
    endless,
    issue,
    open_fake_github,
    open_host,
    pull,
)
from toolcrib.agents.github.github import LONGEST_DIFF, GitHub, Opening
from toolcrib.model.errors import Denied, ToolcribError

pytestmark = pytest.mark.anyio

TIMEOUT = 20.0


@pytest.fixture
async def hub() -> AsyncGenerator[FakeGitHub]:
    """Run a fake GitHub."""
    async with open_fake_github() as opened:
        yield opened


@pytest.fixture
async def github(hub: FakeGitHub) -> AsyncGenerator[GitHub]:
    """Open a client of the fake GitHub."""
    async with client(hub.url) as opened:
        yield opened


async def test_request_carries_the_token(hub: FakeGitHub, github: GitHub) -> None:
    found = await github.repository("acme/app")
    assert (found["fullName"], found["defaultBranch"], found["license"]) == ("acme/app", "trunk", "MIT")
    assert [(each.path, each.token) for each in hub.requests] == [("/api/v3/repos/acme/app", f"Bearer {TOKEN}")]


async def test_list_reads_pages_up_to_its_limit(hub: FakeGitHub, github: GitHub) -> None:
    hub.pulls = [pull(number) for number in range(250, 0, -1)]
    assert [each["number"] for each in await github.pulls("acme/app", "open", 230)] == list(range(250, 20, -1))
    assert len(hub.requests) == 3
    assert len(await github.pulls("acme/app", "open", 5)) == 5
    assert hub.requests[-1].query == {"state": "open", "per_page": "5"}


async def test_issue_list_omits_pull_requests_and_reads_further_pages(hub: FakeGitHub, github: GitHub) -> None:
    hub.issues = [issue(number, **({"pull_request": {}} if number % 2 else {})) for number in range(300, 0, -1)]
    found = await github.issues("acme/app", "all", 60)
    assert [each["number"] for each in found] == list(range(300, 180, -2))


async def test_moved_repository_can_be_read_but_not_written(hub: FakeGitHub, github: GitHub) -> None:
    assert (await github.repository("acme/moved"))["fullName"] == "acme/renamed"
    with pytest.raises(ToolcribError) as caught:
        await github.open_issue("acme/moved", Opening("x", "y"))
    assert caught.value.code == "github.refused"
    assert "crib_github_repo_info" in str(caught.value.hint)
    assert len(hub.writes) == 1


async def test_pull_request_targets_the_default_branch_and_is_labelled(hub: FakeGitHub, github: GitHub) -> None:
    made = await github.open_pull("acme/app", Opening("Fix", "It was broken."), "fix", None)
    assert (made["number"], made["base"], made["labels"]) == (41, "trunk", ["toolcrib"])
    assert [(each.path, each.body) for each in hub.writes] == [
        ("/api/v3/repos/acme/app/pulls", {"title": "Fix", "body": "It was broken.", "head": "fix", "base": "trunk"}),
        ("/api/v3/repos/acme/app/issues/41/labels", {"labels": ["toolcrib"]}),
    ]


async def test_pull_request_is_returned_although_its_label_failed(hub: FakeGitHub, github: GitHub) -> None:
    hub.may_label = False
    made = await github.open_pull("acme/app", Opening("Fix", ""), "fix", "main")
    assert (made["number"], made["base"], made["labels"]) == (41, "main", [])
    assert "toolcrib" in made["notice"]


async def test_issue_has_the_configured_label_once_or_none(hub: FakeGitHub) -> None:
    async with client(hub.url) as github:
        made = await github.open_issue("acme/app", Opening("Bug", "b", ("toolcrib", "bug"), "Bug"))
        assert made["labels"] == ["toolcrib", "bug"]
        assert hub.writes[-1].body["type"] == "Bug"
    async with client(hub.url, label=None) as github:
        assert (await github.open_issue("acme/app", Opening("Bug", "b")))["labels"] == []
        assert "type" not in hub.writes[-1].body


async def test_diff_is_truncated_at_its_limit(hub: FakeGitHub, github: GitHub) -> None:
    assert await github.diff("acme/app", 3) == (hub.diff, False)
    hub.diff = "+x\n" * LONGEST_DIFF
    diff, is_more = await github.diff("acme/app", 3)
    assert (len(diff), is_more) == (LONGEST_DIFF, True)


async def test_writes_are_limited_to_allowed_owners_and_reads_are_not(hub: FakeGitHub) -> None:
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
    (lambda github: github.follow("unknown"), "github.unknown"),
]


@pytest.mark.parametrize(("call", "code"), REFUSED)
async def test_github_errors_have_a_code_and_a_hint(
    github: GitHub, call: Callable[[GitHub], Awaitable[object]], code: str
) -> None:
    with pytest.raises(ToolcribError) as caught:
        await call(github)
    assert caught.value.code == code
    assert caught.value.hint
    assert TOKEN not in caught.value.message


async def test_invalid_token_and_rate_limits_have_different_codes(hub: FakeGitHub, github: GitHub) -> None:
    async with client(hub.url, "wrong") as unauthorized:
        with pytest.raises(ToolcribError) as caught:
            await unauthorized.repository("acme/app")
        assert caught.value.code == "github.token"
    hub.remaining = 0
    with pytest.raises(ToolcribError) as caught:
        await github.repository("acme/app")
    assert caught.value.code == "github.limited"
    hub.remaining, hub.retry_after = 10, "17"
    with pytest.raises(ToolcribError) as caught:
        await github.star("acme/app")
    assert (caught.value.code, "in 17 s" in str(caught.value.hint)) == ("github.limited", True)


async def error_of(base: str) -> ToolcribError:
    """Read a list from this host and return the error."""
    async with client(base) as github:
        with pytest.raises(ToolcribError) as caught, anyio.fail_after(TIMEOUT):
            await github.pulls("acme/app", "open", 300)
    assert TOKEN not in caught.value.message
    return caught.value


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_token_does_not_follow_a_redirect_to_another_host(status: int) -> None:
    async with open_fake_github() as elsewhere:

        async def answer(_: Request) -> Response:
            return RedirectResponse(f"{elsewhere.url}/repos/acme/app/pulls", status)

        async with open_host(answer) as base:
            error = await error_of(base)
        assert (error.code, elsewhere.requests) == ("github.failed", [])


async def test_token_does_not_follow_a_next_page_on_another_host() -> None:
    async with open_fake_github() as elsewhere:

        async def answer(_: Request) -> Response:
            return JSONResponse([pull(1)], headers={"link": f'<{elsewhere.url}/repos/acme/app/pulls>; rel="next"'})

        async with open_host(answer) as base:
            error = await error_of(base)
        assert (error.code, elsewhere.requests) == ("github.failed", [])


async def test_redirect_out_of_the_api_is_refused() -> None:
    requests: list[str] = []

    async def answer(request: Request) -> Response:
        requests.append(request.url.path)
        return RedirectResponse("/login")

    async with open_host(answer) as base:
        assert (await error_of(base)).code == "github.failed"
    assert requests == ["/api/v3/repos/acme/app/pulls"]


async def loops(request: Request) -> Response:
    """Redirect to the same address."""
    return RedirectResponse(str(request.url))


async def no_json(_: Request) -> Response:
    """Return an HTML page."""
    return PlainTextResponse("<html>Sign in</html>")


async def no_list(_: Request) -> Response:
    """Return JSON that is no list."""
    return JSONResponse({"message": "hello"})


async def strange_list(_: Request) -> Response:
    """Return endless pages of invalid items."""
    return JSONResponse([None, 1, "x"], headers={"link": '<?page=2>; rel="next"'})


async def broken(_: Request) -> Response:
    """Return status 500."""
    return PlainTextResponse("boom", 500)


async def too_large(request: Request) -> Response:
    """Return a body that exceeds the limit."""
    return endless(request)


@pytest.mark.parametrize("answer", [loops, no_json, no_list, broken, too_large])
async def test_faulty_host_is_a_github_failure(answer: Callable[[Request], Awaitable[Response]]) -> None:
    async with open_host(answer) as base:
        assert (await error_of(base)).code == "github.failed"


async def test_endless_pages_are_limited() -> None:
    async with open_host(strange_list) as base, client(base) as github:
        with anyio.fail_after(TIMEOUT):
            assert await github.pulls("acme/app", "open", 100) == []


async def test_unreachable_or_hung_host_is_a_github_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_fake_github() as hub:
        gone = hub.url
    assert (await error_of(gone)).code == "github.failed"
    monkeypatch.setattr("toolcrib.agents.github.api.TIMEOUT", 0.3)
    stop = anyio.Event()

    async def hangs(_: Request) -> Response:
        await stop.wait()
        return PlainTextResponse("")

    async with open_host(hangs) as base:
        error = await error_of(base)
        stop.set()
    assert (error.code, "0.3 s" in error.message) == ("github.failed", True)


async def test_fields_of_the_wrong_type_become_empty(hub: FakeGitHub, github: GitHub) -> None:
    hub.issues = [{"state": "open", "number": "7", "labels": ["a", {"name": 3}, None], "user": None, "body": 5}]
    (found,) = await github.issues("acme/app", "open", 5)
    assert (found["number"], found["labels"], found["author"], found["excerpt"]) == (0, ["a"], "", "")
