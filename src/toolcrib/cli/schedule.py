"""`toolcrib schedule`: agents that are given a prompt at set times.

Above: `main`. Below: `client`, through `crib`; `schedule_show` has the words. A schedule is followed while a crib runs;
a command on its own makes and changes them, and runs one only where it waits for its end.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin, common
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="schedule", rich_markup_mode=None)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The schedule.", show_default=False)]

_POLL_SECONDS = 0.3


@app.callback()
def schedule(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Agents that are given a prompt at set times: list, add, pause, resume, run, remove."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_schedules(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List schedules: when, who, how the last run ended."""
    from toolcrib.cli.schedule_show import show_schedules

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.list())
    if invocation.as_json:
        output.document(found)
    else:
        show_schedules(found)


@app.command("show")
def show(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show one schedule, and what would keep it from running."""
    from toolcrib.cli.schedule_show import show_schedule

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.get(id))
    if invocation.as_json:
        output.document(found)
    else:
        show_schedule(found)


@app.command("add")
def add(
    ctx: typer.Context,
    agent: Annotated[str, typer.Option("--agent", metavar="A", help="Who does it.", show_default=False)],
    prompt: Annotated[str, typer.Option("--prompt", metavar="P", help="What it is told.", show_default=False)],
    cron: Annotated[str | None, typer.Option("--cron", metavar="C", help='When: "0 9 * * 1-5".')] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="Z", help="Of --cron; UTC if not given.")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="SPAN", help="When: 30m, 2h, 1d.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="ISO", help="When: once, 2026-11-16T09:00.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="N", help="What it is called.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Where it works; here if not given.")] = None,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", metavar="S/T", help="What it cannot do without; may be repeated.")
    ] = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="M", help="How far its sessions may go.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="M", help="Which model thinks for it.")] = None,
    retries: Annotated[int, typer.Option("--retries", metavar="N", help="Tries after a failed run.")] = 0,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="O", help="A run is due during one: skip, wait.")
    ] = "skip",
    missed: Annotated[
        str, typer.Option("--missed", metavar="W", help="Runs nobody was there for: once, skip.")
    ] = "once",
    jitter: Annotated[int, typer.Option("--jitter", metavar="S", help="Begin up to so many seconds later.")] = 0,
    max_seconds: Annotated[float | None, typer.Option("--max-seconds", metavar="S", help="A run's time.")] = None,
    max_usd: Annotated[float | None, typer.Option("--max-usd", metavar="USD", help="A run's cost.")] = None,
    max_turns: Annotated[int | None, typer.Option("--max-turns", metavar="N", help="A run's turns.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule: exactly one of --cron, --every and --at says when."""
    from toolcrib.cli.schedule_show import schedule_body, show_schedule

    limits: JsonObject = {"seconds": max_seconds, "costUsd": max_usd, "turns": max_turns}
    fields: JsonObject = {
        "agentId": agent, "prompt": prompt, "cron": cron, "timezone": timezone, "name": name, "tools": tool,
        "mode": mode, "model": model, "retries": retries, "overlap": overlap, "missed": missed, "jitterSeconds": jitter,
    }  # fmt: skip
    body = schedule_body(every, at, cwd, limits, fields)
    invocation = begin(ctx, home, as_json)

    made, is_alone = ask_crib(invocation, lambda client: _added(client, invocation, body))
    if invocation.as_json:
        output.document(made)
    else:
        show_schedule(made)
    if is_alone:
        output.note("No crib runs: schedules are followed while `toolcrib serve` does.")


async def _added(client: "Client", invocation: Invocation, body: "JsonObject") -> "tuple[JsonObject, bool]":
    from toolcrib.cli.crib import is_own

    return await client.schedules.add(body), is_own(invocation.settings)


@app.command("pause")
def pause(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Let a schedule rest; a run that goes on is not touched."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.pause(id))
    if invocation.as_json:
        output.document(found)
    else:
        output.line(f"{found['name']} is paused.")


@app.command("resume")
def resume(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Follow a schedule again, with its failures forgotten."""
    from toolcrib.cli.schedule_show import show_schedule

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.resume(id))
    if invocation.as_json:
        output.document(found)
    else:
        show_schedule(found)


@app.command("run")
def run(
    ctx: typer.Context,
    id: IdArgument,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until it has ended; a run that fails is exit code 1.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a run now, whatever the time."""
    from toolcrib.cli.schedule_show import show_run

    invocation = begin(ctx, home, as_json)

    async def work(client: "Client") -> "JsonObject":
        from toolcrib.cli.crib import is_own

        if not wait and is_own(invocation.settings):
            message = "No crib runs that could go on with it after this command has ended."
            raise InvalidRequest("cli.usage", message, "Start one with `toolcrib serve`, or give --wait.")
        begun = await client.schedules.run(id)
        return await _ended(client, id, begun) if wait else begun

    done = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(done)
    else:
        show_run(done)
    if wait and done["state"] != "completed":
        raise typer.Exit(1)


async def _ended(client: "Client", id: str, begun: "JsonObject") -> "JsonObject":
    """The run as it ended, after its last try."""
    import anyio

    retries = int((await client.schedules.get(id))["retries"])
    while True:
        runs = [each for each in await client.schedules.history(id) if each["dueAt"] == begun["dueAt"]]
        newest = max(runs, key=lambda each: each["attempt"], default=begun)
        is_last = newest["state"] != "failed" or newest["attempt"] > retries
        if newest["state"] != "running" and is_last:
            return newest
        await anyio.sleep(_POLL_SECONDS)


@app.command("history")
def history(
    ctx: typer.Context,
    id: IdArgument,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")] = 20,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the runs of a schedule, the newest first."""
    from toolcrib.cli.schedule_show import show_history

    invocation = begin(ctx, home, as_json)
    runs = ask_crib(invocation, lambda client: client.schedules.history(id, limit))
    if invocation.as_json:
        output.document(runs)
    else:
        show_history(runs)


@app.command("remove")
def remove(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Remove a schedule with its history; the sessions of its runs stay."""
    invocation = begin(ctx, home, as_json)
    ask_crib(invocation, lambda client: client.schedules.remove(id))
    if invocation.as_json:
        output.document({"id": id})
    else:
        output.line(f"Removed {id}.")
