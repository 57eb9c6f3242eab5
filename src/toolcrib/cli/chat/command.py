"""`toolcrib chat`: an agent session in the terminal; without a terminal, prompts in and answers out.

Uses the running crib, or runs one itself. If the crib exits, the chat reconnects and continues after the last event
displayed; if no crib appears, it becomes the crib.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.cli.chat.opening import Wanted
    from toolcrib.web.api_client.api_client import ApiClient


def chat(
    ctx: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The first message; - reads standard input.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="ID", help="The agent to chat with.", autocompletion=names_of("agent")),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="SESSION",
            help="Resume this session; a unique prefix of its id is enough.",
            autocompletion=names_of("session"),
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", metavar="M", help="The permission mode: default, acceptEdits, plan, dontAsk or bypassPermissions."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="M", help="The model to use.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="The working directory.")] = None,
    record: Annotated[bool, typer.Option("--record", help="Record a new session, so that it can be replayed.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Chat with an agent.

    At a terminal, the chat is interactive and asks for approvals. With a pipe or --json, it answers PROMPT, or each
    line of standard input, and exits.
    """
    from pathlib import Path

    from toolcrib.cli.chat.opening import Wanted
    from toolcrib.cli.loop import run

    if resume is not None and agent is not None:
        hint = "A session keeps its agent; use /agent in the chat to start a new one."
        raise InvalidRequest("cli.usage", "Use either --agent or --resume, not both.", hint)
    invocation = begin(ctx, home, as_json)
    place = str(Path(cwd).expanduser().absolute()) if cwd is not None else None
    wanted = Wanted(agent, resume, mode, model, place, record)
    if not invocation.as_json and _is_terminal(invocation):
        run(lambda: _at_terminal(invocation, wanted, prompt))
    elif code := run(lambda: _without_terminal(invocation, wanted, prompt)):
        raise typer.Exit(code)


def _is_terminal(invocation: Invocation) -> bool:
    """Return whether there is a terminal with cursor control and raw keys."""
    able = sys.platform != "win32" and invocation.environment.get("TERM", "dumb") != "dumb"
    return able and sys.stdin.isatty() and sys.stdout.isatty()


async def _at_terminal(invocation: Invocation, wanted: "Wanted", prompt: str | None) -> None:
    from toolcrib.cli.chat.live import LiveChat
    from toolcrib.cli.chat.opening import begin_or_resume, last_turn, terminal
    from toolcrib.cli.crib import keep_running
    from toolcrib.cli.sessions.show import introduce, resume_command

    chat: LiveChat | None = None
    first = prompt

    async def run_chat(client: "ApiClient") -> None:
        nonlocal chat, first
        if chat is None:
            session = await begin_or_resume(client, wanted)
            chat = LiveChat(*terminal(invocation.environment), session, await last_turn(client, session))
            introduce(session, is_new=wanted.resume is None)
        line, first = first, None
        await chat.run(client, line)

    try:
        await keep_running(invocation.settings, run_chat)
    finally:
        if chat is not None and not chat.is_deleted:
            output.note(f"Resume this session with `{resume_command(chat.session)}`.")
    if chat is not None and chat.is_deleted:
        raise NotFound("session.unknown", "The session was deleted in the meantime.")
    if chat is not None and chat.is_interrupted:
        raise KeyboardInterrupt


async def _without_terminal(invocation: Invocation, wanted: "Wanted", prompt: str | None) -> int:
    from toolcrib.cli.chat.opening import begin_or_resume
    from toolcrib.cli.chat.plain import PlainChat, prompts
    from toolcrib.cli.crib import keep_running

    chat: PlainChat | None = None

    async def run_chat(client: "ApiClient") -> None:
        nonlocal chat
        if chat is None:
            session = await begin_or_resume(client, wanted)
            chat = PlainChat(session, prompts(prompt), as_json=invocation.as_json)
        await chat.run(client)

    await keep_running(invocation.settings, run_chat)
    return 0 if chat is None else chat.exit_code
