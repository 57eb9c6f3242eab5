"""`toolcrib tools changes`, `accept` and `reject`: review changed definitions.

Acceptance applies only to what was displayed: the request contains its hash.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import Denied, InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.model.json import Json, JsonObject
    from toolcrib.model.tools import ToolRef

ToolArgument = Annotated[
    str,
    typer.Argument(
        metavar="SERVER/TOOL",
        help="The tool, or a server for its instructions.",
        show_default=False,
        autocompletion=names_of("tool"),
    ),
]
WhatOption = Annotated[
    str | None, typer.Option("--what", metavar="KIND", help="prompt, resource, template or skill, if it is not a tool.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
_KINDS = ("tool", "prompt", "resource", "template", "skill", "instructions")
_WORDS = {
    "instructions": "server instructions",
    "argument_added": "argument added",
    "argument_removed": "argument removed",
    "argument_required": "argument now required",
    "argument_optional": "argument now optional",
    "argument_description": "argument description changed",
    "argument_widened": "argument accepts more values",
    "argument_narrowed": "argument accepts fewer values",
    "argument_changed": "argument changed",
}


def changes(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List changed tool definitions and server instructions. They are not used until accepted."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.permissions.changes())
    if invocation.as_json:
        output.document(found)
        return
    if not found:
        output.note("No changed definitions.")
    for change in found:
        _show(change)


def accept(
    ctx: typer.Context,
    tool: ToolArgument,
    what: WhatOption = None,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accept the current definition of a tool, including its hints."""
    invocation, subject = begin(ctx, home, as_json), _subject(tool, what)
    held = _find_change(invocation, subject)
    if held is not None:
        _look(held, yes)
    _review(invocation, subject, "accept", held["hash"] if held is not None else None)


def reject(
    ctx: typer.Context,
    tool: ToolArgument,
    what: WhatOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject a changed definition; the tool is hidden until its server offers another one."""
    invocation, subject = begin(ctx, home, as_json), _subject(tool, what)
    held = _find_change(invocation, subject)
    if held is None:
        raise NotFound("pin.unknown", f"The definition of {tool} did not change.")
    _review(invocation, subject, "reject", held["hash"])


def _subject(text: str, what: str | None) -> "tuple[str, ToolRef]":
    """Parse the argument: the kind, and the server with a name of that kind."""
    from toolcrib.cli.arguments import parse_ref
    from toolcrib.model.tools import ToolRef

    if what is not None and what not in _KINDS:
        raise InvalidRequest("cli.usage", f"{what!r} is not a kind.", f"Choose one of {', '.join(_KINDS)}.")
    if what == "instructions" or (what is None and "/" not in text):
        return "instructions", ToolRef(text.rstrip("/"), "")
    return what or "tool", parse_ref(text)


def _find_change(invocation: Invocation, subject: "tuple[str, ToolRef]") -> "JsonObject | None":
    found = ask_crib(invocation, lambda client: client.permissions.changes())
    what, ref = subject
    return next((each for each in found if (each["what"], each["server"], each["tool"]) == (what, *ref)), None)


def _look(held: "JsonObject", yes: bool) -> None:
    if yes:
        return
    if not can_ask():
        hint = "Review it with `toolcrib tools changes`, then run the command in a terminal, or add `--yes`."
        raise InvalidRequest("cli.usage", "Accepting requires confirmation, but there is no terminal.", hint)
    _show(held)
    if not confirm("Accept this definition?"):
        raise Denied("tool.changed", "Nothing was accepted.", "The tool stays hidden.")


def _review(invocation: Invocation, subject: "tuple[str, ToolRef]", verdict: str, hash: str | None) -> None:
    what, ref = subject
    reviewed = ask_crib(invocation, lambda client: client.permissions.judge(ref, verdict, hash, what))
    if invocation.as_json:
        output.document(reviewed)
    elif what == "instructions":
        output.line(f"The instructions of {ref.server} ({reviewed['hash'][:8]}) are {reviewed['verdict']}.")
    else:
        output.line(f"{ref} as defined now ({reviewed['hash'][:8]}) is {reviewed['verdict']}.")


def _show(change: "JsonObject") -> None:
    rejected = f", rejected by {change['rejectedBy']}" if "rejectedBy" in change else ""
    what = "" if change["what"] == "tool" else f" ({change['what']})"
    verb = "is new since" if change["kind"] == "new" and change["what"] != "instructions" else "changed at"
    output.line(f"{output.one_line(change['ref'])}{what} {verb} {change['since']}{rejected}")
    for problem in change["problems"]:
        output.line(f"  ! {output.one_line(problem['message'])}")
    for each in change["differences"]:
        output.line(f"  {_WORDS.get(each['kind'], each['kind'])}: {output.one_line(each['name'])}")
        for sign, value in (("-", each["before"]), ("+", each["after"])):
            for line in _lines(value):
                output.line(f"    {sign} {line}")


def _lines(value: "Json") -> "list[str]":
    """Return the lines of a value, untruncated; printed with a prefix, none can imitate our own."""
    if value is None:
        return []
    return (value if isinstance(value, str) else output.pretty(value)).split("\n")
