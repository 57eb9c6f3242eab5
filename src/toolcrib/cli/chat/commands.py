"""Slash commands of a chat, defined in one table.

A command first fetches, then prints everything at once, so that the input row is hidden only briefly.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from toolcrib.cli import output
from toolcrib.cli.arguments import parse_ref
from toolcrib.cli.chat.servers import run_mcp
from toolcrib.cli.sessions.show import SHORT_ID, describe_cost, export_to, resume_command, show_sessions
from toolcrib.cli.tools.commands import show_tools
from toolcrib.cli.why import show_explanation
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject

if TYPE_CHECKING:
    from toolcrib.cli.chat.live import LiveChat


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command: the arguments it takes, its help text, and its handler."""

    takes: str
    help: str
    run: Callable[["LiveChat", str], Awaitable[None]]


async def run_command(chat: "LiveChat", line: str) -> None:
    """Run a line that starts with `/`."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"Did you mean /{near[0]}? " if near else ""
        hint += "Type /help for a list, or // to send a message that starts with /."
        raise InvalidRequest("cli.usage", f"Unknown command /{name}.", hint)
    given = rest.strip()
    needs = bool(command.takes) and not command.takes.startswith("[")
    if (given and not command.takes) or (needs and not given):
        usage = f"/{name} {command.takes}".rstrip()
        raise InvalidRequest("cli.usage", f"Type `{usage}`.", f"Use it to {command.help}.")
    await command.run(chat, given)


async def _help(chat: "LiveChat", _: str) -> None:
    rows = [(f"/{name} {command.takes}".rstrip(), command.help) for name, command in COMMANDS.items()]
    with chat.screen.aside():
        output.table(("command", "does"), rows)
        output.line("Ctrl-C interrupts the turn, twice quits; Ctrl-D on an empty line quits.")


async def _tools(chat: "LiveChat", words: str) -> None:
    session = chat.session
    found = await chat.client.tools(agent=session.get("agentId"), source=session["source"], query=words or None)
    with chat.screen.aside():
        show_tools(found, as_json=False)


async def _explain(chat: "LiveChat", tool: str) -> None:
    ref, session = parse_ref(tool), await chat.client.sessions.get(chat.id)
    asked = {"source": "source", "mode": "mode", "cwd": "cwd", "agent": "agentId", "session": "id"}
    found = await chat.client.permissions.explain(str(ref), **{name: session.get(key) for name, key in asked.items()})
    with chat.screen.aside():
        show_explanation(found)


async def _mode(chat: "LiveChat", mode: str) -> None:
    chat.session = await chat.client.sessions.change(chat.id, {"mode": mode})


async def _model(chat: "LiveChat", model: str) -> None:
    chat.session = await chat.client.sessions.change(chat.id, {"model": model})
    chat.tell(f"Model: {model}.", "faint")


async def _title(chat: "LiveChat", title: str) -> None:
    chat.session = await chat.client.sessions.change(chat.id, {"title": title})
    chat.tell(f"Renamed the session to {title}.", "faint")


async def _agent(chat: "LiveChat", agent: str) -> None:
    made = await chat.client.sessions.create({"agentId": agent, "cwd": chat.session["cwd"]})
    _go_to(chat, made, f"with agent {agent}")


async def _fork(chat: "LiveChat", title: str) -> None:
    made = await chat.client.sessions.fork(chat.id, title or None)
    _go_to(chat, made, "with a copy of this conversation")


def _go_to(chat: "LiveChat", made: JsonObject, which: str) -> None:
    before = resume_command(chat.session)
    chat.switch(made, int(made["lastSeq"]))
    chat.tell(f"New session {which}: {chat.id[:SHORT_ID]}. Return to the previous one with `{before}`.")


async def _sessions(chat: "LiveChat", _: str) -> None:
    found = await chat.client.sessions.list(cwd=str(chat.session["cwd"]))
    with chat.screen.aside():
        show_sessions(found)


async def _cost(chat: "LiveChat", _: str) -> None:
    chat.tell(describe_cost(await chat.client.sessions.get(chat.id)))


async def _export(chat: "LiveChat", file: str) -> None:
    name = file or f"session-{chat.id[:SHORT_ID]}.md"
    path = await export_to(chat.client, chat.id, name, "jsonl" if name.endswith(".jsonl") else "markdown")
    chat.tell(f"Wrote {path}.")


async def _quit(chat: "LiveChat", _: str) -> None:
    chat.leave()


COMMANDS: Final[dict[str, ChatCommand]] = {
    "mcp": ChatCommand(
        "[COMMAND]",
        "list servers; or add, test, reload, enable, disable, remove, auth, unauth one, as in `/mcp test NAME`",
        run_mcp,
    ),
    "tools": ChatCommand("[WORDS]", "list or search the tools of this session", _tools),
    "why": ChatCommand("SERVER/TOOL", "explain the decision for a tool", _explain),
    "mode": ChatCommand(
        "MODE", "change the permission mode: default, acceptEdits, plan, dontAsk, bypassPermissions", _mode
    ),
    "model": ChatCommand("MODEL", "change the model", _model),
    "agent": ChatCommand("ID", "start a new session with this agent", _agent),
    "sessions": ChatCommand("", "list the sessions in this directory", _sessions),
    "fork": ChatCommand("[TITLE]", "continue in a copy of this session", _fork),
    "title": ChatCommand("TITLE", "rename this session", _title),
    "cost": ChatCommand("", "show the cost and token usage", _cost),
    "export": ChatCommand("[FILE]", "export the session: Markdown, or events to a .jsonl file", _export),
    "help": ChatCommand("", "show this help", _help),
    "quit": ChatCommand("", "quit; the session is kept", _quit),
}
