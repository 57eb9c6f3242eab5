"""`toolcrib demo`: a throw-away crib in which a team of agents is at work on the scripted model.

The first session is played to its end, its approval answered in the person's place; the next one waits for the person.
At the end everything is removed.

Above: `main`. Below: `demo` has the contents, `server.run` holds, `chat_view` tells what happens. It must never use or
change anything of the person's own: no home, no settings, no key.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolcrib.cli import output
from toolcrib.cli.options import JsonOption, common
from toolcrib.version import __version__

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.demo.place import Place
    from toolcrib.demo.scripts import Scene
    from toolcrib.demo.stage import Played
    from toolcrib.model.sessions import SessionEvent
    from toolcrib.server.run import Holding

WITHOUT_CLAUDE: Final = (
    "Sessions of agents need Claude Code, which is not installed: pip install 'toolcrib[claude]', then run this again. "
    "Everything else is there; these calls were made without an agent:"
)


def demo(
    ctx: typer.Context,
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65_535, help="The port; 0 takes any free one.")
    ] = 0,
    opened: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the console in a browser.", show_default=False)
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the directory there at the end.")] = False,
    home: Annotated[
        str | None,
        typer.Option("--home", metavar="DIR", help="Use this empty directory, and leave it there.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a crib at work: agents, tools, an approval, a refusal and the record. No key, no network.

    Only the model is scripted. Everything is in a directory of its own, which is removed when you press Ctrl-C.
    """
    from toolcrib.cli.logs import start_logging
    from toolcrib.cli.loop import run
    from toolcrib.demo.place import taken_place
    from toolcrib.demo.scripts import SCRIPTS
    from toolcrib.home import owner_token, prepare_home
    from toolcrib.scripted import ScriptedModel

    options = common(ctx, home, as_json)
    folder = Path(options.home).absolute() if options.home is not None else None
    browser = sys.stdout.isatty() if opened is None else opened
    with taken_place(folder, keep=keep) as place, ScriptedModel(SCRIPTS) as model:
        crib = prepare_home(place.crib)
        start_logging(crib, "info", [owner_token(crib)])
        show = _JsonShow() if options.as_json else _Show()
        run(lambda: _play(place, port, model.url, show, browser=browser))
    if folder is not None or keep:
        output.note(f"It is all in {place.root}. Look again with `toolcrib serve --home {place.crib}`.")


async def _play(place: "Place", port: int, model: str, show: "_Show", *, browser: bool) -> None:
    import anyio

    from toolcrib.cli.browser import open_console
    from toolcrib.cli.signals import until_signalled
    from toolcrib.client import Client
    from toolcrib.demo.scripts import NOTICE
    from toolcrib.home import owner_token, prepare_home
    from toolcrib.server.run import hold
    from toolcrib.settings import Environment

    settings = place.settings(port)
    async with (
        hold(settings, kind="serve", port=port, environment=place.environment(model)) as holding,
        until_signalled(),
        Client(holding.info.url, owner_token(prepare_home(place.crib)), source="cli", cwd=str(place.project)) as client,
    ):
        holding.crib.notice = NOTICE
        show.ready(holding, place)
        if browser:
            await open_console(holding.login_url, Environment.current())
        await _scenes(client, show)
        await anyio.sleep_forever()


async def _scenes(client: "Client", show: "_Show") -> None:
    from toolcrib.demo.scripts import REFUND, RELEASE
    from toolcrib.demo.stage import furnish, has_claude, make_calls, play

    morning = await furnish(client)
    if not has_claude():
        show.without_claude()
        for made in await make_calls(client):
            show.call(made.ref, made.refusal)
        show.finished()
        return
    show.played(REFUND, await play(client, REFUND, show.event, show.waits))
    await client.schedules.run(morning)
    show.played(RELEASE, await play(client, RELEASE, show.event, show.waits))


class _Show:
    """What a person at a terminal is told."""

    def __init__(self) -> None:
        from toolcrib.cli.chat_view import ChatView

        self._new_view = ChatView
        self._view = ChatView()
        self._home = ""

    def ready(self, holding: "Holding", place: "Place") -> None:
        """Where it is, and what of it is not real."""
        from toolcrib.demo.scripts import NOTICE

        self._home = str(place.crib)
        output.line(f"Toolcrib {__version__}: a demonstration.\n")
        output.line(f"  console  {holding.login_url}")
        output.line(f"  MCP      {holding.mcp_url}")
        output.line(f"  place    {place.root}\n")
        output.line(f"{NOTICE}\n\nPress Ctrl-C to end it. Meanwhile, an agent goes to work:")

    def event(self, event: "SessionEvent") -> None:
        """Something happened in the session that is played."""
        from toolcrib.cli.chat_view import Line

        for piece in self._view.show(event.shape):
            if isinstance(piece, Line):
                output.line(piece.text)
            elif piece.tone == "plain":
                output.part(piece.text)

    def waits(self, played: "Played") -> None:
        """A scene waits for the person."""
        output.line("\nIt waits for you: open the console (Sessions, or what waits above), or use another terminal:")
        output.line(f"  toolcrib approvals approve {played.approval} --home {self._home}")
        self.finished()

    def played(self, scene: "Scene", played: "Played") -> None:
        """A scene has ended."""
        self._view = self._new_view()
        answered = " Its approval was answered in your place. Next, one for you:" if scene.is_answered else ""
        output.line(f"\n{scene.title}: {played.state}.{answered}")

    def without_claude(self) -> None:
        """There is no agent to show."""
        output.line(f"\n{WITHOUT_CLAUDE}")

    def call(self, ref: str, refusal: str | None) -> None:
        """A call that was made without an agent."""
        output.line(f"  * {ref}: {f'refused: {refusal}' if refusal else 'ok'}")

    def finished(self) -> None:
        """All there is to show is there."""
        output.line("\nLook around in the console: Sessions, Agents, Schedules, Access, and Activity for the record.")


class _JsonShow(_Show):
    """What a program is told: one JSON object a line."""

    def ready(self, holding: "Holding", place: "Place") -> None:
        """Where it is."""
        told = {"console": holding.login_url, "mcp": holding.mcp_url, "home": str(place.crib)}
        output.record({"event": "ready", **told, "scripted": ["model"]})

    def event(self, event: "SessionEvent") -> None:
        """Programs read the session themselves."""

    def waits(self, played: "Played") -> None:
        """A scene waits for the person."""
        told = {"sessionId": played.session, "state": played.state, "approvalId": played.approval}
        output.record({"event": "session", **told})

    def played(self, scene: "Scene", played: "Played") -> None:
        """A scene has ended."""
        output.record({"event": "session", "sessionId": played.session, "state": played.state, "title": scene.title})

    def without_claude(self) -> None:
        """There is no agent to show."""
        output.note(WITHOUT_CLAUDE)

    def call(self, ref: str, refusal: str | None) -> None:
        """A call that was made without an agent."""
        output.record({"event": "call", "ref": ref, **({} if refusal is None else {"refused": refusal})})

    def finished(self) -> None:
        """Programs know by what came before."""
