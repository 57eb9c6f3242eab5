"""`toolcrib audit`: what ran and who allowed it, and whether the record is whole.

Above: `main`. Below: `client`, through `crib`. It only reads.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
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
