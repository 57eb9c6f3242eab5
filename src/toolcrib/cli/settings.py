"""`toolcrib settings`: every setting, its value and where that comes from.

Above: `main`. Below: `settings`, and the running crib if there is one: what it runs with is what counts. It must work
where nothing else does, so it neither needs nor makes a home.
"""

from typing import TYPE_CHECKING

import typer

from toolcrib.cli import output
from toolcrib.cli.options import HomeOption, JsonOption, common

if TYPE_CHECKING:
    from toolcrib.home import Home, RunInfo
    from toolcrib.model.json import JsonObject


def show(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show every setting, its value and its origin."""
    from toolcrib.home import Home, find_holder
    from toolcrib.sessions.programs import Programs
    from toolcrib.settings import Environment, read_settings

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
    """The settings of the running crib, if it answers."""
    from toolcrib.cli.loop import run
    from toolcrib.client import Client
    from toolcrib.errors import ToolcribError
    from toolcrib.home import owner_token

    async def ask() -> "list[JsonObject] | None":
        try:
            async with Client(holder.url, owner_token(place), source="cli") as client:
                return await client.settings()
        except ToolcribError:
            return None

    rows = run(ask)
    if rows:
        output.note(f"These are the settings of the running crib (process {holder.pid}).")
    return rows
