"""`toolcrib tools changes`, `accept` and `reject`: definitions that changed, and a person's word on them.

Above: `tools`. Below: `client`, through `crib`. What is accepted is what was shown: the answer names its hash.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.errors import Denied, InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.model.json import Json, JsonObject
    from toolcrib.model.tools import ToolRef

ToolArgument = Annotated[str, typer.Argument(metavar="SERVER/TOOL", help="The tool.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Without being asked.")]
_WORDS = {
    "argument_added": "argument added",
    "argument_removed": "argument removed",
    "argument_required": "argument required now",
    "argument_optional": "argument optional now",
    "argument_description": "argument described differently",
    "argument_widened": "argument takes more",
    "argument_narrowed": "argument takes less",
    "argument_changed": "argument changed",
}


def changes(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List tools whose definition changed: they are neither listed nor called until somebody accepts it."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.permissions.changes())
    if invocation.as_json:
        output.document(found)
        return
    if not found:
        output.note("No tool is defined differently from what counts.")
    for change in found:
        _show(change)


def accept(
    ctx: typer.Context, tool: ToolArgument, yes: YesOption = False, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Accept the definition of a tool as it is now; what it says of itself counts from then on."""
    from toolcrib.cli.arguments import parse_ref

    invocation, ref = begin(ctx, home, as_json), parse_ref(tool)
    held = _held(invocation, ref)
    if held is not None:
        _look(held, yes)
    _judge(invocation, ref, "accept", held["hash"] if held is not None else None)


def reject(ctx: typer.Context, tool: ToolArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Reject a changed definition: the tool stays away until its server offers another one."""
    from toolcrib.cli.arguments import parse_ref

    invocation, ref = begin(ctx, home, as_json), parse_ref(tool)
    held = _held(invocation, ref)
    if held is None:
        raise NotFound("pin.unknown", f"The definition of {ref} did not change.")
    _judge(invocation, ref, "reject", held["hash"])


def _held(invocation: Invocation, ref: "ToolRef") -> "JsonObject | None":
    found = ask_crib(invocation, lambda client: client.permissions.changes())
    return next((each for each in found if each["ref"] == str(ref)), None)


def _look(held: "JsonObject", yes: bool) -> None:
    if yes:
        return
    if not can_ask():
        hint = "Look at it with `toolcrib tools changes`, then run it in a terminal, or add --yes."
        raise InvalidRequest("cli.usage", "Accepting needs a person's yes, and nobody can be asked here.", hint)
    _show(held)
    if not confirm("Accept this definition?"):
        raise Denied("tool.changed", "Nothing was accepted.", "The tool stays away.")


def _judge(invocation: Invocation, ref: "ToolRef", verdict: str, hash: str | None) -> None:
    judged = ask_crib(invocation, lambda client: client.permissions.judge(ref, verdict, hash))
    if invocation.as_json:
        output.document(judged)
    else:
        output.line(f"{ref} as defined now ({judged['hash'][:8]}) is {judged['verdict']}.")


def _show(change: "JsonObject") -> None:
    rejected = f", rejected by {change['rejectedBy']}" if "rejectedBy" in change else ""
    output.line(f"{change['ref']} changed at {change['since']}{rejected}")
    for each in change["differences"]:
        output.line(f"  {_WORDS.get(each['kind'], each['kind'])}: {output.one_line(each['name'])}")
        for sign, value in (("-", each["before"]), ("+", each["after"])):
            for line in _lines(value):
                output.line(f"    {sign} {line}")


def _lines(value: "Json") -> "list[str]":
    """A value whole, line by line; a line of its own cannot pass for one of ours."""
    if value is None:
        return []
    return (value if isinstance(value, str) else output.pretty(value)).split("\n")
