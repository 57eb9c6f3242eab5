"""`toolcrib rules suggest`: the smallest tool permissions that cover what an agent used."""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

_MOST_NAMES = 10


def suggest(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="Only for this agent.", autocompletion=names_of("agent"))
    ] = None,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=3650, help="Number of days of the record to examine.")
    ] = 30,
    is_applied: Annotated[
        bool, typer.Option("--apply", help="Set the suggested permissions. Requires --agent.", show_default=False)
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Suggest the smallest tool permissions that cover what agents used and were approved for."""
    if is_applied and agent is None:
        raise InvalidRequest("cli.usage", "--apply needs an agent.", "Add --agent A.")
    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "list[JsonObject]":
        found = await client.permissions.suggestions(agent, days)
        if is_applied:
            (only,) = found
            if not only["used"]:
                message = f"Agent {agent} has no recorded calls in the last {days} days, so nothing is applied."
                raise InvalidRequest("request.invalid", message, "Use a larger number for --days.")
            body = {"toolPermissions": only["toolPermissions"], "version": only["version"]}
            await client.change_agent(only["agent"], body)
        return found

    found = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(found)
        return
    for each in found:
        _show(each, days)
        if is_applied:
            output.line(f"Applied. To undo it, run `toolcrib agents restore {each['agent']} {each['version']}`.")
    if not found:
        output.note(f"No agent has recorded calls in the last {days} days.")


def _show(found: "JsonObject", days: int) -> None:
    agent = found["agent"]
    if not found["used"]:
        output.note(f"Agent {agent} has no recorded calls in the last {days} days.")
        return
    output.line(f"Agent {agent} used {len(found['used'])} tools in the last {days} days:")
    output.table(("tool", "calls"), [(each["tool"], str(each["calls"])) for each in found["used"]])
    names = ", ".join(found["lost"][:_MOST_NAMES])
    more = found["lostCount"] - min(_MOST_NAMES, len(found["lost"]))
    lost = f": {names}{f' and {more} more' if more else ''}" if names else ""
    output.line(f"With these permissions it would no longer see {found['lostCount']} tools{lost}.")
    simulation: JsonObject = found["simulation"]
    refused = simulation["differences"]
    output.line(f"{len(refused)} of {simulation['compared']} recorded calls would have been decided differently.")
    for each in refused[:_MOST_NAMES]:
        output.line(f"  {each['at']} {each['ref']}: {each['before']} → {each['after']}")
