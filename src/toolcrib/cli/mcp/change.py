"""Helpers for the `mcp` commands: calling the crib, reporting a change, undo."""

from typing import TYPE_CHECKING, TypeVar

from toolcrib.cli import output
from toolcrib.cli.mcp.show import show_change
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolcrib.cli.options import Invocation
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

Answer = TypeVar("Answer")


def ask_crib(invocation: "Invocation", work: "Callable[[ApiClient], Awaitable[Answer]]") -> Answer:
    """Run `work` with the running crib, or with one of this command's own."""
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    return run(lambda: ask(invocation.settings, work))


def require_value(value: str | None, message: str = "Missing argument 'NAME'.") -> str:
    """Return a value that is required unless `--undo` is given; raise `cli.usage` if missing."""
    if value is None:
        raise InvalidRequest("cli.usage", message)
    return value


def check_scope(scope: str) -> None:
    """Raise `cli.usage` if the scope is unknown."""
    if scope not in ("user", "project"):
        raise InvalidRequest("cli.usage", f"{scope!r} is not a scope.", "Choose user or project.")


def describe_other_names(name: str, server: "JsonObject") -> str:
    """Return a sentence with the other names of a server; empty if it has none."""
    own = {name, server["name"]} if name == server.get("alias") else {name}
    others = [f'"{each}"' for each in (server["name"], *server["sameAs"]) if each not in own]
    return f" It is the same server as {', '.join(others)}." if others else ""


def show_changed(invocation: "Invocation", answer: "JsonObject", name: str, done: str) -> None:
    """Report what changed in a file, or would change with a dry run. A change applies to all names of a server."""
    change = answer["change"]
    if invocation.as_json:
        output.document(answer)
    elif change["dryRun"]:
        show_change(change)
        if also := describe_other_names(name, answer).strip():
            output.note(also)
    elif change["changed"]:
        also = describe_other_names(name, answer)
        output.line(f'{done} "{name}" ({change["file"]}).{also}')
    else:
        output.note(f"Nothing to change: {change['file']} is already up to date.")


def take_back(invocation: "Invocation") -> None:
    """Undo the last change."""
    change = ask_crib(invocation, lambda client: client.undo_change())
    if invocation.as_json:
        output.document({"change": change})
    else:
        output.line(f"Undid the last change to {change['file']}.")
        output.line(str(change["diff"]))
