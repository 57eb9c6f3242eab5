"""`toolcrib stop-all` and `toolcrib resume-all`: the kill switch.

`stop-all` writes the marker file first, so it works in any state of the crib and its database. A running crib then
confirms, or notices the marker within a second. If the marker cannot be written, a running crib stops anyway.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject


def stop_all(
    ctx: typer.Context,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="The reason, for the audit log.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop all sessions, schedule runs and calls, and suspend named tokens, until `resume-all`."""
    from toolcrib.base.home import find_holder, prepare_home
    from toolcrib.base.stop_switch import StopSwitch
    from toolcrib.model.errors import ConfigError, ToolcribError, Unavailable

    invocation = begin(ctx, home, as_json)
    place = prepare_home(invocation.settings.home)
    status: JsonObject = {}
    unwritten: ConfigError | None = None
    try:
        status = {"state": "stopped", "stopped": StopSwitch(place.stop_marker).engage("owner", reason).to_json()}
    except ConfigError as error:
        unwritten = error
    failure: ToolcribError | None = None
    try:
        status = ask_crib(invocation, lambda client: client.stop_all(reason))
    except ToolcribError as error:
        failure = error
    if failure is not None and unwritten is not None:
        raise unwritten if find_holder(place) is None else failure
    result: JsonObject = {**status, "confirmed": failure is None}
    if not invocation.as_json:
        output.line("Stopped. Calls and sessions are suspended until `toolcrib resume-all`.")
    if failure is not None and find_holder(place) is not None:
        message = f"The running crib did not confirm that it stopped: {failure.message}"
        hint = "A working crib stops within a second; otherwise, end its process."
        unconfirmed = Unavailable("crib.unreachable", message, hint)
        output.failure(unconfirmed, as_json=invocation.as_json, result=result)
        raise typer.Exit(unconfirmed.exit_code)
    if invocation.as_json:
        output.document(result)
    if failure is not None:
        output.note(f"note: The stop will be recorded in the audit log at the next start: {failure.message}")


def resume_all(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Resume after `stop-all`."""
    invocation = begin(ctx, home, as_json)
    status = ask_crib(invocation, lambda client: client.resume_all())
    invocation.confirm(status, "Resumed. Sessions continue with their next message, schedules at their next run.")
