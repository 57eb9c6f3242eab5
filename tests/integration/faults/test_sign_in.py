"""Sign-in to a server through REST and the command line, with a real authorization server."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import anyio.to_thread
import pytest

from e2e.shell import Shell
from integration.faults.harness import HEALTHY, Machine, call, text_of, until_state
from integration.faults.protected_server import ProtectedServer
from integration.upstream.oauth.authority import authority, browser, visit
from long_tests import takes_long
from toolcrib.model.errors import Conflict, NotFound, Unavailable
from toolcrib.upstream.oauth import sign_in
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding

pytestmark = [pytest.mark.anyio, takes_long]


@dataclass
class Setup:
    """A crib with a server that requires a sign-in."""

    server: ProtectedServer
    holding: Holding
    client: ApiClient
    machine: Machine


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[Setup]:
    machine = Machine(tmp_path)
    async with (
        authority(ProtectedServer()) as server,
        machine.crib(club={"type": "http", "url": server.resource}, healthy=HEALTHY) as (holding, client),
    ):
        assert isinstance(server, ProtectedServer)
        await until_state(client, "club", "needs_auth")
        yield Setup(server, holding, client, machine)


async def complete_sign_in(setup: Setup) -> None:
    """Complete a sign-in in the browser."""
    begun = await setup.client.sign_in("club")
    await visit(begun["url"])
    assert (await setup.client.await_sign_in("club", 20))["state"] == "done"
    await until_state(setup.client, "club", "connected")


async def callback_address(url: str) -> str:
    """Return the redirect target that a browser on another machine cannot open."""
    async with browser() as program:
        answer = await program.get(url)
        while "/callback" not in (target := answer.headers["location"]):
            answer = await program.get(target)
    return target


async def test_server_that_needs_a_sign_in_names_the_command_for_it(setup: Setup) -> None:
    found = await setup.client.server("club")
    assert found["state"] == "needs_auth"
    assert "Authentication required" in found["sentence"]
    assert found["action"] == "toolcrib mcp auth club"
    with pytest.raises(Unavailable, match="Authentication required") as failure:
        await call(setup.client, "club/echo")
    assert "toolcrib mcp auth club" in (failure.value.hint or "")
    problem = next(each for each in await setup.client.tool_problems() if each["code"] == "oauth.required")
    assert problem["hint"] == "Run `toolcrib mcp auth club`."


async def test_completed_sign_in_connects_the_server_and_lists_its_tools(setup: Setup) -> None:
    begun = await setup.client.sign_in("club")
    assert begun["state"] == "waiting"
    assert (await setup.client.sign_in("club"))["url"] == begun["url"], "callers share one pending sign-in"
    assert (await setup.client.await_sign_in("club", 0))["state"] == "waiting"
    page = await visit(begun["url"])
    assert page.status_code == 200
    assert (await setup.client.await_sign_in("club", 20))["state"] == "done"
    await until_state(setup.client, "club", "connected")
    assert text_of(await call(setup.client, "club/echo")) == "for members"
    assert "club_echo" in {tool["exposedName"] for tool in await setup.client.tools()}


async def test_sign_in_accepts_only_its_own_callback_address_once(setup: Setup) -> None:
    begun = await setup.client.sign_in("club")
    final = await callback_address(begun["url"])
    split = urlsplit(final)
    forged = {name: values[0] for name, values in parse_qs(split.query).items()} | {"state": "forged"}
    with pytest.raises(Unavailable, match="does not belong to the sign-in"):
        await setup.client.answer_sign_in("club", split._replace(query=urlencode(forged)).geturl())
    with pytest.raises(Unavailable, match="does not belong to the sign-in"):
        await setup.client.answer_sign_in("club", final.replace("127.0.0.1", "127.0.0.2"))
    assert (await setup.client.await_sign_in("club", 0))["state"] == "waiting", "a forged answer ended the sign-in"
    assert (await setup.client.answer_sign_in("club", final))["state"] == "done"
    await until_state(setup.client, "club", "connected")
    with pytest.raises(Unavailable, match="does not belong to the sign-in"):
        await setup.client.answer_sign_in("club", final)


async def test_sign_in_lasts_until_sign_out_and_can_be_repeated(setup: Setup) -> None:
    with pytest.raises(NotFound, match="No sign-in to"):
        await setup.client.await_sign_in("club", 0)
    await complete_sign_in(setup)
    with pytest.raises(Conflict, match="Already signed in"):
        await setup.client.sign_in("club")
    again = await setup.client.sign_in("club", again=True)
    await visit(again["url"])
    assert (await setup.client.await_sign_in("club", 20))["state"] == "done"
    await until_state(setup.client, "club", "connected")
    await setup.client.sign_out("club")
    await until_state(setup.client, "club", "needs_auth")
    with anyio.fail_after(10):
        answer = await call(setup.client, "club/echo")
    assert "Authentication required" in text_of(answer)
    assert setup.server.calls == 0


async def test_denied_and_timed_out_sign_ins_have_different_errors(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.server.provider.denies = "You are \x1b[31mnot welcome"
    begun = await setup.client.sign_in("club")
    await visit(begun["url"])
    ended = await setup.client.await_sign_in("club", 20)
    assert ended["state"] == "failed"
    assert ended["error"]["message"].startswith("OAuth authentication failed: ")
    assert "\x1b" not in ended["error"]["message"]
    monkeypatch.setattr(sign_in, "SIGN_IN_SECONDS", 0.2)
    begun = await setup.client.sign_in("club")
    ended = await setup.client.await_sign_in("club", 20)
    assert ended["error"]["message"] == "OAuth flow timed out. Please try again."
    assert (await setup.client.server("club"))["state"] == "needs_auth"


async def test_concurrent_calls_with_an_expired_token_refresh_it_once(setup: Setup) -> None:
    await complete_sign_in(setup)
    setup.server.provider.access.clear()
    setup.server.provider.refreshes = 0
    answers: list[str] = []

    async def call_club() -> None:
        answers.append(text_of(await call(setup.client, "club/echo")))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(call_club)
        for _ in range(5):
            assert (await call(setup.client, "healthy/echo", text="x"))["structuredContent"] == {"text": "x"}
    assert answers == ["for members"] * 100
    assert setup.server.provider.refreshes == 1
    assert setup.server.calls == 100, "a call was sent twice"


async def test_rejected_refresh_token_requires_a_new_sign_in(setup: Setup) -> None:
    await complete_sign_in(setup)
    setup.server.provider.access.clear()
    setup.server.token_answer = (400, b'{"error": "invalid_grant"}')
    before = len(setup.server.forms)
    answers: list[str] = []

    async def call_club() -> None:
        answers.append(text_of(await call(setup.client, "club/echo")))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(call_club)
    assert len(setup.server.forms) == before + 1
    assert [answer for answer in answers if "toolcrib mcp auth club" not in answer] == []
    found = await until_state(setup.client, "club", "needs_auth")
    assert found["action"] == "toolcrib mcp auth club"
    setup.server.token_answer = None
    await complete_sign_in(setup)
    assert text_of(await call(setup.client, "club/echo")) == "for members"


async def test_sign_in_tokens_appear_in_no_result_listing_or_log(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await complete_sign_in(setup)
    await call(setup.client, "club/echo")
    setup.server.provider.access.clear()
    setup.server.token_answer = (500, b"broken")
    answer = await call(setup.client, "club/echo")
    secrets = [*setup.server.provider.refresh, *(form.get("code", "") for form in setup.server.forms)]
    shown = [str(answer), str(await setup.client.servers()), str(await setup.client.audit()), caplog.text]
    assert [secret for secret in secrets if secret and any(secret in each for each in shown)] == []


class Terminal:
    """Runs commands on the home of the crib; its browser is a program that opens the address."""

    def __init__(self, setup: Setup) -> None:
        folder = setup.machine.user
        opener = folder / "browser"
        opener.write_text('#!/bin/sh\nexec curl --silent --location --output /dev/null "$1"\n', encoding="utf-8")
        opener.chmod(0o755)
        variables = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TOOLCRIB_HOME": str(setup.machine.settings.home)}
        self._shell = Shell(folder, {**variables, "BROWSER": f"{opener} %s", "PYTHONWARNINGS": "error"})

    async def run(self, *words: str) -> tuple[int, str, str]:
        done = await anyio.to_thread.run_sync(lambda: self._shell.run(*words))
        return done.returncode, done.stdout, done.stderr


async def test_auth_commands_sign_in_with_the_browser_and_sign_out(setup: Setup) -> None:
    terminal = Terminal(setup)
    code, _, stderr = await terminal.run("mcp", "test", "club")
    assert code == 5
    assert "Authentication required" in stderr
    assert "toolcrib mcp auth club" in stderr
    code, stdout, stderr = await terminal.run("mcp", "auth", "club")
    assert (code, stdout) == (0, 'Signed in to "club".\n'), stderr
    assert "Open this URL to sign in:" in stderr
    assert "Opened in your browser." in stderr
    await until_state(setup.client, "club", "connected")
    code, _, stderr = await terminal.run("mcp", "auth", "club")
    assert "Already signed in" in stderr
    assert code == 1
    code, stdout, _ = await terminal.run("mcp", "reauth", "club")
    assert (code, stdout) == (0, 'Signed in to "club".\n')
    code, stdout, _ = await terminal.run("mcp", "unauth", "club")
    assert (code, stdout) == (0, 'Signed out of "club".\n')
    await until_state(setup.client, "club", "needs_auth")


async def test_auth_command_accepts_the_callback_address_of_another_browser(setup: Setup) -> None:
    terminal = Terminal(setup)
    code, _, stderr = await terminal.run("mcp", "auth", "club", "--answer", "http://127.0.0.1/callback?state=x&code=y")
    assert code == 3
    assert "No sign-in to" in stderr
    begun = await setup.client.sign_in("club")
    final = await callback_address(begun["url"])
    code, stdout, stderr = await terminal.run("mcp", "auth", "club", "--answer", final)
    assert (code, stdout) == (0, 'Signed in to "club".\n'), stderr
    await until_state(setup.client, "club", "connected")
