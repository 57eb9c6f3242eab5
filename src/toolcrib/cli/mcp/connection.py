"""`toolcrib mcp test|reload|auth|reauth|unauth`: commands for the connection of a server."""

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.mcp.show import describe_state, show_servers, show_status
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import ToolcribError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The server.", show_default=False, autocompletion=names_of("server"))
]
AllOrName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="The server; all servers if omitted.",
        show_default=False,
        autocompletion=names_of("server"),
    ),
]
AnswerOption = Annotated[
    str | None,
    typer.Option("--answer", metavar="URL", help="The final URL of a browser on another machine."),
]
BrowserOption = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the URL in a browser.")]

_WAIT = 20
_CANCEL_SECONDS = 2.0
_TELL_SECONDS = 5.0
"""Seconds between two messages about servers that have not responded."""


def test(ctx: typer.Context, name: AllOrName = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Connect to a server and show what it offers; without a name, to all trusted servers."""
    invocation = begin(ctx, home, as_json)
    if name is None:
        work = _test_each if not invocation.as_json else _test_all
        _show_all(invocation, ask_crib(invocation, work))
        return
    server, findings = ask_crib(invocation, lambda client: _test(client, name))
    if not invocation.as_json:
        show_status(server)
        output.warn_all(findings)
    if server["state"] != "connected":
        error = _failure(server)
        output.failure(error, as_json=invocation.as_json, result=server)
        raise typer.Exit(error.exit_code)
    if invocation.as_json:
        output.document(server)


async def _test(client: "ApiClient", name: str) -> "tuple[JsonObject, list[JsonObject]]":
    """Return the server after connecting it, and the findings in the tools that it offers."""
    async with _waiting_for(client, {name: name}):
        server = await client.test_server(name)
    tools = await client.tools(server=server["alias"]) if server["state"] == "connected" else []
    return server, [{"message": f"{tool['ref']}: {each['message']}"} for tool in tools for each in tool["problems"]]


async def _test_all(client: "ApiClient") -> "list[JsonObject]":
    return await client.test_servers()


async def _test_each(client: "ApiClient") -> "list[JsonObject]":
    """Test all servers at once, and report each when it is done, so that a slow one costs only its own time."""
    import anyio

    begun = anyio.current_time()
    waiting = {server["alias"]: str(server["name"]) for server in await client.servers() if _is_startable(server)}

    async def test_one(alias: str) -> None:
        server = await client.test_server(alias)
        del waiting[alias]
        output.note(f"{server['name']}: {describe_state(server)} ({anyio.current_time() - begun:.1f} s)")

    async with _waiting_for(client, waiting), anyio.create_task_group() as tests:
        for alias in list(waiting):
            tests.start_soon(test_one, alias)
    return await client.servers()


@asynccontextmanager
async def _waiting_for(client: "ApiClient", waiting: "Mapping[str, str]") -> "AsyncGenerator[None]":
    """Report the servers that have not responded; cancel their attempts if the command is interrupted."""
    import anyio

    begun = anyio.current_time()

    async def report_waiting() -> None:
        while True:
            await anyio.sleep(_TELL_SECONDS)
            seconds = anyio.current_time() - begun
            output.note(f"Waiting for {', '.join(waiting.values())} ({seconds:.0f} s). Press Ctrl-C to stop.")

    try:
        async with anyio.create_task_group() as teller:
            teller.start_soon(report_waiting)
            yield
            teller.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # the reporting task never fails
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_CANCEL_SECONDS, shield=True), suppress(ToolcribError):
            for alias in list(waiting):
                await client.cancel_test(alias)
        raise


def _is_startable(server: "JsonObject") -> bool:
    return server["state"] in ("not_checked", "connecting", "connected", "needs_auth", "failed")


def reload(ctx: typer.Context, name: AllOrName = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Reconnect to a server; without a name, re-read all files and reconnect only what changed."""
    invocation = begin(ctx, home, as_json)
    if name is None:
        _show_all(invocation, ask_crib(invocation, lambda client: client.reload_servers()))
        return
    server = ask_crib(invocation, lambda client: client.reload_server(name))
    invocation.show(server, show_status)


def auth(
    ctx: typer.Context,
    name: NameArgument,
    answer: AnswerOption = None,
    browser: BrowserOption = True,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign in to a server with a browser, here or on another machine."""
    sign_in(begin(ctx, home, as_json), name, answer, browser)


def reauth(
    ctx: typer.Context,
    name: NameArgument,
    answer: AnswerOption = None,
    browser: BrowserOption = True,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign in to a server again, replacing the current sign-in."""
    sign_in(begin(ctx, home, as_json), name, answer, browser, again=True)


def unauth(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Sign out of a server."""
    invocation = begin(ctx, home, as_json)
    server = ask_crib(invocation, lambda client: client.sign_out(name))
    invocation.confirm(server, f'Signed out of "{server["name"]}".')


def sign_in(
    invocation: Invocation, name: str, answer: str | None = None, browser: bool = True, *, again: bool = False
) -> None:
    """Print the sign-in address, open a browser, and wait until it is done."""

    async def work(client: "ApiClient") -> "JsonObject":
        if answer is not None:
            return await client.answer_sign_in(name, answer)
        begun = await client.sign_in(name, again=again)
        await _show_address(name, begun, browser)
        while begun["state"] == "waiting":
            begun = await client.await_sign_in(name, _WAIT)
        return begun

    ended = ask_crib(invocation, work)
    if ended["state"] == "failed":
        error = ended["error"]
        failed = Unavailable(error["code"], error["message"], error["hint"])
        output.failure(failed, as_json=invocation.as_json, result=ended)
        raise typer.Exit(failed.exit_code)
    invocation.confirm(ended, f'Signed in to "{name}".')


async def _show_address(name: str, begun: "JsonObject", browser: bool) -> None:
    from toolcrib.base.settings import Environment
    from toolcrib.cli.browser import open_console

    output.note(f"Open this URL to sign in:\n{begun['url']}\n")
    if browser and await open_console(str(begun["url"]), Environment.current()):
        output.note("Opened in your browser.")
    output.note(f"If the browser is on another machine, it ends at {begun['redirectUri']}…, which does not load there.")
    output.note(f"Copy that URL and run: toolcrib mcp auth {name} --answer 'URL'")


def _show_all(invocation: Invocation, servers: "list[JsonObject]") -> None:
    if invocation.as_json:
        output.document(servers)
    else:
        show_servers(servers, ())
    wrong = [server["name"] for server in servers if server["state"] in ("failed", "needs_auth")]
    if wrong:
        output.note(f"Not connected: {', '.join(wrong)}.")


def _failure(server: "JsonObject") -> ToolcribError:
    name, action = server["name"], server.get("action")
    hint = f"Run `{action}`." if action else None
    if server["state"] == "needs_auth":
        return Unavailable("oauth.required", str(server.get("lastError") or server["sentence"]), hint)
    reason = server.get("lastError") or server["sentence"]
    return Unavailable("server.failed", f'Failed to connect to "{name}": {reason}', hint)
