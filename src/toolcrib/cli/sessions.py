"""`toolcrib sessions`: conversations of agents, listed, looked at, spoken to, forked, named, exported, deleted.

Above: `main`. Below: `client`, through `crib`; `sessions_show` has the words. Ids may be cut short: the crib knows
which session is meant.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin, common
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="sessions", rich_markup_mode=None)

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The session; its id may be cut short.", show_default=False)
]
_STATES = ("starting", "running", "waiting", "idle", "interrupted", "failed", "closed")


@app.callback()
def sessions(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Conversations of agents: list, show, speak to, interrupt, fork, name, export, delete."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_sessions(
    ctx: typer.Context,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Only those of this directory.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="A", help="Only those of this agent.")] = None,
    state: Annotated[str | None, typer.Option("--state", metavar="S", help=f"Only those {', '.join(_STATES)}.")] = None,
    found: Annotated[bool, typer.Option("--found", help="Also what Claude Code has kept by itself.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")] = 100,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sessions, the one that was last used first."""
    from pathlib import Path

    from toolcrib.cli.sessions_show import show_sessions

    if state is not None and state not in _STATES:
        raise InvalidRequest("cli.usage", f"{state!r} is not a state.", f"Choose one of {', '.join(_STATES)}.")
    place = str(Path(cwd).expanduser().absolute()) if cwd is not None else None
    invocation = begin(ctx, home, as_json)
    listed = ask_crib(
        invocation,
        lambda client: client.sessions.list(cwd=place, agent=agent, state=state, found=found, limit=limit),
    )
    if invocation.as_json:
        output.document(listed)
    else:
        show_sessions(listed)


@app.command("show")
def show(ctx: typer.Context, session: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show one session: what it is, how it stands, what it has used."""
    from toolcrib.cli.sessions_show import show_session

    invocation = begin(ctx, home, as_json)

    async def work(client: "Client") -> "tuple[JsonObject, int]":
        found = await client.sessions.get(session)
        return found, len(await client.permissions.approvals(status="pending", session=str(found["id"])))

    found, waiting = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(found)
    else:
        show_session(found, waiting)


@app.command("send")
def send(
    ctx: typer.Context,
    session: IdArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.", show_default=False)],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show the answer, or go on at once.")] = True,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something in a session, and print what the agent answers; with --json every event is a line."""
    from toolcrib.cli.loop import run

    invocation = begin(ctx, home, as_json)
    if wait:
        if code := run(lambda: _answered(invocation, session, text)):
            raise typer.Exit(code)
        return

    async def work(client: "Client") -> "JsonObject":
        from toolcrib.cli.crib import is_own

        if is_own(invocation.settings):
            message = "No crib runs that could answer after this command has ended."
            raise InvalidRequest("cli.usage", message, "Start one with `toolcrib serve`, or leave out --no-wait.")
        return await client.sessions.send(session, text)

    sent = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(sent)
    else:
        output.line("Sent. Another message is answered first." if sent["queued"] else "Sent.")


async def _answered(invocation: Invocation, session: str, text: str) -> int:
    from toolcrib.cli.chat_plain import PlainChat, prompts
    from toolcrib.cli.crib import kept_up

    chat: PlainChat | None = None

    async def talk(client: "Client") -> None:
        nonlocal chat
        chat = chat or PlainChat(await client.sessions.get(session), prompts(text), as_json=invocation.as_json)
        await chat.run(client)

    await kept_up(invocation.settings, talk)
    return 0 if chat is None else chat.exit_code


@app.command("interrupt")
def interrupt(ctx: typer.Context, session: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """End the answer that a session is giving."""
    invocation = begin(ctx, home, as_json)
    interrupted = ask_crib(invocation, lambda client: client.sessions.interrupt(session))
    if invocation.as_json:
        output.document({"interrupted": interrupted})
    else:
        output.line("Interrupted." if interrupted else "Nothing is to be interrupted: no answer is being given.")


@app.command("fork")
def fork(
    ctx: typer.Context,
    session: IdArgument,
    title: Annotated[str | None, typer.Option("--title", metavar="T", help="What the copy is called.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make another session that begins with all this one has said."""
    from toolcrib.cli.sessions_show import resume_command

    invocation = begin(ctx, home, as_json)
    made = ask_crib(invocation, lambda client: client.sessions.fork(session, title))
    if invocation.as_json:
        output.document(made)
    else:
        output.line(f"Made {made['id']}. Go on with `{resume_command(made)}`.")


@app.command("rename")
def rename(
    ctx: typer.Context,
    session: IdArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it is called.", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a session another title."""
    invocation = begin(ctx, home, as_json)
    changed = ask_crib(invocation, lambda client: client.sessions.change(session, {"title": title}))
    if invocation.as_json:
        output.document(changed)
    else:
        output.line(f"{changed['id']} is now called {changed['title']}.")


@app.command("delete")
def delete(
    ctx: typer.Context,
    session: IdArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a session with all that was said in it."""
    from toolcrib.cli.asking import can_ask, confirm

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.sessions.get(session))
    id, title = str(found["id"]), output.one_line(str(found.get("title") or "without a title"), 60)
    if not yes:
        if not can_ask():
            raise InvalidRequest("cli.usage", f"This deletes {id} ({title}) for good.", "Give --yes to do it unasked.")
        if not confirm(f"Delete {id} ({title}) for good?"):
            raise typer.Exit(1)
    ask_crib(invocation, lambda client: client.sessions.delete(id))
    if invocation.as_json:
        output.document(found)
    else:
        output.line(f"Deleted {id}.")


@app.command("export")
def export(
    ctx: typer.Context,
    session: IdArgument,
    form: Annotated[str, typer.Option("--format", metavar="F", help="jsonl: all events; markdown: to read.")] = "jsonl",
    file: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write a new file instead of standard output.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write out all that was said and done in a session."""
    from toolcrib.cli.sessions_show import FORMATS, export_to

    if form not in FORMATS:
        raise InvalidRequest("cli.usage", f"{form!r} is not a format.", f"Choose {' or '.join(FORMATS)}.")
    invocation = begin(ctx, home, as_json)
    if file is not None:
        path = ask_crib(invocation, lambda client: export_to(client, session, file, form))
        if invocation.as_json:
            output.document({"file": path, "format": form})
        else:
            output.note(f"Wrote {path}.")
        return

    async def work(client: "Client") -> None:
        async for piece in client.sessions.transcript(session, form):
            if form == "jsonl":
                output.raw(piece)
            else:
                output.part(piece.decode("utf-8", "replace"))

    ask_crib(invocation, work)
