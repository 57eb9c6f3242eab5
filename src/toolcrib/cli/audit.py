"""`toolcrib audit`: what ran and who allowed it, whether the record is whole, and where old records go.

Above: `main`. Below: `client`, through `crib`. It must never remove a record without a person's word.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin, common
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="audit", invoke_without_command=True, rich_markup_mode=None)

_SHOWN = ("id", "at", "phase", "door", "principal", "tool", "decision", "outcome")


@app.callback()
def find(
    ctx: typer.Context,
    server: Annotated[str | None, typer.Option("--server", metavar="S", help="Calls of this server's tools.")] = None,
    tool: Annotated[str | None, typer.Option("--tool", metavar="T", help="Calls of this tool: T or S/T.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="A", help="Calls of this agent.")] = None,
    principal: Annotated[str | None, typer.Option("--principal", metavar="P", help="Calls of this asker.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Calls of this session.")] = None,
    door: Annotated[str | None, typer.Option("--door", metavar="D", help="Calls that came in here.")] = None,
    phase: Annotated[str | None, typer.Option("--phase", metavar="P", help="intent or outcome.")] = None,
    decision: Annotated[str | None, typer.Option("--decision", metavar="D", help="allow, ask, deny, hidden.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="From this time on (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this time (ISO 8601).")] = None,
    after: Annotated[int | None, typer.Option("--after", metavar="ID", help="Go on with older ones.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")] = 50,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write the whole chain as JSON lines instead; - prints it."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was called and who allowed it, newest first."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = common(ctx, home, as_json)
        return
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    invocation = begin(ctx, home, as_json)
    if export is not None:
        run(lambda: ask(invocation.settings, lambda client: _export(client, export)))
        return
    filters = {
        "server": server, "tool": tool, "agent": agent, "principal": principal, "session": session, "door": door,
        "phase": phase, "decision": decision, "since": since, "until": until, "after": after, "limit": limit,
    }  # fmt: skip
    records = run(lambda: ask(invocation.settings, lambda client: client.audit(**filters)))
    if invocation.as_json:
        output.document(records)
    elif records:
        output.table(_SHOWN, [_row(record) for record in records])
    else:
        output.note("There are no such records.")


async def _export(client: "Client", file: Path) -> None:
    """Write every record, the oldest first. A file is private: arguments may say what is nobody else's business."""
    if str(file) == "-":
        async for piece in client.export_audit():
            output.raw(piece)
        return
    count = 0
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as lines:
            async for piece in client.export_audit():
                lines.write(piece)
                count += piece.count(b"\n")
    except OSError as error:
        raise InvalidRequest("cli.usage", f"{file} cannot be written: {error.strerror}.") from error
    output.note(f"Wrote {count} records to {file}.")


@app.command("verify")
def verify(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Check that no record was changed, left out, moved or cut off."""
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    invocation = begin(ctx, home, as_json)
    report = run(lambda: ask(invocation.settings, lambda client: client.verify_audit()))
    if invocation.as_json:
        output.document(report)
    elif report["ok"]:
        output.line(f"The chain of {report['records']} records is whole.")
    else:
        output.line(f"The chain of {report['records']} records is broken:")
        for finding in report["findings"]:
            output.line(f"  {finding['message']}")
    if not report["ok"]:
        raise typer.Exit(1)


@app.command("seal")
def seal(
    ctx: typer.Context,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Only what is older.", show_default=False)
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move old records, but for the newest hundred, into sealed files; the chain stays whole."""
    invocation = begin(ctx, home, as_json)
    sealed = ask_crib(invocation, lambda client: client.seal_audit(older_than))
    if invocation.as_json:
        output.document(sealed)
        return
    for each in sealed:
        output.line(f"Sealed records {each['first']} to {each['last']} in {each['file']}.")
    if not sealed:
        output.note("There is nothing to seal.")


@app.command("segments")
def segments(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the files that old records were sealed in."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.audit_segments())
    if invocation.as_json:
        output.document(found)
    elif found:
        rows = [(str(each["first"]), str(each["last"]), each["sealedAt"], each.get("erasedAt", ""), each["file"])
                for each in found]  # fmt: skip
        output.table(("first", "last", "sealed", "erased", "file"), rows)
    else:
        output.note("All records are in the database.")


@app.command("erase")
def erase(
    ctx: typer.Context,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Files sealed before.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without being asked.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove sealed files for good; the chain keeps a record of each, and stays whole."""
    invocation = begin(ctx, home, as_json)
    if not yes:
        if not can_ask():
            raise InvalidRequest("cli.usage", "Erasing needs a person's yes, and nobody can be asked.", "Add --yes.")
        if not confirm(f"Remove every file that was sealed more than {older_than:g} days ago?"):
            raise typer.Exit(1)
    erased = ask_crib(invocation, lambda client: client.erase_audit(older_than))
    if invocation.as_json:
        output.document(erased)
        return
    for each in erased:
        output.line(f"Erased records {each['first']} to {each['last']} ({each['file']}).")
    if not erased:
        output.note("There is nothing to erase.")


def _row(record: "JsonObject") -> tuple[str, ...]:
    asker = record["principal"]
    who = "/".join(str(asker[part]) for part in ("name", "source", "agent") if part in asker)
    return (
        str(record["id"]),
        record["at"],
        record["phase"],
        record["door"],
        who,
        f"{record['server']}/{record['tool']}",
        record["decision"],
        _outcome(record),
    )


def _outcome(record: "JsonObject") -> str:
    if record["phase"] != "outcome":
        return ""
    took = f" in {record['durationMs']} ms" if "durationMs" in record else ""
    return ("failed" if record.get("isError") else "ok") + took
