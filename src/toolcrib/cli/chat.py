"""`toolcrib chat`: an agent session in the terminal; without a terminal, prompts in and answers out.

The crib has to be there for as long as the chat is: the one that runs, else one of the chat's own. When it ends under
the chat, the chat looks for it and goes on after the last event it has shown; if none comes, it becomes the crib.

Above: `main`. Below: `chat_live` at a terminal, `chat_plain` elsewhere; `crib` finds the crib.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.cli.chat_open import Wanted
    from toolcrib.client import Client


def chat(
    ctx: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="What to say first; - reads all of standard input.", show_default=False),
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="ID", help="Speak with this agent.")] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="SESSION", help="Go on with this session; its id may be cut short."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="M", help="default, acceptEdits, plan, dontAsk or bypassPermissions."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="M", help="The model to think with.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="The directory to work in.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Speak with an agent.

    At a terminal it stays open and asks what has to be asked. With a pipe, or --json, it answers PROMPT, else every
    line of standard input, and ends.
    """
    from pathlib import Path

    from toolcrib.cli.chat_open import Wanted
    from toolcrib.cli.loop import run

    if resume is not None and agent is not None:
        hint = "A session keeps its agent; /agent in the chat begins another one."
        raise InvalidRequest("cli.usage", "Use either --agent or --resume, not both.", hint)
    invocation = begin(ctx, home, as_json)
    place = str(Path(cwd).expanduser().absolute()) if cwd is not None else None
    wanted = Wanted(agent, resume, mode, model, place)
    if not invocation.as_json and _is_terminal(invocation):
        run(lambda: _at_terminal(invocation, wanted, prompt))
    elif code := run(lambda: _without_terminal(invocation, wanted, prompt)):
        raise typer.Exit(code)


def _is_terminal(invocation: Invocation) -> bool:
    """Whether somebody sits at a terminal that can move its cursor and gives single keys."""
    able = sys.platform != "win32" and invocation.environment.get("TERM", "dumb") != "dumb"
    return able and sys.stdin.isatty() and sys.stdout.isatty()


async def _at_terminal(invocation: Invocation, wanted: "Wanted", prompt: str | None) -> None:
    from toolcrib.cli.chat_live import LiveChat
    from toolcrib.cli.chat_open import begin_or_resume, last_turn, terminal
    from toolcrib.cli.crib import kept_up
    from toolcrib.cli.sessions_show import introduce, resume_command

    chat: LiveChat | None = None
    first = prompt

    async def talk(client: "Client") -> None:
        nonlocal chat, first
        if chat is None:
            session = await begin_or_resume(client, wanted)
            chat = LiveChat(*terminal(invocation.environment), session, await last_turn(client, session))
            introduce(session, is_new=wanted.resume is None)
        line, first = first, None
        await chat.run(client, line)

    try:
        await kept_up(invocation.settings, talk)
    finally:
        if chat is not None and not chat.is_deleted:
            output.note(f"The session stays. Go on with `{resume_command(chat.session)}`.")
    if chat is not None and chat.is_deleted:
        raise NotFound("session.unknown", "The session was deleted meanwhile.")


async def _without_terminal(invocation: Invocation, wanted: "Wanted", prompt: str | None) -> int:
    from toolcrib.cli.chat_open import begin_or_resume
    from toolcrib.cli.chat_plain import PlainChat, prompts
    from toolcrib.cli.crib import kept_up

    chat: PlainChat | None = None

    async def talk(client: "Client") -> None:
        nonlocal chat
        if chat is None:
            session = await begin_or_resume(client, wanted)
            chat = PlainChat(session, prompts(prompt), as_json=invocation.as_json)
        await chat.run(client)

    await kept_up(invocation.settings, talk)
    return 0 if chat is None else chat.exit_code
