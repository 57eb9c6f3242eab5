"""`toolcrib serve` and `toolcrib stdio`: the commands that run a crib.

Must never print to standard output while the protocol owns it.
"""

import contextlib
import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.version import __version__

if TYPE_CHECKING:
    from toolcrib.base.home import Home, RunInfo
    from toolcrib.base.settings import Settings
    from toolcrib.model.errors import Unavailable
    from toolcrib.web.run import Holding
    from toolcrib.web.stopping import Stopping

COMMAND_PATIENCE = 15.0
"""Seconds to wait for a command that holds the home; it ends soon."""
HANDOVER_PATIENCE = 15.0
"""Seconds to wait for a front to hand over the home, in addition to the grace period of its calls."""
_LEAVE_SECONDS = 3.0
"""Longer than the interval of the health checks in docs/deploy.md."""
_NAMED = 5
"""Limit of the tool names printed while waiting for calls."""
_GIVES_WAY = ("command", "stdio")
_POLL_SECONDS = 0.1
_GIVE_WAY = 0.0005
"""Thread switch interval in seconds. The event loop releases the GIL with every read and write; with the default
interval it would wait ten times as long to get it back.
"""
_LOOK_AFTER = (5_000, 1, 100)
"""Thresholds of the garbage collector. The second generation is collected with the first while it is small; full
collections are rare, because they take time proportional to the number of tools.
"""


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="The address to listen on.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=0, max=65_535, help="The port to listen on; 0 picks a free port."),
    ] = None,
    database: Annotated[str | None, typer.Option("--database", metavar="URL", help="The database URL.")] = None,
    node_secret_file: Annotated[
        str | None, typer.Option("--node-secret-file", metavar="F", help="The secret that all nodes share.")
    ] = None,
    behind_proxy: Annotated[
        str | None,
        typer.Option("--behind-proxy", metavar="A,…", help="The addresses of the proxy that ends TLS for this crib."),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="F", help="The certificate for other machines (PEM).")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="F", help="The private key of the certificate (PEM).")
    ] = None,
    opened: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the console in a browser.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the crib.

    Prints the addresses of the console and the MCP endpoint when ready.
    """
    flags = {"node_secret_file": node_secret_file, "behind_proxy": behind_proxy}
    files = {"tls_cert": tls_cert, "tls_key": tls_key}
    invocation = begin(ctx, home, as_json, host=host, port=port, database_url=database, **flags, **files)
    run_crib(invocation, browser=bool(opened))


def stdio(
    ctx: typer.Context,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="ID",
            help="Act as this agent, with its prompt and only its tools.",
            autocompletion=names_of("agent"),
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="Act as this named token: with its level, until revoked.",
            autocompletion=names_of("token"),
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an MCP server on standard input and output.

    For IDEs and other MCP clients. Joins the running crib, or starts one.
    """
    from toolcrib.cli.front import serve_client

    raise typer.Exit(serve_client(begin(ctx, home, as_json).settings, agent, token))


def run_crib(invocation: Invocation, *, browser: bool) -> None:
    """Hold the home until a signal arrives."""
    gc.disable()  # until the crib is ready: what is imported stays, and looking through it takes a tenth of the start
    from toolcrib.base.home import owner_token, prepare_home
    from toolcrib.cli.logs import start_logging
    from toolcrib.cli.loop import run

    settings = invocation.settings
    home = prepare_home(settings.home)
    start_logging(home, settings.log_level, [owner_token(home)], talk=True)
    run(lambda: _serve(invocation, home, browser))


async def _serve(invocation: Invocation, home: "Home", browser: bool) -> None:
    import anyio

    from toolcrib.cli.browser import open_console
    from toolcrib.cli.signals import until_signalled

    async with _holding(invocation.settings, home) as holding:
        try:
            async with until_signalled():
                _exempt_long_lived()
                sys.setswitchinterval(_GIVE_WAY)
                _announce(holding, home, invocation.as_json)
                if browser:
                    await open_console(holding.login_url, invocation.environment)
                drained = anyio.Event()
                holding.crib.membership.on_draining(drained.set)
                await drained.wait()
                output.note("This node was drained: it stops when its calls have ended.")
        except typer.Exit:
            await _stop(holding.stopping, invocation.settings)
            raise
        await _stop(holding.stopping, invocation.settings)


async def _stop(stopping: "Stopping", settings: "Settings") -> None:
    """Leave the proxy, then wait for calls in flight."""
    if settings.behind_proxy:
        await _leave_proxy(stopping)
    await _let_calls_end(stopping, settings.stop_grace)


async def _leave_proxy(stopping: "Stopping") -> None:
    """Serve until the health checks of the proxy have seen that this node stops; a second signal ends the wait."""
    import anyio

    from toolcrib.cli.signals import until_signalled

    stopping.leave()
    with contextlib.suppress(typer.Exit):
        async with until_signalled():
            output.note(f"Stopping in {_LEAVE_SECONDS:g} s, so that the proxy sends new requests to other nodes.")
            await anyio.sleep(_LEAVE_SECONDS)


async def _let_calls_end(stopping: "Stopping", grace: float) -> None:
    """Wait for calls in flight, with a message; a second signal ends the wait."""
    from toolcrib.cli.signals import until_signalled

    stopping.begin()
    if calls := stopping.calls:
        named = ", ".join(sorted(set(calls))[:_NAMED])
        count = "1 call" if len(calls) == 1 else f"{len(calls)} calls"
        with contextlib.suppress(typer.Exit):
            async with until_signalled():
                output.note(
                    f"Stopping. Waiting up to {grace:g} s for {count} to finish ({named}). Press Ctrl-C to stop now."
                )
                await stopping.wait(grace)
    stopping.finish()


def _exempt_long_lived() -> None:
    """Exempt long-lived objects from garbage collection: scanning all of them takes as long as many calls.

    They are not scanned a last time either, which would take a tenth of the start to free about a megabyte. Later
    objects are collected less often than by default, because a long tool list creates many.
    """
    gc.freeze()
    gc.set_threshold(*_LOOK_AFTER)
    gc.enable()


@asynccontextmanager
async def _holding(settings: "Settings", home: "Home") -> "AsyncGenerator[Holding]":
    """Hold the home, waiting for a command or a front that holds it now. Raises `crib.running` if a permanent crib
    does.

    A front hands over when it sees that the succession lock is taken.
    """
    import anyio

    from toolcrib.base.home import HomeLock, find_holder
    from toolcrib.model.errors import Unavailable
    from toolcrib.web.run import hold

    succession = HomeLock(home, home.succession_file)
    deadline = anyio.current_time() + max(COMMAND_PATIENCE, settings.stop_grace + HANDOVER_PATIENCE)
    async with AsyncExitStack() as stack:
        stack.callback(succession.release)
        while True:
            try:
                holding = await stack.enter_async_context(hold(settings, kind="serve", port=settings.port))
                break
            except Unavailable as error:
                holder = find_holder(home)
                if error.code != "crib.running" or anyio.current_time() > deadline:
                    raise await _already_running(home, holder) if holder else error from error
                if holder and holder.kind not in _GIVES_WAY:
                    raise await _already_running(home, holder) from error
                succession.try_acquire()
            await anyio.sleep(_POLL_SECONDS)
        succession.release()
        yield holding


async def _already_running(home: "Home", holder: "RunInfo") -> "Unavailable":
    """Return the error for a running crib, with a login link if it responds."""
    from toolcrib.base.home import owner_token
    from toolcrib.model.errors import Unavailable
    from toolcrib.web.api_client.api_client import ApiClient

    message = f"A crib is already running on {home.root}: {holder.url} (process {holder.pid}, {holder.kind})."
    try:
        async with ApiClient(holder.url, owner_token(home), source="cli") as client:
            return Unavailable("crib.running", message, f"Open {await client.login()}, or stop the process first.")
    except Unavailable:
        return Unavailable("crib.running", f"{message} It does not respond.", f"Stop process {holder.pid} first.")


def _announce(holding: "Holding", home: "Home", as_json: bool) -> None:
    """Print the addresses once requests are served."""
    if as_json:
        ready = {"event": "ready", "console": holding.login_url, "mcp": holding.mcp_url, "home": str(home.root)}
        output.record(ready)
        return
    output.line(f"Toolcrib {__version__} is ready. Press Ctrl-C to stop.\n")
    output.line(f"  MCP      {holding.mcp_url}")
    output.line(f"  home     {home.root}\n")
    output.line("Next: open the console (the link works once; `toolcrib open` makes a new one),")
    output.line("or connect an app with `toolcrib connect APP`.\n")
    output.line(f"  console  {holding.login_url}")
