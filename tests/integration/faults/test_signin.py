"""Signing in at a server from outside: over REST and from the command line, with a real authorization server."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import anyio.to_thread
import pytest

from e2e.shell import Shell
from integration.faults.guarded import Guarded
from integration.faults.harness import HEALTHY, Bench, call, text_of, until_state
from integration.upstream.oauth.authority import authority, browser, visit
from long_tests import takes_long
from toolcrib.model.errors import Conflict, NotFound, Unavailable
from toolcrib.upstream.oauth import sign_in
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding

pytestmark = [pytest.mark.anyio, takes_long]


@dataclass
class Desk:
    """A crib with a server that wants a sign-in."""

    site: Guarded
    holding: Holding
    client: ApiClient
    bench: Bench


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    bench = Bench(tmp_path)
    async with (
        authority(Guarded()) as site,
        bench.crib(club={"type": "http", "url": site.resource}, healthy=HEALTHY) as (holding, client),
    ):
        assert isinstance(site, Guarded)
        await until_state(client, "club", "needs_auth")
        yield Desk(site, holding, client, bench)


async def signed_in(desk: Desk) -> None:
    """Go the whole way."""
    begun = await desk.client.sign_in("club")
    await visit(begun["url"])
    assert (await desk.client.await_sign_in("club", 20))["state"] == "done"
    await until_state(desk.client, "club", "connected")


async def final_address(url: str) -> str:
    """Where a browser on another machine ends: at an address that it cannot open."""
    async with browser() as program:
        answer = await program.get(url)
        while "/callback" not in (target := answer.headers["location"]):
            answer = await program.get(target)
    return target


async def test_a_server_that_wants_a_sign_in_says_so_with_one_thing_to_do(desk: Desk) -> None:
    found = await desk.client.server("club")
    assert found["state"] == "needs_auth"
    assert "Authentication required" in found["sentence"]
    assert found["action"] == "toolcrib mcp auth club"
    with pytest.raises(Unavailable, match="Authentication required") as failure:
        await call(desk.client, "club/echo")
    assert "toolcrib mcp auth club" in (failure.value.hint or "")
    problem = next(each for each in await desk.client.tool_problems() if each["code"] == "oauth.required")
    assert problem["hint"] == "Run `toolcrib mcp auth club`."


async def test_a_sign_in_goes_through_a_browser_and_the_tools_appear(desk: Desk) -> None:
    begun = await desk.client.sign_in("club")
    assert begun["state"] == "waiting"
    assert (await desk.client.sign_in("club"))["url"] == begun["url"], "one sign-in for all who ask"
    assert (await desk.client.await_sign_in("club", 0))["state"] == "waiting"
    page = await visit(begun["url"])
    assert page.status_code == 200
    assert (await desk.client.await_sign_in("club", 20))["state"] == "done"
    await until_state(desk.client, "club", "connected")
    assert text_of(await call(desk.client, "club/echo")) == "for members"
    assert "club_echo" in {tool["exposedName"] for tool in await desk.client.tools()}


async def test_a_browser_elsewhere_hands_in_where_it_ended(desk: Desk) -> None:
    begun = await desk.client.sign_in("club")
    final = await final_address(begun["url"])
    split = urlsplit(final)
    forged = {name: values[0] for name, values in parse_qs(split.query).items()} | {"state": "forged"}
    with pytest.raises(Unavailable, match="does not belong to the sign-in"):
        await desk.client.answer_sign_in("club", split._replace(query=urlencode(forged)).geturl())
    with pytest.raises(Unavailable, match="does not belong to the sign-in"):
        await desk.client.answer_sign_in("club", final.replace("127.0.0.1", "127.0.0.2"))
    assert (await desk.client.await_sign_in("club", 0))["state"] == "waiting", "a forged answer ends nothing"
    assert (await desk.client.answer_sign_in("club", final))["state"] == "done"
    await until_state(desk.client, "club", "connected")
    with pytest.raises(Unavailable, match="does not belong to the sign-in"):
        await desk.client.answer_sign_in("club", final)


async def test_signed_in_is_signed_in_until_somebody_signs_out_or_wants_it_again(desk: Desk) -> None:
    with pytest.raises(NotFound, match="No sign-in to"):
        await desk.client.await_sign_in("club", 0)
    await signed_in(desk)
    with pytest.raises(Conflict, match="Already signed in"):
        await desk.client.sign_in("club")
    again = await desk.client.sign_in("club", again=True)
    await visit(again["url"])
    assert (await desk.client.await_sign_in("club", 20))["state"] == "done"
    await until_state(desk.client, "club", "connected")
    await desk.client.sign_out("club")
    await until_state(desk.client, "club", "needs_auth")
    with anyio.fail_after(10):
        answer = await call(desk.client, "club/echo")
    assert "Authentication required" in text_of(answer)
    assert desk.site.calls == 0


async def test_who_denies_and_who_never_answers_are_told_apart(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.site.provider.denies = "You are \x1b[31mnot welcome"
    begun = await desk.client.sign_in("club")
    await visit(begun["url"])
    ended = await desk.client.await_sign_in("club", 20)
    assert ended["state"] == "failed"
    assert ended["error"]["message"].startswith("OAuth authentication failed: ")
    assert "\x1b" not in ended["error"]["message"]
    monkeypatch.setattr(sign_in, "SIGN_IN_SECONDS", 0.2)
    begun = await desk.client.sign_in("club")
    ended = await desk.client.await_sign_in("club", 20)
    assert ended["error"]["message"] == "OAuth flow timed out. Please try again."
    assert (await desk.client.server("club"))["state"] == "needs_auth"


async def test_a_hundred_calls_on_a_token_that_is_over_renew_it_once_and_others_go_on(desk: Desk) -> None:
    await signed_in(desk)
    desk.site.provider.access.clear()
    desk.site.provider.refreshes = 0
    answers: list[str] = []

    async def member() -> None:
        answers.append(text_of(await call(desk.client, "club/echo")))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(member)
        for _ in range(5):
            assert (await call(desk.client, "healthy/echo", text="x"))["structuredContent"] == {"text": "x"}
    assert answers == ["for members"] * 100
    assert desk.site.provider.refreshes == 1
    assert desk.site.calls == 100, "no call was made twice"


async def test_a_sign_in_that_is_over_for_good_asks_for_a_new_one(desk: Desk) -> None:
    await signed_in(desk)
    desk.site.provider.access.clear()
    desk.site.token_answer = (400, b'{"error": "invalid_grant"}')
    before = len(desk.site.forms)
    answers: list[str] = []

    async def member() -> None:
        answers.append(text_of(await call(desk.client, "club/echo")))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(member)
    assert len(desk.site.forms) == before + 1
    assert [answer for answer in answers if "toolcrib mcp auth club" not in answer] == []
    found = await until_state(desk.client, "club", "needs_auth")
    assert found["action"] == "toolcrib mcp auth club"
    desk.site.token_answer = None
    await signed_in(desk)
    assert text_of(await call(desk.client, "club/echo")) == "for members"


async def test_no_token_of_a_sign_in_is_shown_anywhere(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    await signed_in(desk)
    await call(desk.client, "club/echo")
    desk.site.provider.access.clear()
    desk.site.token_answer = (500, b"broken")
    answer = await call(desk.client, "club/echo")
    secrets = [*desk.site.provider.refresh, *(form.get("code", "") for form in desk.site.forms)]
    shown = [str(answer), str(await desk.client.servers()), str(await desk.client.audit()), caplog.text]
    assert [secret for secret in secrets if secret and any(secret in each for each in shown)] == []


class Terminal:
    """A person at a terminal on the desk's home; its browser is a program that follows the address."""

    def __init__(self, desk: Desk) -> None:
        folder = desk.bench.user
        opener = folder / "browser"
        opener.write_text('#!/bin/sh\nexec curl --silent --location --output /dev/null "$1"\n', encoding="utf-8")
        opener.chmod(0o755)
        variables = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TOOLCRIB_HOME": str(desk.bench.settings.home)}
        self._shell = Shell(folder, {**variables, "BROWSER": f"{opener} %s", "PYTHONWARNINGS": "error"})

    async def run(self, *words: str) -> tuple[int, str, str]:
        done = await anyio.to_thread.run_sync(lambda: self._shell.run(*words))
        return done.returncode, done.stdout, done.stderr


async def test_the_command_line_signs_in_with_the_persons_browser_and_out_again(desk: Desk) -> None:
    terminal = Terminal(desk)
    code, _, told = await terminal.run("mcp", "test", "club")
    assert code == 5
    assert "Authentication required" in told
    assert "toolcrib mcp auth club" in told
    code, said, told = await terminal.run("mcp", "auth", "club")
    assert (code, said) == (0, 'Signed in to "club".\n'), told
    assert "Open this URL to sign in:" in told
    assert "Opened in your browser." in told
    await until_state(desk.client, "club", "connected")
    code, _, told = await terminal.run("mcp", "auth", "club")
    assert "Already signed in" in told
    assert code == 1
    code, said, _ = await terminal.run("mcp", "reauth", "club")
    assert (code, said) == (0, 'Signed in to "club".\n')
    code, said, _ = await terminal.run("mcp", "unauth", "club")
    assert (code, said) == (0, 'Signed out of "club".\n')
    await until_state(desk.client, "club", "needs_auth")


async def test_the_command_line_takes_the_address_from_a_browser_elsewhere(desk: Desk) -> None:
    terminal = Terminal(desk)
    code, _, told = await terminal.run("mcp", "auth", "club", "--answer", "http://127.0.0.1/callback?state=x&code=y")
    assert code == 3
    assert "No sign-in to" in told
    begun = await desk.client.sign_in("club")
    final = await final_address(begun["url"])
    code, said, told = await terminal.run("mcp", "auth", "club", "--answer", final)
    assert (code, said) == (0, 'Signed in to "club".\n'), told
    await until_state(desk.client, "club", "connected")
