"""`toolcrib mcp test|reload|auth|reauth|unauth`: what a person does to the link of a server.

Above: `mcp` mounts these. Below: `client`, through `crib`; `mcp_show` has the words.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.mcp_show import show_servers, show_standing
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.errors import ToolcribError, Unavailable

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The server.", show_default=False)]
AllOrName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The server; without one, all.", show_default=False)
]
AnswerOption = Annotated[
    str | None,
    typer.Option("--answer", metavar="URL", help="The address that a browser on another machine ended at."),
]
BrowserOption = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the address in a browser.")]

_WAIT = 20


def test(ctx: typer.Context, name: AllOrName = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Connect to a server now and tell what it offers; without a name, to all that may be."""
    invocation = begin(ctx, home, as_json)
    if name is None:
        _show_all(invocation, ask_crib(invocation, lambda client: client.test_servers()))
        return
    server = ask_crib(invocation, lambda client: client.test_server(name))
    if invocation.as_json:
        output.document(server)
    else:
        show_standing(server)
    if server["state"] != "connected":
        raise _failure(server)


def reload(ctx: typer.Context, name: AllOrName = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Open the link of a server anew; without a name, read all files again and touch only what changed."""
    invocation = begin(ctx, home, as_json)
    if name is None:
        _show_all(invocation, ask_crib(invocation, lambda client: client.reload_servers()))
        return
    server = ask_crib(invocation, lambda client: client.reload_server(name))
    if invocation.as_json:
        output.document(server)
    else:
        show_standing(server)


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
    """Sign in to a server again, in place of the sign-in there is."""
    sign_in(begin(ctx, home, as_json), name, answer, browser, again=True)


def unauth(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Forget the sign-in at a server."""
    invocation = begin(ctx, home, as_json)
    server = ask_crib(invocation, lambda client: client.sign_out(name))
    if invocation.as_json:
        output.document(server)
    else:
        output.line(f'Forgot the sign-in at "{server["name"]}".')


def sign_in(
    invocation: Invocation, name: str, answer: str | None = None, browser: bool = True, *, again: bool = False
) -> None:
    """Sign in with a browser: show the address, and wait until it is done."""

    async def work(client: "Client") -> "JsonObject":
        if answer is not None:
            return await client.answer_sign_in(name, answer)
        begun = await client.sign_in(name, again=again)
        await _show_address(name, begun, browser)
        while begun["state"] == "waiting":
            begun = await client.await_sign_in(name, _WAIT)
        return begun

    ended = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(ended)
    if ended["state"] == "failed":
        error = ended["error"]
        raise Unavailable(error["code"], error["message"], error["hint"])
    if not invocation.as_json:
        output.line(f'Signed in to "{name}".')


async def _show_address(name: str, begun: "JsonObject", browser: bool) -> None:
    from toolcrib.cli.browser import open_console
    from toolcrib.settings import Environment

    output.note(f"Open this address to sign in:\n{begun['url']}\n")
    if browser and await open_console(str(begun["url"]), Environment.current()):
        output.note("It was opened in your browser.")
    output.note(
        f"If the browser is on another machine, it ends at {begun['redirectUri']}…, which cannot be shown there."
    )
    output.note(f"Copy that address and run: toolcrib mcp auth {name} --answer 'ADDRESS'")


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
