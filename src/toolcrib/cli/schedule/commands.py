"""`toolcrib schedule`: agents that receive a prompt at set times.

Schedules run only while a crib runs. A command without a running crib can edit schedules, and runs one only with
`--wait`.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, Invocation, JsonOption, begin, common
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="schedule", rich_markup_mode=None, cls=CommandGroup)

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The id of the schedule.", show_default=False, autocompletion=names_of("schedule")
    ),
]

_POLL_SECONDS = 0.3


@app.callback()
def schedule(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Manage schedules: agents that receive a prompt at set times."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_schedules(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List schedules with cadence, agent and last run."""
    from toolcrib.cli.schedule.show import show_schedules

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.list())
    invocation.show(found, show_schedules)


@app.command("show")
def show(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a schedule, and what would prevent it from running."""
    from toolcrib.cli.schedule.show import show_schedule

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.get(id))
    invocation.show(found, show_schedule)


@app.command("add")
def add(
    ctx: typer.Context,
    agent: Annotated[
        str,
        typer.Option(
            "--agent", metavar="A", help="The agent to run.", show_default=False, autocompletion=names_of("agent")
        ),
    ],
    prompt: Annotated[str, typer.Option("--prompt", metavar="P", help="The prompt.", show_default=False)],
    cron: Annotated[str | None, typer.Option("--cron", metavar="C", help='Cron fields: "0 9 * * 1-5".')] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="Z", help="The time zone of --cron; UTC by default.")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="SPAN", help="The interval: 30m, 2h, 1d.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="ISO", help="Run once: 2026-11-16T09:00.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="N", help="The name.")] = None,
    cwd: Annotated[
        str | None, typer.Option("--cwd", metavar="DIR", help="The working directory; the current one by default.")
    ] = None,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", metavar="S/T", help="A tool that the run requires; repeatable.")
    ] = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="M", help="The permission mode.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="M", help="The model to use.")] = None,
    retries: Annotated[int, typer.Option("--retries", metavar="N", help="Retries after a failed run.")] = 0,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="O", help="If the previous run is still running: skip or wait.")
    ] = "skip",
    missed: Annotated[
        str, typer.Option("--missed", metavar="W", help="Runs missed while the crib was off: once or skip.")
    ] = "once",
    jitter: Annotated[int, typer.Option("--jitter", metavar="S", help="Maximum random delay, in seconds.")] = 0,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", metavar="S", help="Time limit, in seconds.")
    ] = None,
    max_usd: Annotated[float | None, typer.Option("--max-usd", metavar="USD", help="Cost limit, in USD.")] = None,
    max_turns: Annotated[int | None, typer.Option("--max-turns", metavar="N", help="Turn limit.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule. Give exactly one of --cron, --every and --at."""
    from toolcrib.cli.schedule.show import schedule_body, show_schedule

    limits: JsonObject = {"seconds": max_seconds, "costUsd": max_usd, "turns": max_turns}
    fields: JsonObject = {
        "agentId": agent, "prompt": prompt, "cron": cron, "timezone": timezone, "name": name, "tools": tool,
        "mode": mode, "model": model, "retries": retries, "overlap": overlap, "missed": missed, "jitterSeconds": jitter,
    }  # fmt: skip
    body = schedule_body(every, at, cwd, limits, fields)
    invocation = begin(ctx, home, as_json)

    made, is_alone = ask_crib(invocation, lambda client: _add(client, invocation, body))
    invocation.show(made, show_schedule)
    if is_alone:
        output.note("No crib is running. Schedules run only while `toolcrib serve` is running.")


async def _add(client: "ApiClient", invocation: Invocation, body: "JsonObject") -> "tuple[JsonObject, bool]":
    from toolcrib.cli.crib import is_own

    return await client.schedules.add(body), is_own(invocation.settings)


@app.command("pause")
def pause(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Pause a schedule; a run in progress continues."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.pause(id))
    invocation.confirm(found, f"{found['name']} is paused.")


@app.command("resume")
def resume(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Resume a schedule and reset its failure count."""
    from toolcrib.cli.schedule.show import show_schedule

    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.schedules.resume(id))
    invocation.show(found, show_schedule)


@app.command("run")
def run(
    ctx: typer.Context,
    id: IdArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the run to end; exit with 1 if it fails.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a run now."""
    from toolcrib.cli.schedule.show import show_run

    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "JsonObject":
        from toolcrib.cli.crib import is_own

        if not wait and is_own(invocation.settings):
            message = "No crib is running that could continue the run after this command exits."
            raise InvalidRequest("cli.usage", message, "Start one with `toolcrib serve`, or use --wait.")
        begun = await client.schedules.run(id)
        return await _wait_for_end(client, id, begun) if wait else begun

    done = ask_crib(invocation, work)
    invocation.show(done, show_run)
    if wait and done["state"] != "completed":
        raise typer.Exit(1)


async def _wait_for_end(client: "ApiClient", id: str, begun: "JsonObject") -> "JsonObject":
    """Return the run after its last attempt."""
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
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Maximum number of runs.")] = 20,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the runs of a schedule, newest first."""
    from toolcrib.cli.schedule.show import show_history

    invocation = begin(ctx, home, as_json)
    runs = ask_crib(invocation, lambda client: client.schedules.history(id, limit))
    invocation.show(runs, show_history)


@app.command("remove")
def remove(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Remove a schedule and its history; the sessions of its runs are kept."""
    invocation = begin(ctx, home, as_json)
    ask_crib(invocation, lambda client: client.schedules.remove(id))
    if invocation.as_json:
        output.document({"id": id})
    else:
        output.line(f"Removed {id}.")
