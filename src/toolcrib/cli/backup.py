"""`toolcrib backup` and `toolcrib restore`: copy the database, and restore a copy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.host.restore import Restore
    from toolcrib.model.json import JsonObject


def backup(
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The file to write; in the home by default.", show_default=False),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the backups in the home.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up the database while the crib runs: agents, sessions, rules, audit log. Secrets are not included."""
    invocation = begin(ctx, home, as_json)
    if show:
        _list(invocation, ask_crib(invocation, lambda client: client.backups()))
        return
    to = str(file.expanduser().absolute()) if file is not None else None
    made = ask_crib(invocation, lambda client: client.create_backup(to))
    invocation.confirm(made, f"Wrote {made['file']} ({made['bytes']} bytes, up to audit record {made['record']}).")


def _list(invocation: Invocation, found: "list[JsonObject]") -> None:
    if invocation.as_json:
        output.document(found)
    elif found:
        rows = [(output.when(each["at"]), str(each["record"]), str(each["bytes"]), each["file"]) for each in found]
        output.table(("at", "record", "bytes", "file"), rows)
    else:
        output.note("No backups found. Create one with `toolcrib backup`.")


def restore(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The backup to restore; lists all backups if omitted.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the database with a backup while no crib runs; the old one is kept next to it."""
    from toolcrib.base.home import prepare_home
    from toolcrib.cli.loop import run
    from toolcrib.host.backups import kept_backups

    invocation = begin(ctx, home, as_json)
    if file is None:
        place = prepare_home(invocation.settings.home)
        _list(invocation, [each.to_json() for each in kept_backups(place)])
        return
    if not yes and not can_ask():
        raise InvalidRequest(
            "cli.usage",
            "Restoring requires confirmation, but there is no terminal.",
            "Add `--yes` to skip the confirmation.",
        )
    run(lambda: _restore(invocation, file.expanduser().absolute(), yes))


async def _restore(invocation: Invocation, file: Path, yes: bool) -> None:
    from toolcrib.host.restore import restoring
    from toolcrib.model.principals import Principal

    async with restoring(invocation.settings, file) as restore:
        _print_plan(restore)
        if not yes and not confirm("Replace the database with this backup?"):
            raise typer.Exit(1)
        aside = await restore.execute(Principal("owner", "owner", "cli"))
        if invocation.as_json:
            output.document({**restore.plan.to_json(), "replaced": str(aside)})
        else:
            output.line(f"Restored {file}. The previous database is in {aside}.")


def _print_plan(restore: "Restore") -> None:
    plan = restore.plan
    output.note(f"The backup was made at {plan.backup.at}, up to audit record {plan.backup.number}.")
    if plan.lost:
        output.note(f"Everything after it will be lost: {plan.lost} audit records, up to {plan.end}.")
    for finding in plan.findings:
        output.note(f"warning: The audit chain of the backup is broken: {finding}")
