"""Options and settings shared by all commands.

Must never start anything.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperGroup

from toolcrib.cli import output

if TYPE_CHECKING:
    from toolcrib.base.settings import Environment, Settings
    from toolcrib.model.json import Json

Answer = TypeVar("Answer")
_LONGEST_SUMMARY: Final = 500

HomeOption = Annotated[
    str | None,
    typer.Option("--home", metavar="DIR", help="The home to use (TOOLCRIB_HOME).", show_default=False),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print JSON to standard output."),
]


@dataclass(frozen=True, slots=True)
class Common:
    """Options given before the name of the command."""

    home: str | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of a command: settings and output format."""

    settings: "Settings"
    environment: "Environment"
    as_json: bool

    def show(self, answer: Answer, print_answer: Callable[[Answer], None]) -> None:
        """Print an answer of the crib as JSON, or for a person with `print_answer`."""
        if self.as_json:
            output.document(answer)
        else:
            print_answer(answer)

    def confirm(self, answer: "Json", sentence: str) -> None:
        """Print an answer of the crib as JSON, or this sentence."""
        if self.as_json:
            output.document(answer)
        else:
            output.line(sentence)


def common(ctx: typer.Context, home: str | None, as_json: bool) -> Common:
    """Return the common options, including those of command groups; the innermost wins."""
    outer = ctx.find_object(Common) or Common()
    return Common(home if home is not None else outer.home, as_json or outer.as_json)


def begin(ctx: typer.Context, home: str | None, as_json: bool, **flags: "Json") -> Invocation:
    """Load the settings and print warnings about them.

    Raises `settings.invalid` for an invalid flag or variable.
    """
    from toolcrib.base.settings import Environment, load_settings

    options = common(ctx, home, as_json)
    environment = Environment.current()
    loaded = load_settings(environment, {**flags, "home": options.home})
    output.warn_all([problem.to_json() for problem in loaded.problems])
    return Invocation(loaded.settings, environment, options.as_json)


def working_directory() -> str | None:
    """Return the working directory, or None if it is gone or not encodable."""
    try:
        cwd = str(Path.cwd())
        cwd.encode()
    except (OSError, UnicodeEncodeError):
        return None
    return cwd


class CommandGroup(TyperGroup):
    """A group of commands. Its help shows whole summaries, on several lines where one is too short."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            command.short_help = command.get_short_help_str(limit=_LONGEST_SUMMARY)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the group."""
        _let_plain_values_pass(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command that the arguments begin with, the command, and the other arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _let_plain_values_pass(command.get_params(ctx))
        return name, command, rest


def _let_plain_values_pass(parameters: Iterable[Any]) -> None:
    """Convert only values that need it: Typer converts with pydantic, whose import takes a quarter of a command."""
    for parameter in parameters:
        convert: Any = getattr(parameter, "get_runtime_param", None)
        if convert is not None and not isinstance(convert, _Conversion):
            parameter.get_runtime_param = _Conversion(convert)


class _Conversion:
    """Converts the values of one parameter. Texts and missing values stay as they are."""

    def __init__(self, convert: Callable[[], Any]) -> None:
        self._convert = convert

    def __call__(self) -> "_Conversion":
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value. Raises what Typer raises for an invalid one."""
        descriptor = param.type_descriptor
        if value is None and not param.multiple and param.nargs == 1:
            return None
        is_text = descriptor.annotation is str and descriptor.parameter_info.parser is None
        if is_text and isinstance(value, str) and value.isascii():
            return value
        return self._convert().coerce(value, param=param, ctx=ctx)
