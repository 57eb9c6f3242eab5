"""What every command has in common: its options, and the settings it runs with.

Above: the commands. Below: `settings`, loaded when a command runs. It must never start anything.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output

if TYPE_CHECKING:
    from toolcrib.model.json import Json
    from toolcrib.settings import Environment, Settings

HomeOption = Annotated[
    str | None,
    typer.Option("--home", metavar="DIR", help="The home to use (TOOLCRIB_HOME).", show_default=False),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Machine-readable output on standard output."),
]


@dataclass(frozen=True, slots=True)
class Common:
    """The options that a group of commands was given before the command's name."""

    home: str | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of a command: what is set, and how to answer."""

    settings: "Settings"
    environment: "Environment"
    as_json: bool


def common(ctx: typer.Context, home: str | None, as_json: bool) -> Common:
    """The common options of this command, those of its groups included; the innermost wins."""
    outer = ctx.find_object(Common) or Common()
    return Common(home if home is not None else outer.home, as_json or outer.as_json)


def begin(ctx: typer.Context, home: str | None, as_json: bool, **flags: "Json") -> Invocation:
    """Load the settings for this run and tell what is wrong with them.

    Raises `settings.invalid` for a flag or a variable that cannot be used.
    """
    from toolcrib.settings import Environment, load_settings

    options = common(ctx, home, as_json)
    environment = Environment.current()
    loaded = load_settings(environment, {**flags, "home": options.home})
    output.warn_all([problem.to_json() for problem in loaded.problems])
    return Invocation(loaded.settings, environment, options.as_json)


def working_directory() -> str | None:
    """Where the command was typed, if that still exists and can be said in a request."""
    try:
        cwd = str(Path.cwd())
        cwd.encode()
    except (OSError, UnicodeEncodeError):
        return None
    return cwd
