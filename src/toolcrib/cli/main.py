"""`toolcrib`: the command tree, and the mapping of failures to exit codes.

Must never import the web stack or the protocol: `toolcrib --help` has to be fast.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final

import typer

from toolcrib.cli import output
from toolcrib.cli.options import CommandGroup, Common, HomeOption, JsonOption, begin
from toolcrib.cli.suggestions import command_line
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unavailable
from toolcrib.model.version import __version__

INTERRUPTED = 130
"""The exit code of Ctrl-C: 128 plus the number of the signal."""

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "serve": "serve:serve",
        "stdio": "serve:stdio",
        "open": "console:open_console",
        "mcp": "mcp.commands:app",
        "connect": "connect.command:connect",
        "tools": "tools.commands:app",
        "why": "why:why",
        "rules": "rules:app",
        "approvals": "approvals:app",
        "agents": "agents.commands:app",
        "chat": "chat.command:chat",
        "sessions": "sessions.commands:app",
        "schedule": "schedule.commands:app",
        "tokens": "tokens:app",
        "plugins": "plugins:app",
        "settings": "settings:show",
        "audit": "audit:app",
        "nodes": "nodes:app",
        "backup": "backup:backup",
        "restore": "backup:restore",
        "stop-all": "stop_all:stop_all",
        "resume-all": "stop_all:resume_all",
        "doctor": "doctor:doctor",
        "demo": "demo.command:demo",
    }
)
"""Each command or group in `--help` order: the module in this package, and its function or Typer app."""


def command_tree(*names: str, with_options: bool = True) -> typer.Typer:
    """Return the command line with these commands, or with all of them.

    Building all options takes 0.1 s. Without them, the commands have only summaries.
    """
    app = typer.Typer(
        name="toolcrib",
        epilog="Without a command, runs `toolcrib serve --open`.",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=CommandGroup,
    )
    for name in names or COMMANDS:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(importlib.import_module(f"toolcrib.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command if with_options else _group_summary(command), name=name)
        else:
            app.command(name)(command if with_options else _summary(command))
    app.callback()(root)
    return app


def _summary(command: object) -> Callable[[], None]:
    """Return a command with the summary of another one and no options."""

    def summarized() -> None: ...

    summarized.__doc__ = command.__doc__
    return summarized


def _group_summary(group: typer.Typer) -> typer.Typer:
    """Return a group with the summary of another one and no commands."""
    summarized = typer.Typer()
    callback = group.registered_callback
    summarized.callback()(_summary(callback.callback if callback is not None else None))
    return summarized


def _named_command(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command that the arguments name, if it is sure that no other is needed for them or for a message."""
    words = iter(arguments)
    for word in words:
        if word == "--home":
            next(words, None)
        elif not (word == "--json" or word.startswith("--home=")):
            return (word,) if word in COMMANDS else ()
    return ()


def _version(wanted: bool) -> None:
    if wanted:
        output.line(f"toolcrib {__version__}")
        raise typer.Exit


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
        from toolcrib.cli import serve

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
        names = _named_command(arguments)
        app = command_tree(*names, with_options=bool(names) or "--help" not in arguments)
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
