"""`/mcp` in a chat: the servers, and the commands that change them.

Trusting a server needs a review of its definition, so it is left to `toolcrib mcp trust`.
"""

import shlex
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from toolcrib.cli import output
from toolcrib.cli.mcp.change import describe_other_names
from toolcrib.cli.mcp.definition import Typed, entry_of
from toolcrib.cli.mcp.show import show_servers, show_status
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject

if TYPE_CHECKING:
    from toolcrib.cli.chat.live import LiveChat

_ADD: Final = "Type `/mcp add NAME URL` or `/mcp add NAME COMMAND ARG…`."


async def run_mcp(chat: "LiveChat", line: str) -> None:
    """List the servers, or run one of the commands."""
    try:
        action, *words = shlex.split(line) or ["list"]
    except ValueError as error:
        raise InvalidRequest("cli.usage", f"Invalid command line: {error}.") from error
    command = _COMMANDS.get(action)
    if command is None:
        near = get_close_matches(action, _COMMANDS, 1)
        hint = f"Did you mean `/mcp {near[0]}`?" if near else f"Choose one of: {', '.join(_COMMANDS)}."
        raise InvalidRequest("cli.usage", f"Unknown command /mcp {action}.", hint)
    if action == "add":
        return await command(chat, words)
    if len(words) > 1 or (action not in _OF_ALL and not words):
        raise InvalidRequest("cli.usage", f"Type `/mcp {action} NAME`.")
    await command(chat, words)


async def _list(chat: "LiveChat", _: list[str]) -> None:
    _show_all(chat, await chat.client.servers(cwd=str(chat.session["cwd"])))


async def _add(chat: "LiveChat", words: list[str]) -> None:
    if len(words) < 2:
        raise InvalidRequest("cli.usage", "The server is missing.", _ADD)
    name, *rest = words
    is_url = len(rest) == 1 and rest[0].lower().startswith(("http://", "https://"))
    entry = entry_of(Typed(url=rest[0]) if is_url else Typed(command=rest[1:] if rest[0] == "--" else rest))
    answer = await chat.client.add_server({"name": name, "scope": "user", **entry})
    chat.tell(f'Added "{name}" to {answer["change"]["file"]}.{describe_other_names(name, answer)}')
    for problem in answer["problems"]:
        chat.tell(f"warning: {problem['message']}")


async def _test(chat: "LiveChat", words: list[str]) -> None:
    chat.tell(f"Connecting to {words[0] if words else 'all servers'}…", "faint")
    if words:
        _show_one(chat, await chat.client.test_server(words[0]))
    else:
        _show_all(chat, await chat.client.test_servers())


async def _reload(chat: "LiveChat", words: list[str]) -> None:
    if words:
        _show_one(chat, await chat.client.reload_server(words[0]))
    else:
        _show_all(chat, await chat.client.reload_servers())


async def _enable(chat: "LiveChat", words: list[str]) -> None:
    _show_change(chat, await chat.client.switch_server(words[0], True), f'Enabled "{words[0]}"')


async def _disable(chat: "LiveChat", words: list[str]) -> None:
    _show_change(chat, await chat.client.switch_server(words[0], False), f'Disabled "{words[0]}"')


async def _remove(chat: "LiveChat", words: list[str]) -> None:
    _show_change(chat, await chat.client.remove_server(words[0]), f'Removed "{words[0]}"')


async def _auth(chat: "LiveChat", words: list[str]) -> None:
    begun = await chat.client.sign_in(words[0])
    if begun["state"] != "waiting":
        return chat.tell(f'"{words[0]}": {begun["state"]}.')
    chat.tell("Open this URL to sign in. The server connects afterwards; /mcp shows its state.")
    with chat.screen.aside():
        output.line(str(begun["url"]))


async def _unauth(chat: "LiveChat", words: list[str]) -> None:
    server = await chat.client.sign_out(words[0])
    chat.tell(f'Signed out of "{server["name"]}".')


def _show_all(chat: "LiveChat", servers: list[JsonObject]) -> None:
    inside = [(each["name"], each["state"], str(each["tools"])) for each in chat.view.status.get("servers") or ()]
    with chat.screen.aside():
        show_servers(servers, [])
        if inside:
            output.line("\nin this session:")
            output.table(("server", "state", "tools"), inside)


def _show_one(chat: "LiveChat", server: JsonObject) -> None:
    with chat.screen.aside():
        show_status(server)


def _show_change(chat: "LiveChat", answer: JsonObject, done: str) -> None:
    change = answer["change"]
    if change["changed"]:
        chat.tell(f"{done} ({change['file']}). `toolcrib mcp remove --undo` undoes the last change.")
    else:
        chat.tell(f"Nothing to change: {change['file']} is already up to date.")


_OF_ALL: Final = frozenset({"list", "test", "reload"})
_COMMANDS: Final[dict[str, Callable[["LiveChat", list[str]], Awaitable[None]]]] = {
    "list": _list,
    "add": _add,
    "test": _test,
    "reload": _reload,
    "enable": _enable,
    "disable": _disable,
    "remove": _remove,
    "auth": _auth,
    "unauth": _unauth,
}
