"""The installed command. Starts `toolcrib stdio` without importing the command tree.

An IDE starts `toolcrib stdio` and waits for it; importing the other commands would take longer than joining the crib.

Must never interpret a command line that is not exactly that of `stdio`: the command tree does.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

_INTERRUPTED = 130
_WITH_VALUE = ("--home", "--agent", "--as")


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """The options of `toolcrib stdio`."""

    home: str | None = None
    agent: str | None = None
    as_json: bool = False
    token: str | None = None


def run() -> None:
    """Run the command line of this process. Ctrl-C exits quietly, also while modules are imported."""
    options = front_options(sys.argv[1:])
    try:
        if options is None:
            from toolcrib.cli.main import run as run_command

            run_command()
        else:
            from toolcrib.cli.front import run_front

            run_front(options.home, options.agent, options.token, as_json=options.as_json)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def front_options(arguments: Sequence[str]) -> FrontOptions | None:
    """Return the options of `toolcrib stdio`, or None if the command tree has to parse the arguments."""
    given: dict[str, str] = {}
    commands: list[str] = []
    as_json = False
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, has_value, value = word.partition("=")
        if word == "--json":
            as_json = True
        elif name in _WITH_VALUE and (has_value or left):
            if name != "--home" and not commands:
                return None
            given[name] = value if has_value else left.pop(0)
        elif not commands and word == "stdio":
            commands.append(word)
        else:
            return None
    options = FrontOptions(given.get("--home"), given.get("--agent"), as_json, given.get("--as"))
    return options if commands else None
