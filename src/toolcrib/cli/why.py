"""`toolcrib why`: explains a decision step by step, with the smallest change that would flip it. Read-only."""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin
from toolcrib.model.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

_VERDICTS = {
    "allow": "runs",
    "ask": "requires approval",
    "deny": "is denied",
    "hidden": "is hidden from this principal",
    "unknown": "does not exist",
}


def why(
    ctx: typer.Context,
    tool: Annotated[
        str | None,
        typer.Argument(metavar="SERVER/TOOL", help="The tool.", show_default=False, autocompletion=names_of("tool")),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="Check as this agent.", autocompletion=names_of("agent"))
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Check in this session.", autocompletion=names_of("session")),
    ] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="S", help="Check from this source.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="M", help="Check in this mode.")] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="DIR", help="Check from this directory.")] = None,
    args: Annotated[
        str | None, typer.Option("--args", metavar="JSON", help="Check a call with these arguments.")
    ] = None,
    record: Annotated[
        int | None, typer.Option("--record", metavar="ID", help="Explain a recorded call instead.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain the decision for a tool, step by step, and what would change it."""
    from pathlib import Path

    from toolcrib.cli.arguments import check_source, parse_arguments

    if (tool is None) is (record is None):
        raise InvalidRequest("cli.usage", "Use either SERVER/TOOL or --record.")
    check_source(source)
    if args is not None:
        parse_arguments(args)
    cwd = str(Path(project).expanduser().absolute()) if project is not None else None
    asked = {"agent": agent, "session": session, "source": source, "mode": mode, "cwd": cwd, "args": args}
    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "JsonObject":
        return await client.permissions.explain(tool, record=record, **asked)

    found = ask_crib(invocation, work)
    invocation.show(found, show_explanation)
    if found["verdict"] == "unknown":
        raise typer.Exit(NotFound.exit_code)


def show_explanation(found: "JsonObject") -> None:
    """Print the steps of a decision."""
    from toolcrib.cli.sessions.show import describe_marks

    principal = found["principal"]
    named = (f"{part} {principal[part]}" for part in ("source", "mode", "agent", "session", "cwd") if part in principal)
    output.line(f"{found['ref']} {_VERDICTS[found['verdict']]} ({found['verdict']}).")
    output.line(f"principal: {principal['name']}, {', '.join(named)}")
    if read := describe_marks(found):
        output.line(f"has read:  {output.one_line(read, 1000)}")
    if recorded := found.get("recorded"):
        doubt = "; the record does not contain all arguments" if recorded["uncertain"] else ""
        output.line(f"record {recorded['auditId']} at {recorded['at']}: decided {recorded['decision']}{doubt}")
    output.line()
    output.table(("step", "", "effect", "rule", "origin", "why"), [_row(step, found) for step in found["steps"]])
    if flip := found.get("flip"):
        output.line(f"\nTo make it {flip['verdict']}:")
        for change in flip["changes"]:
            output.line(f"  {output.one_line(change['change'], 1000)}")
    if nearest := found.get("nearest"):
        output.line(f"\nDid you mean {' or '.join(nearest)}?")


def _row(step: "JsonObject", found: "JsonObject") -> tuple[str, ...]:
    from toolcrib.cli.rules import describe_origin

    sign = "=>" if step == found["decidedBy"] else ("+" if step["matched"] else "-")
    origin = describe_origin(step["origin"]) if "origin" in step else ""
    return step["step"], sign, step["effect"], step.get("rule", ""), origin, step["reason"]
