"""What the `mcp` commands that change something share: asking the crib, telling of the change, taking it back.

Above: `mcp`, `mcp_add`, `mcp_trust`. Below: `crib`, `output`.
"""

from typing import TYPE_CHECKING, TypeVar

from toolcrib.cli import output
from toolcrib.cli.mcp_show import show_change
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolcrib.cli.options import Invocation
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

Answer = TypeVar("Answer")


def ask_crib(invocation: "Invocation", work: "Callable[[Client], Awaitable[Answer]]") -> Answer:
    """Ask the crib that runs, or one of this command's own."""
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    return run(lambda: ask(invocation.settings, work))


def needed(value: str | None, message: str = "Missing argument 'NAME'.") -> str:
    """A value that only `--undo` can do without."""
    if value is None:
        raise InvalidRequest("cli.usage", message)
    return value


def check_scope(scope: str) -> None:
    """Refuse a scope there is none of."""
    if scope not in ("user", "project"):
        raise InvalidRequest("cli.usage", f"{scope!r} is not a scope.", "Choose user or project.")


def show_changed(invocation: "Invocation", answer: "JsonObject", done: str) -> None:
    """Tell what happened to a file, or with a dry run what would."""
    change = answer["change"]
    if invocation.as_json:
        output.document(answer)
    elif change["dryRun"]:
        show_change(change)
    elif change["changed"]:
        output.line(f"{done} ({change['file']}).")
    else:
        output.note(f"Nothing to do: {change['file']} says so already.")


def take_back(invocation: "Invocation") -> None:
    """Undo the last change."""
    change = ask_crib(invocation, lambda client: client.undo_change())
    if invocation.as_json:
        output.document({"change": change})
    else:
        output.line(f"Took back the last change of {change['file']}.")
        output.line(str(change["diff"]))
