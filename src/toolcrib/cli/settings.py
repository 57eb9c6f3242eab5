"""`toolcrib settings`: every setting with its value and origin.

Shows the settings of the running crib, if there is one. Must work when nothing else does: neither needs nor creates a
home.
"""

from typing import TYPE_CHECKING

import typer

from toolcrib.cli import output
from toolcrib.cli.options import HomeOption, JsonOption, common

if TYPE_CHECKING:
    from toolcrib.base.home import Home, RunInfo
    from toolcrib.model.json import JsonObject


def show(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show every setting with its value and origin."""
    from toolcrib.agents.sessions.programs import Programs
    from toolcrib.base.home import Home, find_holder
    from toolcrib.base.settings import Environment, read_settings

    options = common(ctx, home, as_json)
    loaded = read_settings(Environment.current(), {"home": options.home})
    place = Home(loaded.settings.home)
    holder = find_holder(place) if place.lock_file.exists() else None
    rows = (_running(holder, place) if holder else None) or loaded.settings.describe()
    if options.as_json:
        output.document(rows)
    else:
        output.table(("setting", "value", "from"), [(row["name"], _text(row), row["origin"]) for row in rows])
    agents = Programs(place.settings_file).read().wrong.values()
    output.warn_all([problem.to_json() for problem in (*loaded.errors, *loaded.problems, *agents)])
    if loaded.errors:
        raise typer.Exit(1)


def _text(row: "JsonObject") -> str:
    return "-" if row["value"] is None else str(row["value"])


def _running(holder: "RunInfo", place: "Home") -> "list[JsonObject] | None":
    """Return the settings of the running crib, or None if it does not respond."""
    from toolcrib.base.home import owner_token
    from toolcrib.cli.loop import run
    from toolcrib.model.errors import ToolcribError
    from toolcrib.web.api_client.api_client import ApiClient

    async def ask() -> "list[JsonObject] | None":
        try:
            async with ApiClient(holder.url, owner_token(place), source="cli") as client:
                return await client.settings()
        except ToolcribError:
            return None

    rows = run(ask)
    if rows:
        output.note(f"Settings of the running crib (process {holder.pid}).")
    return rows
