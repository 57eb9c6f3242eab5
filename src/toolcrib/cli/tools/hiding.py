"""`toolcrib tools list --cost --apply` and `--undo`: hide unused tools, and show them again.

Must never add a rule without consent.
"""

from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import Invocation
from toolcrib.model.errors import Denied, InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject


def apply_or_undo(invocation: Invocation, body: "JsonObject", *, undo: bool, yes: bool) -> None:
    """Hide the unused tools of an agent or a source after a confirmation, or remove the rules that hide them."""
    if not undo and body["agent"] is None and body["source"] is None:
        raise InvalidRequest("cli.usage", "--apply needs an agent or a source.", "Add --agent A or --source ide.")
    body = body | {"undo": undo}
    plan = ask_crib(invocation, lambda client: client.hide_unused_tools(body | {"dryRun": True}))
    if plan["patterns"] and not undo and not yes:
        _ask(plan)
    done = ask_crib(invocation, lambda client: client.hide_unused_tools(body)) if plan["patterns"] else plan
    if invocation.as_json:
        output.document(done)
        return
    count = len(done["rules"])
    noun = "tool" if count == 1 else "tools"
    if undo:
        output.line(f"Removed {count} rules: {count} hidden {noun} can be used again.")
    elif not count:
        output.note("No unused tools are worth hiding.")
    else:
        output.line(f"Hid {count} {noun} with deny rules. Saves {done['saves']:,} tokens.")
        output.note(f'`toolcrib rules list` shows the rules, with the reason "{done["reason"]}"')
        output.note("Remove them together with `toolcrib tools list --cost --undo`.")


def _ask(plan: "JsonObject") -> None:
    for pattern in plan["patterns"]:
        output.note(f"  {pattern}")
    count = len(plan["patterns"])
    if not can_ask():
        hint = "Review the output above, then run the command in a terminal, or add `--yes`."
        raise InvalidRequest("cli.usage", "Hiding tools requires confirmation, but there is no terminal.", hint)
    if not confirm(f"Hide {count} {'tool' if count == 1 else 'tools'}? They can then no longer be called."):
        raise Denied("client.declined", "Nothing was changed.")
