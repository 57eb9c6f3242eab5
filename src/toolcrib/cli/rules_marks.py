"""`toolcrib rules preset`, `marks` and `flows`: rules on what a conversation has read."""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.cli.options import Invocation
    from toolcrib.model.json import JsonObject


def preset(
    ctx: typer.Context,
    id: Annotated[
        str | None, typer.Argument(metavar="PRESET", help="The preset to switch on.", show_default=False)
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Switch the preset off.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List presets of rules, or switch one on or off."""
    invocation = begin(ctx, home, as_json)
    if id is None:
        if off:
            raise InvalidRequest("cli.usage", "--off needs a preset.", "Run `toolcrib rules preset`.")
        found = ask_crib(invocation, lambda client: client.permissions.presets())
        if invocation.as_json:
            output.document(found)
        else:
            rows = [(each["id"], "on" if each["on"] else "off", each["description"]) for each in found]
            output.table(("preset", "state", "effect"), rows)
            for each in found:
                if exposed := each.get("suggestedFor"):
                    output.note(f"{each['id']} is suggested for: {', '.join(exposed)}")
        return
    changed = ask_crib(invocation, lambda client: client.permissions.switch_preset(id, on=not off))
    if invocation.as_json:
        output.document(changed)
    else:
        output.line(f"Preset {changed['id']} is {'on' if changed['on'] else 'off'}.")


def rules_of_preset(invocation: "Invocation", id: str) -> "list[JsonObject]":
    """Return the rules that a preset adds, to simulate them."""
    found = ask_crib(invocation, lambda client: client.permissions.presets())
    chosen = next((each for each in found if each["id"] == id), None)
    if chosen is None:
        known = ", ".join(str(each["id"]) for each in found)
        raise InvalidRequest("cli.usage", f"{id!r} is not a preset.", f"Presets: {known}.")
    members = ("effect", "pattern", "conditions", "where", "reason")
    return [{key: rule[key] for key in members if key in rule} for rule in chosen["rules"]]


def marks(
    ctx: typer.Context,
    clear: Annotated[
        str | None,
        typer.Option("--clear", metavar="CONVERSATION", help="Remove the marks of a conversation that starts anew."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the conversations that have read untrusted text or private data."""
    invocation = begin(ctx, home, as_json)
    if clear is not None:
        cleared = ask_crib(invocation, lambda client: client.permissions.clear_marks(clear))
        if invocation.as_json:
            output.document(cleared)
        else:
            output.line(f"Removed the marks of {cleared['conversation']}.")
        return
    found = ask_crib(invocation, lambda client: client.permissions.marks())
    if invocation.as_json:
        output.document(found)
    elif found:
        output.table(("conversation", "mark", "set by"), [row for each in found for row in mark_rows(each)])
    else:
        output.note("No conversation is marked.")


def mark_rows(marked: "JsonObject") -> list[tuple[str, str, str]]:
    """Return one row for each mark of a conversation."""
    return [(str(marked["conversation"]), each["mark"], calls_of(each)) for each in marked["marks"]]


def calls_of(mark: "JsonObject") -> str:
    """Return the calls that set a mark, in words."""
    return ", ".join(f"{call['ref']} (record {call['auditId']})" for call in mark["calls"])


def flows(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List tools that return untrusted text or private data, send data out or destroy things."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.permissions.flows())
    if invocation.as_json:
        output.document(found)
        return
    output.table(("tool", "flows"), [(each["pattern"], ", ".join(each["flows"])) for each in found["tools"]])
    if not found["entries"]:
        output.note("These are defaults. Set others with [[flows]] in toolcrib.toml.")
