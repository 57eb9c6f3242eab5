"""`toolcrib sessions`: list, show, message, fork, rename, export and delete sessions.

Ids may be abbreviated; the crib resolves them.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, Invocation, JsonOption, begin, common
from toolcrib.cli.sessions import replays
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="sessions", rich_markup_mode=None, cls=CommandGroup)

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The session; a unique prefix of its id is enough.",
        show_default=False,
        autocompletion=names_of("session"),
    ),
]
_STATES = ("starting", "running", "waiting", "idle", "interrupted", "failed", "closed")


@app.callback()
def sessions(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Manage agent sessions."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_sessions(
    ctx: typer.Context,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Only sessions in this directory.")] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="A", help="Only sessions of this agent.", autocompletion=names_of("agent")),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="S", help=f"Only sessions in this state: {', '.join(_STATES)}.")
    ] = None,
    found: Annotated[
        bool, typer.Option("--found", help="Include conversations that Claude Code keeps itself.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Maximum number of sessions.")
    ] = 100,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sessions, most recently used first."""
    from pathlib import Path

    from toolcrib.cli.sessions.show import show_sessions

    if state is not None and state not in _STATES:
        raise InvalidRequest("cli.usage", f"{state!r} is not a state.", f"Choose one of {', '.join(_STATES)}.")
    place = str(Path(cwd).expanduser().absolute()) if cwd is not None else None
    invocation = begin(ctx, home, as_json)
    listed = ask_crib(
        invocation,
        lambda client: client.sessions.list(cwd=place, agent=agent, state=state, found=found, limit=limit),
    )
    invocation.show(listed, show_sessions)


@app.command("show")
def show(ctx: typer.Context, session: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a session: state, settings and usage."""
    from toolcrib.cli.sessions.show import show_session

    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "tuple[JsonObject, int]":
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
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.", show_default=False)],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer.")] = True,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a message and print the answer; with --json, one event per line."""
    from toolcrib.cli.loop import run

    invocation = begin(ctx, home, as_json)
    if wait:
        if code := run(lambda: _send_and_wait(invocation, session, text)):
            raise typer.Exit(code)
        return

    async def work(client: "ApiClient") -> "JsonObject":
        from toolcrib.cli.crib import is_own

        if is_own(invocation.settings):
            message = "No crib is running that could answer after this command exits."
            raise InvalidRequest("cli.usage", message, "Start one with `toolcrib serve`, or omit --no-wait.")
        return await client.sessions.send(session, text)

    sent = ask_crib(invocation, work)
    invocation.confirm(sent, "Queued. Another message is answered first." if sent["queued"] else "Sent.")


async def _send_and_wait(invocation: Invocation, session: str, text: str) -> int:
    from toolcrib.cli.chat.plain import PlainChat, prompts
    from toolcrib.cli.crib import keep_running

    chat: PlainChat | None = None

    async def run_chat(client: "ApiClient") -> None:
        nonlocal chat
        chat = chat or PlainChat(await client.sessions.get(session), prompts(text), as_json=invocation.as_json)
        await chat.run(client)

    await keep_running(invocation.settings, run_chat)
    return 0 if chat is None else chat.exit_code


@app.command("interrupt")
def interrupt(ctx: typer.Context, session: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Interrupt the running turn of a session."""
    invocation = begin(ctx, home, as_json)
    interrupted = ask_crib(invocation, lambda client: client.sessions.interrupt(session))
    if invocation.as_json:
        output.document({"interrupted": interrupted})
    else:
        output.line("Interrupted." if interrupted else "Nothing to interrupt. The session is not working.")


@app.command("fork")
def fork(
    ctx: typer.Context,
    session: IdArgument,
    title: Annotated[str | None, typer.Option("--title", metavar="T", help="The title of the copy.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a session, with its conversation so far."""
    from toolcrib.cli.sessions.show import resume_command

    invocation = begin(ctx, home, as_json)
    made = ask_crib(invocation, lambda client: client.sessions.fork(session, title))
    invocation.confirm(made, f"Created {made['id']}. Continue with `{resume_command(made)}`.")


@app.command("rename")
def rename(
    ctx: typer.Context,
    session: IdArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the title of a session."""
    invocation = begin(ctx, home, as_json)
    changed = ask_crib(invocation, lambda client: client.sessions.change(session, {"title": title}))
    invocation.confirm(changed, f"Renamed {changed['id']} to {changed['title']}.")


@app.command("delete")
def delete(
    ctx: typer.Context,
    session: IdArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a session and its conversation."""
    from toolcrib.cli.asking import can_ask, confirm

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.sessions.get(session))
    id, title = str(found["id"]), output.one_line(str(found.get("title") or "untitled"), 60)
    if not yes:
        if not can_ask():
            raise InvalidRequest(
                "cli.usage",
                f"Deleting {id} ({title}) is permanent and requires confirmation.",
                "Add `--yes` to skip the confirmation.",
            )
        if not confirm(f"Permanently delete {id} ({title})?"):
            raise typer.Exit(1)
    ask_crib(invocation, lambda client: client.sessions.delete(id))
    invocation.confirm(found, f"Deleted {id}.")


app.command("replay")(replays.replay)
app.command("compare")(replays.compare)


@app.command("export")
def export(
    ctx: typer.Context,
    session: IdArgument,
    form: Annotated[str, typer.Option("--format", metavar="F", help="jsonl (all events) or markdown.")] = "jsonl",
    file: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write to a new file instead of standard output.")
    ] = None,
    recording: Annotated[
        bool, typer.Option("--recording", help="Export the recording, to be replayed anywhere.")
    ] = False,
    as_test: Annotated[
        bool, typer.Option("--as-test", help="Write a pytest that replays the recording, and the recording beside it.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export the conversation of a session, or its recording."""
    from toolcrib.cli.sessions.show import FORMATS, export_to

    if recording or as_test:
        replays.export_recording(begin(ctx, home, as_json), session, file, as_test=as_test)
        return
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

    async def work(client: "ApiClient") -> None:
        async for piece in client.sessions.transcript(session, form):
            if form == "jsonl":
                output.raw(piece)
            else:
                output.part(piece.decode("utf-8", "replace"))

    ask_crib(invocation, work)
