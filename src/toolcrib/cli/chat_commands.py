"""Commands within a chat: lines that begin with `/`. One row of the table is one command.

Above: `chat_live`. Below: the client, and what commands of the same purpose outside of chats show. A command asks first
and prints afterwards, all at once: the person's row is out of the way for no longer than that.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolcrib.cli import output
from toolcrib.cli.arguments import parse_ref
from toolcrib.cli.mcp_show import show_servers
from toolcrib.cli.sessions_show import SHORT_ID, describe_cost, export_to, resume_command, show_sessions
from toolcrib.cli.tools import show_tools
from toolcrib.cli.why import show_explanation
from toolcrib.errors import InvalidRequest
from toolcrib.model.json import JsonObject

if TYPE_CHECKING:
    from toolcrib.cli.chat_live import LiveChat


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """What may be typed behind the name, what it does in words, and what it does."""

    takes: str
    help: str
    run: Callable[["LiveChat", str], Awaitable[None]]


async def run_command(chat: "LiveChat", line: str) -> None:
    """Do what a line that begins with `/` says."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        hint = "/help lists them. Type // to send a message that begins with /."
        raise InvalidRequest("cli.usage", f"There is no command /{name}.", hint)
    given = rest.strip()
    needs = bool(command.takes) and not command.takes.startswith("[")
    if (given and not command.takes) or (needs and not given):
        usage = f"/{name} {command.takes}".rstrip()
        raise InvalidRequest("cli.usage", f"Type `{usage}`.", f"It does this: {command.help}.")
    await command.run(chat, given)


async def _help(chat: "LiveChat", _: str) -> None:
    rows = [(f"/{name} {command.takes}".rstrip(), command.help) for name, command in COMMANDS.items()]
    with chat.screen.aside():
        output.table(("command", "does"), rows)
        output.line("Ctrl-C interrupts the turn, twice it leaves; Ctrl-D on an empty line leaves.")


async def _mcp(chat: "LiveChat", _: str) -> None:
    servers = await chat.client.servers(cwd=str(chat.session["cwd"]))
    inside = [(each["name"], each["state"], str(each["tools"])) for each in chat.view.status.get("servers") or ()]
    with chat.screen.aside():
        show_servers(servers, [])
        if inside:
            output.line("\nin this session:")
            output.table(("server", "state", "tools"), inside)


async def _tools(chat: "LiveChat", words: str) -> None:
    session = chat.session
    found = await chat.client.tools(agent=session.get("agentId"), source=session["source"], query=words or None)
    with chat.screen.aside():
        show_tools(found, as_json=False)


async def _why(chat: "LiveChat", tool: str) -> None:
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
    chat.tell(f"This session is now called {title}.", "faint")


async def _agent(chat: "LiveChat", agent: str) -> None:
    made = await chat.client.sessions.create({"agentId": agent, "cwd": chat.session["cwd"]})
    _go_to(chat, made, f"with agent {agent}")


async def _fork(chat: "LiveChat", title: str) -> None:
    made = await chat.client.sessions.fork(chat.id, title or None)
    _go_to(chat, made, "that begins with all this one has said")


def _go_to(chat: "LiveChat", made: JsonObject, which: str) -> None:
    before = resume_command(chat.session)
    chat.switch(made, int(made["lastSeq"]))
    chat.tell(f"This is a new session {which}: {chat.id[:SHORT_ID]}. The one before stays: `{before}`.")


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
    "mcp": ChatCommand("", "servers and how they stand", _mcp),
    "tools": ChatCommand("[WORDS]", "tools that this session sees, or those that fit some words", _tools),
    "why": ChatCommand("SERVER/TOOL", "what a call of the tool comes to here, and why", _why),
    "mode": ChatCommand("MODE", "change the mode: default, acceptEdits, plan, dontAsk, bypassPermissions", _mode),
    "model": ChatCommand("MODEL", "change the model", _model),
    "agent": ChatCommand("ID", "begin a new session with this agent", _agent),
    "sessions": ChatCommand("", "sessions of this directory", _sessions),
    "fork": ChatCommand("[TITLE]", "go on in a copy of this session", _fork),
    "title": ChatCommand("TITLE", "name this session", _title),
    "cost": ChatCommand("", "what the session has used", _cost),
    "export": ChatCommand("[FILE]", "write the session to a file: Markdown, or events if it ends in .jsonl", _export),
    "help": ChatCommand("", "this list", _help),
    "quit": ChatCommand("", "leave; the session stays", _quit),
}
