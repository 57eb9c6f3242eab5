"""`toolcrib audit`: search, verify, export and archive the audit log.

Must never delete a record without confirmation.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, JsonOption, begin, common
from toolcrib.model.errors import ConfigError, InvalidRequest, Unavailable
from toolcrib.model.times import duration

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="audit", invoke_without_command=True, rich_markup_mode=None, cls=CommandGroup)

ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="S", help="Only calls to this server.", autocompletion=names_of("server")),
]
ToolOption = Annotated[
    str | None,
    typer.Option("--tool", metavar="T", help="Only calls to this tool: T or S/T.", autocompletion=names_of("tool")),
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="A", help="Only calls by this agent.", autocompletion=names_of("agent")),
]
SessionOption = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Only calls in this session.", autocompletion=names_of("session")),
]
ViaOption = Annotated[
    str | None,
    typer.Option("--via", "--door", metavar="V", help="Only through this entry point, such as mcp, cli or console."),
]
_SHOWN = ("id", "at", "phase", "via", "principal", "tool", "decision", "outcome")


@app.callback()
def find(
    ctx: typer.Context,
    server: ServerOption = None,
    tool: ToolOption = None,
    agent: AgentOption = None,
    principal: Annotated[str | None, typer.Option("--principal", metavar="P", help="Only by this principal.")] = None,
    session: SessionOption = None,
    door: ViaOption = None,
    phase: Annotated[
        str | None, typer.Option("--phase", metavar="P", help="Only intent, outcome or checkpoint.")
    ] = None,
    decision: Annotated[
        str | None, typer.Option("--decision", metavar="D", help="Only allow, ask, deny or hidden.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only after this time (ISO 8601).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only before this time (ISO 8601).")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="WORDS", help="Only records with these words, such as an argument or a reason."),
    ] = None,
    after: Annotated[int | None, typer.Option("--after", metavar="ID", help="Only older than this record.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Maximum number of records.")
    ] = 50,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write the full chain as JSON Lines; - prints it."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show tool calls and their decisions, newest first."""
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
        "text": text,
    }  # fmt: skip
    records = run(lambda: ask(invocation.settings, lambda client: client.audit(**filters)))
    if invocation.as_json:
        output.document(records)
    elif records:
        output.table(_SHOWN, [_row(record) for record in records])
    else:
        output.note("No audit records found.")


async def _export(client: "ApiClient", file: Path) -> None:
    """Write every record, oldest first. The file is private, because arguments may be confidential."""
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
def verify(
    ctx: typer.Context,
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            "--anchor",
            metavar="FILE|git:DIR",
            help="Also verify these anchors; - reads standard input.",
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify that no record was changed, removed, reordered or truncated."""
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    invocation = begin(ctx, home, as_json)
    given = [_read_anchor(line) for line in sys.stdin] if "-" in (anchor or ()) else []
    sources = [_place(each) for each in anchor or () if each != "-"]
    try:
        report = run(lambda: ask(invocation.settings, lambda client: client.verify_audit(given, sources)))
    except ConfigError as error:  # exit code 1 is reserved for a broken chain, which was not checked here
        raise Unavailable(error.code, error.message, error.hint) from error
    if invocation.as_json:
        output.document(report)
    elif report["ok"]:
        plural = "" if report["anchors"] == 1 else "s"
        anchored = f" and matches {report['anchors']} anchor{plural}" if anchor else ""
        output.line(f"Verified {report['records']} records: the chain is intact{anchored}.")
    else:
        output.line(f"The chain of {report['records']} records is broken:")
        for finding in report["findings"]:
            output.line(f"  {finding['message']}")
    if note := report.get("note"):
        output.note(f"note: {note}")
    if not report["ok"]:
        raise typer.Exit(1)


@app.command("anchor")
def anchor(
    ctx: typer.Context,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE|URL|git:DIR",
            help="Append to a file, post to a webhook, or tag a git repository.",
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the end of the chain, or store it outside the home, to verify against later."""
    invocation = begin(ctx, home, as_json)
    place = _place(to) if to is not None else None
    made = ask_crib(invocation, lambda client: client.anchor_audit(place))
    if invocation.as_json or place is None:
        output.document(made)
    else:
        output.line(f"Anchored record {made['number']} in {place}.")


def _place(text: str) -> str:
    """Return an absolute target; relative paths are resolved from the working directory."""
    if text.startswith(("http://", "https://")):
        return text
    kind, path = ("git:", text.removeprefix("git:")) if text.startswith("git:") else ("", text)
    return f"{kind}{Path(path).expanduser().absolute()}"


def _read_anchor(line: str) -> "JsonObject":
    import json

    from toolcrib.model.json import is_object

    try:
        shape = json.loads(line)
    except ValueError:
        shape = None
    if not is_object(shape):
        raise InvalidRequest("audit.anchor", f"Invalid anchor: {line.strip()[:200]}")
    return shape


@app.command("seal")
def seal(
    ctx: typer.Context,
    older_than: Annotated[
        float,
        typer.Option("--older-than", metavar="DAYS", min=0, help="Only records older than this.", show_default=False),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move old records to sealed files, except the newest hundred; the chain stays intact."""
    invocation = begin(ctx, home, as_json)
    sealed = ask_crib(invocation, lambda client: client.seal_audit(older_than))
    if invocation.as_json:
        output.document(sealed)
        return
    for each in sealed:
        output.line(f"Sealed records {each['first']} to {each['last']} in {each['file']}.")
    if not sealed:
        output.note("Nothing to seal.")


@app.command("segments")
def segments(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the sealed files."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.audit_segments())
    if invocation.as_json:
        output.document(found)
    elif found:
        output.table(("first", "last", "sealed", "erased", "file"), [_segment_row(each) for each in found])
    else:
        output.note("No sealed files. All records are in the database.")


@app.command("erase")
def erase(
    ctx: typer.Context,
    older_than: Annotated[
        float,
        typer.Option("--older-than", metavar="DAYS", min=0, help="Only files sealed before this.", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete sealed files permanently; the chain records each and stays intact."""
    invocation = begin(ctx, home, as_json)
    if not yes:
        if not can_ask():
            raise InvalidRequest(
                "cli.usage",
                "Erasing requires confirmation, but there is no terminal.",
                "Add `--yes` to skip the confirmation.",
            )
        if not confirm(f"Permanently delete all files sealed more than {older_than:g} days ago?"):
            raise typer.Exit(1)
    erased = ask_crib(invocation, lambda client: client.erase_audit(older_than))
    if invocation.as_json:
        output.document(erased)
        return
    for each in erased:
        output.line(f"Erased records {each['first']} to {each['last']} ({each['file']}).")
    if not erased:
        output.note("Nothing to erase.")


def _segment_row(segment: "JsonObject") -> tuple[str, ...]:
    times = (output.when(segment["sealedAt"]), output.when(segment.get("erasedAt")))
    return str(segment["first"]), str(segment["last"]), *times, segment["file"]


def _row(record: "JsonObject") -> tuple[str, ...]:
    if record["phase"] == "checkpoint":
        heads = ", ".join(str(head["id"]) for head in record["heads"])
        return str(record["id"]), output.when(record["at"]), record["phase"], "", "", heads, "", ""
    principal = record["principal"]
    caller = "/".join(str(principal[part]) for part in ("name", "source", "agent") if part in principal)
    return (
        str(record["id"]),
        output.when(record["at"]),
        record["phase"],
        record["door"],
        caller,
        f"{record['server']}/{record['tool']}",
        record["decision"],
        _outcome(record),
    )


def _outcome(record: "JsonObject") -> str:
    if record["phase"] != "outcome":
        return ""
    if record.get("outcome") == "unknown":
        return "unknown"
    took = f" in {duration(record['durationMs'])}" if "durationMs" in record else ""
    return ("failed" if record.get("isError") else "ok") + took
