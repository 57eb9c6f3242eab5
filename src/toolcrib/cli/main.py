"""`toolcrib`: the command tree, and the mapping of failures to exit codes.

Must never import the web stack or the protocol: `toolcrib --help` has to be fast.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from toolcrib.cli import (
    approvals,
    audit,
    backup,
    console,
    doctor,
    nodes,
    output,
    plugins,
    rules,
    serve,
    settings,
    stop_all,
    tokens,
    why,
)
from toolcrib.cli.agents import commands as agents
from toolcrib.cli.chat import command as chat
from toolcrib.cli.connect import command as connect
from toolcrib.cli.demo import command as demo
from toolcrib.cli.mcp import commands as mcp
from toolcrib.cli.options import CommandGroup, Common, HomeOption, JsonOption, begin
from toolcrib.cli.schedule import commands as schedule
from toolcrib.cli.sessions import commands as sessions
from toolcrib.cli.suggestions import command_line
from toolcrib.cli.tools import commands as tools
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unavailable
from toolcrib.model.version import __version__

INTERRUPTED = 130
"""The exit code of Ctrl-C: 128 plus the number of the signal."""

app = typer.Typer(
    name="toolcrib",
    epilog="Without a command, runs `toolcrib serve --open`.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=CommandGroup,
)
app.command("serve")(serve.serve)
app.command("stdio")(serve.stdio)
app.command("open")(console.open_console)
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
app.add_typer(nodes.app, name="nodes")
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("stop-all")(stop_all.stop_all)
app.command("resume-all")(stop_all.resume_all)
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
    """One place for all your MCP tools, with permissions, approvals and an audit log for every call."""
    ctx.obj = Common(home, as_json)
    if ctx.invoked_subcommand is None:
        serve.run_crib(begin(ctx, home, as_json), browser=sys.stdout.isatty())


def run() -> None:
    """Run the installed command."""
    output.prepare_streams()
    output.leave(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Every failure is reported here, with a hint."""
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    command_line.set(tuple(arguments))
    try:
        code = app(list(arguments), prog_name="toolcrib", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except ToolcribError as error:
        failure = error
    except typer.TyperException as error:
        failure = _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 boundary: no unexpected failure reaches a person as a trace
        failure = unexpected(error)
    output.failure(failure, as_json=as_json)
    return failure.exit_code


def _usage(error: typer.TyperException) -> ToolcribError:
    """Convert a Typer usage error."""
    command: str = getattr(getattr(error, "ctx", None), "command_path", "toolcrib")
    return InvalidRequest("cli.usage", error.format_message(), f"Run `{command} --help`.")


def unexpected(error: Exception) -> ToolcribError:
    """Log the traceback of an unexpected failure; return an error that names its type and where the traceback is."""
    import logging
    import traceback

    from toolcrib.base.settings import Environment
    from toolcrib.cli.logs import log_file

    if file := log_file():
        logging.getLogger(__name__).error("Unexpected failure", exc_info=error)
    elif Environment.current().get("TOOLCRIB_LOG_LEVEL") == "debug":
        output.note("".join(traceback.format_exception(error)))
    where = f"in {file}" if file else "shown with TOOLCRIB_LOG_LEVEL=debug"
    return Unavailable(
        "internal", f"An unexpected error occurred ({type(error).__name__}).", f"The traceback is {where}."
    )
