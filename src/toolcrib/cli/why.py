"""`toolcrib why`: the chain of steps and rules that decided, and the smallest change that would flip it.

Above: `main`. Below: `client`, through `crib`. It only reads.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin
from toolcrib.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

_VERDICTS = {
    "allow": "runs",
    "ask": "runs after a person approved it",
    "deny": "is refused",
    "hidden": "does not exist for this asker",
    "unknown": "is not known",
}


def why(
    ctx: typer.Context,
    tool: Annotated[str | None, typer.Argument(metavar="SERVER/TOOL", help="The tool.", show_default=False)] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="A", help="As this agent.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="In this session.")] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="S", help="Asked from this source.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="M", help="In this mode.")] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="DIR", help="Asked from this directory.")] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="Called with these arguments.")] = None,
    record: Annotated[int | None, typer.Option("--record", metavar="ID", help="A call of the audit instead.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain what a call of a tool comes to, step by step, and what would change it."""
    from pathlib import Path

    from toolcrib.cli.arguments import check_source, parse_arguments

    if (tool is None) is (record is None):
        raise InvalidRequest("cli.usage", "Give either SERVER/TOOL or --record.")
    check_source(source)
    if args is not None:
        parse_arguments(args)
    cwd = str(Path(project).expanduser().absolute()) if project is not None else None
    asked = {"agent": agent, "session": session, "source": source, "mode": mode, "cwd": cwd, "args": args}
    invocation = begin(ctx, home, as_json)

    async def work(client: "Client") -> "JsonObject":
        return await client.permissions.explain(tool, record=record, **asked)

    found = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(found)
    else:
        show_explanation(found)
    if found["verdict"] == "unknown":
        raise typer.Exit(NotFound.exit_code)


def show_explanation(found: "JsonObject") -> None:
    """What decided, step by step."""
    asker = found["principal"]
    named = (f"{part} {asker[part]}" for part in ("source", "mode", "agent", "session", "cwd") if part in asker)
    output.line(f"{found['ref']} {_VERDICTS[found['verdict']]} ({found['verdict']}).")
    output.line(f"asker: {asker['name']}, {', '.join(named)}")
    if recorded := found.get("recorded"):
        doubt = "; the record does not hold all arguments" if recorded["uncertain"] else ""
        output.line(f"record {recorded['auditId']} of {recorded['at']}: {recorded['decision']} then{doubt}")
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
