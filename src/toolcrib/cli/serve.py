"""`toolcrib serve` and `toolcrib stdio`: the commands that run a crib for as long as somebody wants it.

Above: `main`. Below: `server.run` holds, `server.stdio` is the front. It must never print to standard output while the
protocol owns it.
"""

import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.version import __version__

if TYPE_CHECKING:
    from toolcrib.errors import Unavailable
    from toolcrib.home import Home, RunInfo
    from toolcrib.server.run import Holding
    from toolcrib.settings import Settings

COMMAND_PATIENCE = 15.0
"""Seconds to wait for a command that holds the home for itself; it ends soon."""
_POLL_SECONDS = 0.1
_GIVE_WAY = 0.0005
"""Seconds after which a thread at work gives way: the event loop lets others have the interpreter with every read and
write, and would wait ten times as long to go on, again and again."""
_LOOK_AFTER = (5_000, 1, 100)
"""New objects after which the collector looks through the youngest; looks after which it goes on to older ones. It goes
on to the next at once, while they are few, and seldom to all: that takes as long as there are tools."""


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="The address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="P", min=0, max=65_535, help="The port; 0 takes any free one.")
    ] = None,
    database: Annotated[str | None, typer.Option("--database", metavar="URL", help="The database to use.")] = None,
    opened: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the console in a browser.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the crib.

    Prints the addresses of the console and of the MCP endpoint when ready.
    """
    invocation = begin(ctx, home, as_json, host=host, port=port, database_url=database)
    run_crib(invocation, browser=bool(opened))


def stdio(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="ID", help="Be this agent: its prompt, and only its tools.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Be an MCP server on standard input and output.

    For IDEs and other MCP clients: joins the running crib, else runs one.
    """
    from toolcrib.cli.logs import start_logging
    from toolcrib.cli.loop import run
    from toolcrib.home import owner_token, prepare_home

    settings = begin(ctx, home, as_json).settings
    place = prepare_home(settings.home)
    start_logging(place, settings.log_level, [owner_token(place)], talk=True)
    run(lambda: _front(settings, agent))


async def _front(settings: "Settings", agent: str | None) -> None:
    from toolcrib.cli.signals import until_signalled
    from toolcrib.server.stdio import run_stdio

    async with until_signalled():
        await run_stdio(settings, agent)


def run_crib(invocation: Invocation, *, browser: bool) -> None:
    """Hold the home until a signal comes."""
    from toolcrib.cli.logs import start_logging
    from toolcrib.cli.loop import run
    from toolcrib.home import owner_token, prepare_home

    settings = invocation.settings
    home = prepare_home(settings.home)
    start_logging(home, settings.log_level, [owner_token(home)], talk=True)
    run(lambda: _serve(invocation, home, browser))


async def _serve(invocation: Invocation, home: "Home", browser: bool) -> None:
    import anyio

    from toolcrib.cli.browser import open_console
    from toolcrib.cli.signals import until_signalled

    async with _holding(invocation.settings, home) as holding, until_signalled():
        _spare_what_stays()
        sys.setswitchinterval(_GIVE_WAY)
        _announce(holding, home, invocation.as_json)
        if browser:
            await open_console(holding.login_url, invocation.environment)
        await anyio.sleep_forever()


def _spare_what_stays() -> None:
    """Keep the collector away from what is there until the end: to look through all of it takes as long as many calls.

    What comes later is looked through less often than usual, since a long list of tools is many new objects as well.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_LOOK_AFTER)


@asynccontextmanager
async def _holding(settings: "Settings", home: "Home") -> "AsyncGenerator[Holding]":
    """Hold the home, after a command that has it now. Raises `crib.running` if a crib has it that stays."""
    import anyio

    from toolcrib.errors import Unavailable
    from toolcrib.home import find_holder
    from toolcrib.server.run import hold

    patience = anyio.current_time() + COMMAND_PATIENCE
    async with AsyncExitStack() as stack:
        while True:
            try:
                holding = await stack.enter_async_context(hold(settings, kind="serve", port=settings.port))
                break
            except Unavailable as error:
                if error.code != "crib.running" or anyio.current_time() > patience:
                    raise
                holder = find_holder(home)
                if holder and holder.kind != "command":
                    raise await _already_running(home, holder) from error
            await anyio.sleep(_POLL_SECONDS)
        yield holding


async def _already_running(home: "Home", holder: "RunInfo") -> "Unavailable":
    """Who runs, and a way in."""
    from toolcrib.client import Client
    from toolcrib.errors import Unavailable
    from toolcrib.home import owner_token

    message = f"A crib already runs on {home.root}: {holder.url} (process {holder.pid}, {holder.kind})."
    try:
        async with Client(holder.url, owner_token(home), source="cli") as client:
            return Unavailable("crib.running", message, f"Open {await client.login()} or stop the process first.")
    except Unavailable:
        return Unavailable("crib.running", f"{message} It does not answer.", f"Stop process {holder.pid} first.")


def _announce(holding: "Holding", home: "Home", as_json: bool) -> None:
    """The ready line: the addresses, when requests are answered."""
    if as_json:
        ready = {"event": "ready", "console": holding.login_url, "mcp": holding.mcp_url, "home": str(home.root)}
        output.record(ready)
        return
    output.line(f"Toolcrib {__version__} is ready.\n")
    output.line(f"  console  {holding.login_url}")
    output.line(f"  MCP      {holding.mcp_url}")
    output.line(f"  home     {home.root}\n")
    output.line("The console link works once. Press Ctrl-C to stop.")
