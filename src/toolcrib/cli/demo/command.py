"""`toolcrib demo`: a temporary crib with a team of agents on a scripted model.

The first session runs to its end, with its approval answered automatically; the next one waits for the user. Everything
is removed on exit.

Must never use or change anything of the user's: home, settings or keys.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolcrib.cli import output
from toolcrib.cli.options import JsonOption, common
from toolcrib.model.version import __version__

if TYPE_CHECKING:
    from toolcrib.cli.demo.place import DemoDirectory
    from toolcrib.cli.demo.scripts import Scene
    from toolcrib.cli.demo.stage import Played
    from toolcrib.model.sessions import SessionEvent
    from toolcrib.web.api_client.api_client import ApiClient
    from toolcrib.web.run import Holding

WITHOUT_CLAUDE: Final = (
    "Agent sessions need Claude Code: run `pip install 'toolcrib[claude]'` and start the demo again. "
    "Everything else is there; these calls were made without an agent:"
)


def demo(
    ctx: typer.Context,
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65_535, help="The port to listen on; 0 picks a free port.")
    ] = 0,
    opened: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the console in a browser.", show_default=False)
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the directory at the end.")] = False,
    home: Annotated[
        str | None,
        typer.Option("--home", metavar="DIR", help="Use this empty directory, and keep it.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a demo crib: agents, tools, an approval, a denial and the audit log. No key or network needed.

    Only the model is scripted. Everything lives in a temporary directory, which is removed on Ctrl-C.
    """
    from toolcrib.base.home import owner_token, prepare_home
    from toolcrib.cli.demo.place import demo_directory
    from toolcrib.cli.demo.scripts import SCRIPTS
    from toolcrib.cli.logs import start_logging
    from toolcrib.cli.loop import run
    from toolcrib.testing.scripted_model.server import ScriptedModel

    options = common(ctx, home, as_json)
    folder = Path(options.home).absolute() if options.home is not None else None
    browser = sys.stdout.isatty() if opened is None else opened
    with demo_directory(folder, keep=keep) as place, ScriptedModel(SCRIPTS) as model:
        crib = prepare_home(place.crib)
        start_logging(crib, "info", [owner_token(crib)])
        show = _JsonShow() if options.as_json else _Show()
        run(lambda: _play(place, port, model.url, show, browser=browser))
    if folder is not None or keep:
        output.note(f"Kept in {place.root}. Open it again with `toolcrib serve --home {place.crib}`.")


async def _play(place: "DemoDirectory", port: int, model: str, show: "_Show", *, browser: bool) -> None:
    import anyio

    from toolcrib.base.home import owner_token, prepare_home
    from toolcrib.base.settings import Environment
    from toolcrib.cli.browser import open_console
    from toolcrib.cli.demo.scripts import NOTICE
    from toolcrib.cli.signals import until_signalled
    from toolcrib.web.api_client.api_client import ApiClient
    from toolcrib.web.run import hold

    settings = place.settings(port)
    async with (
        hold(settings, kind="serve", port=port, environment=place.environment(model)) as holding,
        until_signalled(),
        ApiClient(
            holding.info.url, owner_token(prepare_home(place.crib)), source="cli", cwd=str(place.project)
        ) as client,
    ):
        holding.crib.notice = NOTICE
        show.ready(holding, place)
        if browser:
            await open_console(holding.login_url, Environment.current())
        await _scenes(client, show)
        await anyio.sleep_forever()


async def _scenes(client: "ApiClient", show: "_Show") -> None:
    from toolcrib.cli.demo.scripts import REFUND, RELEASE
    from toolcrib.cli.demo.stage import furnish, has_claude, make_calls, play

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
    """Output for a terminal."""

    def __init__(self) -> None:
        from toolcrib.cli.chat.view import ChatView

        self._new_view = ChatView
        self._view = ChatView()
        self._home = ""

    def ready(self, holding: "Holding", place: "DemoDirectory") -> None:
        """Print the addresses, and what is scripted."""
        from toolcrib.cli.demo.scripts import NOTICE

        self._home = str(place.crib)
        output.line(f"Toolcrib {__version__} demo\n")
        output.line(f"  console  {holding.login_url}")
        output.line(f"  MCP      {holding.mcp_url}")
        output.line(f"  place    {place.root}\n")
        output.line(f"{NOTICE}\n\nPress Ctrl-C to end it. Meanwhile, an agent goes to work:")

    def event(self, event: "SessionEvent") -> None:
        """Print an event of the session being played."""
        from toolcrib.cli.chat.view import ViewLine

        for piece in self._view.show(event.shape):
            if isinstance(piece, ViewLine):
                output.line(piece.text)
            elif piece.tone == "plain":
                output.part(piece.text)

    def waits(self, played: "Played") -> None:
        """Print that a scene waits for the user."""
        output.line("\nIt waits for you: open the console (Sessions, or what waits above), or use another terminal:")
        output.line(f"  toolcrib approvals approve {played.approval} --home {self._home}")
        self.finished()

    def played(self, scene: "Scene", played: "Played") -> None:
        """Print the end of a scene."""
        self._view = self._new_view()
        answered = " Its approval was answered in your place. Next, one for you:" if scene.is_answered else ""
        output.line(f"\n{scene.title}: {played.state}.{answered}")

    def without_claude(self) -> None:
        """Print that there is no agent program."""
        output.line(f"\n{WITHOUT_CLAUDE}")

    def call(self, ref: str, refusal: str | None) -> None:
        """Print a call that was made without an agent."""
        output.line(f"  * {ref}: {f'refused: {refusal}' if refusal else 'ok'}")

    def finished(self) -> None:
        """Print where to look next."""
        output.line("\nLook around in the console: Sessions, Agents, Schedules, Access, and Activity for the record.")


class _JsonShow(_Show):
    """Output for programs: one JSON object per line."""

    def ready(self, holding: "Holding", place: "DemoDirectory") -> None:
        """Print the addresses."""
        details = {"console": holding.login_url, "mcp": holding.mcp_url, "home": str(place.crib)}
        output.record({"event": "ready", **details, "scripted": ["model"]})

    def event(self, event: "SessionEvent") -> None:
        """Ignore events; programs read the session themselves."""

    def waits(self, played: "Played") -> None:
        """Print that a scene waits for the user."""
        details = {"sessionId": played.session, "state": played.state, "approvalId": played.approval}
        output.record({"event": "session", **details})

    def played(self, scene: "Scene", played: "Played") -> None:
        """Print the end of a scene."""
        output.record({"event": "session", "sessionId": played.session, "state": played.state, "title": scene.title})

    def without_claude(self) -> None:
        """Print that there is no agent program."""
        output.note(WITHOUT_CLAUDE)

    def call(self, ref: str, refusal: str | None) -> None:
        """Print a call that was made without an agent."""
        output.record({"event": "call", "ref": ref, **({} if refusal is None else {"refused": refusal})})

    def finished(self) -> None:
        """Print nothing; earlier records suffice."""
