"""`toolcrib mcp secrets`: lists plaintext secrets in the files of all apps, and moves them into the keyring.

Must never print a value, or accept one as an argument, which the shell would record.
"""

import getpass
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, Invocation, JsonOption, begin, common
from toolcrib.model.errors import Denied, InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="secrets", invoke_without_command=True, rich_markup_mode=None, cls=CommandGroup)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the secret.", show_default=False)]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would change, without changing it.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
_HOW = {
    "keyring": "the file refers to the keyring",
    "variable": "the app refers to the variable",
    "behind": "the server moves behind the crib",
}
_PLACES = {"keyring": "system keyring", "file": "encrypted file"}


@app.callback()
def secrets(
    ctx: typer.Context,
    stored: Annotated[bool, typer.Option("--stored", help="List the stored secrets instead.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List plaintext secrets in the files of all apps, masked. Commands move them into the keyring."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = common(ctx, home, as_json)
        return
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.secrets.stored() if stored else client.secrets.plaintext())
    if invocation.as_json:
        output.document(found)
    elif stored:
        _show_stored(found)
    else:
        _show_found(found)


@app.command("move")
def move(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these secrets, or those of these servers.", show_default=False),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move plaintext secrets into the keyring, after showing what changes in which file."""
    invocation = begin(ctx, home, as_json)
    plan = ask_crib(invocation, lambda client: client.secrets.move(names or (), dry_run=True))
    if dry_run or not plan["moved"]:
        _report_moves(invocation, plan)
        return
    if not yes:
        _show_plan(plan)
        _agree("Move them?")
    _report_moves(invocation, ask_crib(invocation, lambda client: client.secrets.move(names or ())))


@app.command("undo")
def undo(
    ctx: typer.Context,
    dry_run: DryRunOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo the last move: every file is restored byte for byte."""
    invocation = begin(ctx, home, as_json)
    answer = ask_crib(invocation, lambda client: client.secrets.undo(dry_run=dry_run))
    if invocation.as_json:
        output.document(answer)
        return
    verb = "Would restore" if dry_run else "Restored"
    for file in dict.fromkeys(change["file"] for change in answer["changes"]):
        output.line(f"{verb} {file}")
    for app_name in answer["disconnected"]:
        output.line(f"{'Would disconnect' if dry_run else 'Disconnected'} {app_name}")
    for name in answer["removed"]:
        output.line(f"{'Would remove' if dry_run else 'Removed'} the stored secret {name}")


@app.command("set")
def set_secret(
    ctx: typer.Context,
    name: NameArgument,
    project: Annotated[bool, typer.Option("--project", help="Store it for the current project only.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store or replace a secret, and restart the servers that use it. The value is read from standard input."""
    invocation = begin(ctx, home, as_json)
    value = _read_value(name)
    answer = ask_crib(invocation, lambda client: client.secrets.set(name, value, project=project))
    if invocation.as_json:
        output.document(answer)
        return
    output.line(f"Stored {name} in the {_PLACES[answer['place']]}.")
    if answer["restarted"]:
        output.line(f"Restarted {', '.join(output.one_line(each) for each in answer['restarted'])}.")
    output.note(f"Definitions refer to it as ${{keyring:{name}}}.")


@app.command("remove")
def remove(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Remove a stored secret that no definition refers to."""
    invocation = begin(ctx, home, as_json)
    answer = ask_crib(invocation, lambda client: client.secrets.remove(name))
    if invocation.as_json:
        output.document(answer)
    else:
        output.line(f"Removed {name}.")


def _read_value(name: str) -> str:
    """Return the value from a prompt without echo, or from standard input without its last line break."""
    if can_ask():
        output.prompt(f"Value of {name} (not shown):")
        return getpass.getpass("")
    value = sys.stdin.read()
    return value.removesuffix("\n").removesuffix("\r")


def _agree(question: str) -> None:
    if not can_ask():
        hint = "Review the output above, then run the command in a terminal, or add `--yes`."
        raise InvalidRequest(
            "cli.usage", "Changing files of apps requires confirmation, but there is no terminal.", hint
        )
    if not confirm(question):
        raise Denied("client.declined", "Nothing was changed.")


def _show_found(found: "list[JsonObject]") -> None:
    if not found:
        output.note("No plaintext secrets found.")
        return
    headers = ("name", "value", "server", "field", "app", "file")
    output.table(headers, [(*_cells(each), each["client"], _place(each)) for each in found])
    output.note("Move them into the keyring with `toolcrib mcp secrets move`.")


def _show_stored(found: "list[JsonObject]") -> None:
    if not found:
        output.note("No secrets are stored. Store one with `toolcrib mcp secrets set NAME`.")
        return
    output.table(("name", "stored in", "project", "used by", "created"), [_stored_row(each) for each in found])


def _stored_row(secret: "JsonObject") -> tuple[str, ...]:
    used_by, created = ", ".join(secret["usedBy"]), output.when(secret["created"])
    return secret["name"], _PLACES[secret["place"]], secret["project"] or "", used_by, created


def _report_moves(invocation: Invocation, answer: "JsonObject") -> None:
    if invocation.as_json:
        output.document(answer)
        return
    if answer["dryRun"]:
        _show_plan(answer)
        return
    for each in answer["moved"]:
        output.line(f"Moved {each['name']} of {output.one_line(each['server'])}: {_HOW[each['how']]} ({each['file']}).")
    for title in answer["connected"]:
        output.line(f"Connected {title} to this crib. Restart it to load the change.")
    _note_skipped(answer)
    if answer["moved"]:
        output.note("Undo with `toolcrib mcp secrets undo`.")


def _show_plan(plan: "JsonObject") -> None:
    for each in plan["moved"]:
        output.note(f"{each['name']} of {output.one_line(each['server'])} ({each['value']}): {_HOW[each['how']]}.")
    for title in plan["connected"]:
        output.note(f"{title} will be connected to this crib.")
    for change in plan["changes"]:
        if change["changed"]:
            output.line(str(change["diff"]))
    _note_skipped(plan)
    if not plan["moved"] and not plan["skipped"]:
        output.note("No plaintext secrets found.")


def _note_skipped(plan: "JsonObject") -> None:
    for each in plan["skipped"]:
        output.note(f"Not moved: {each['name']} of {output.one_line(each['server'])}: {each['reason']}.")


def _cells(each: "JsonObject") -> tuple[str, str, str, str]:
    return each["name"], each["value"], output.one_line(each["server"]), output.one_line(each["field"])


def _place(each: "JsonObject") -> str:
    return f"{each['file']}:{each['line']}" if each["line"] else str(each["file"])
