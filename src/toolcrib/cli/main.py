"""`toolcrib`: the tree of commands, and the one place where a command's end becomes an exit code.

Above: nothing. Below: the commands, which import what they need when they run. It must never import the web stack or
the protocol: `toolcrib --help` answers at once.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import Annotated

import typer

from toolcrib.cli import (
    agents,
    approvals,
    audit,
    chat,
    connect,
    demo,
    doctor,
    mcp,
    output,
    plugins,
    rules,
    schedule,
    serve,
    sessions,
    settings,
    tokens,
    tools,
    why,
)
from toolcrib.cli.options import Common, HomeOption, JsonOption, begin
from toolcrib.errors import InvalidRequest, ToolcribError, Unavailable
from toolcrib.version import __version__

app = typer.Typer(
    name="toolcrib",
    epilog="Without a command, `toolcrib` is `toolcrib serve --open`.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(serve.serve)
app.command("stdio")(serve.stdio)
app.add_typer(mcp.app, name="mcp")
app.command("connect")(connect.connect)
app.add_typer(tools.app, name="tools")
app.command("why")(why.why)
app.add_typer(rules.app, name="rules")
app.add_typer(approvals.app, name="approvals")
app.add_typer(agents.app, name="agents")
app.command("chat")(chat.chat)
app.add_typer(sessions.app, name="sessions")
app.add_typer(schedule.app, name="schedule")
app.add_typer(tokens.app, name="tokens")
app.add_typer(plugins.app, name="plugins")
app.command("settings")(settings.show)
app.add_typer(audit.app, name="audit")
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


def _version(wanted: bool) -> None:
    if wanted:
        output.line(f"toolcrib {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    home: HomeOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Every tool in one place, issued to each agent by one gate, with a reason and a record."""
    ctx.obj = Common(home, as_json)
    if ctx.invoked_subcommand is None:
        serve.run_crib(begin(ctx, home, as_json), browser=sys.stdout.isatty())


def run() -> None:
    """The installed command."""
    output.prepare_streams()
    code = main(sys.argv[1:])
    if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
        # Everything is closed by now. A tool that nothing can end must not keep the process.
        output.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Every failure ends here, as one sentence and what to do next."""
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        code = app(list(arguments), prog_name="toolcrib", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except ToolcribError as error:
        failure = error
    except typer.TyperException as error:
        failure = _usage(error)
    except Exception as error:  # noqa: BLE001 boundary: no unexpected failure reaches a person as a trace
        failure = _unexpected(error)
    output.failure(failure, as_json=as_json)
    return failure.exit_code


def _usage(error: typer.TyperException) -> ToolcribError:
    """A command line that Typer could not read, in our own form."""
    command: str = getattr(getattr(error, "ctx", None), "command_path", "toolcrib")
    return InvalidRequest("cli.usage", error.format_message(), f"Run `{command} --help`.")


def _unexpected(error: Exception) -> ToolcribError:
    """Keep the trace of what nobody foresaw; what is told of it is its kind, and where the rest is."""
    import logging
    import traceback

    from toolcrib.cli.logs import log_file
    from toolcrib.settings import Environment

    if file := log_file():
        logging.getLogger(__name__).error("Unexpected failure", exc_info=error)
    elif Environment.current().get("TOOLCRIB_LOG_LEVEL") == "debug":
        output.note("".join(traceback.format_exception(error)))
    where = f"in {file}" if file else "shown with TOOLCRIB_LOG_LEVEL=debug"
    return Unavailable("internal", f"Something unexpected failed ({type(error).__name__}).", f"The trace is {where}.")
