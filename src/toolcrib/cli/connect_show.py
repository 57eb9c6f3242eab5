"""Connections of tools as words and tables for a person. Above: `connect`. Below: `output`."""

from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.cli.mcp_show import show_transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolcrib.model.json import JsonObject

_STATES = {
    "connected": "connected",
    "stale": "needs repair",
    "not_connected": "not connected",
    "not_installed": "not found",
}


def show_clients(clients: "Sequence[JsonObject]") -> None:
    """The tools that are here or connected, then how many others could be."""
    here = [each for each in clients if each["state"] != "not_installed"]
    if here:
        rows = [row for each in here for row in _rows(each)]
        output.table(("client", "state", "over", "agent", "other servers", "file"), rows)
    else:
        output.note("No tool that could be connected was found on this machine.")
    for each in here:
        for connection in each["connections"]:
            for reason in connection["stale"]:
                output.line(f"{each['title']}: {reason}.\n  next: toolcrib connect {_words(each, connection)}")
    missing = [each["client"] for each in clients if each["state"] == "not_installed"]
    if missing:
        output.note(f"Not found: {', '.join(missing)}.")
    if any(each["state"] == "not_connected" for each in here):
        output.note("Connect one with `toolcrib connect CLIENT`, all with `toolcrib connect --all`.")


def show_plan(plan: "JsonObject", say: "Callable[[str], None]") -> None:
    """What connecting a tool would change."""
    change, moved = plan["change"], plan["moved"]
    for reason in plan["reasons"]:
        say(f"{plan['title']} has a stale entry: {reason}.")
    if not change["changed"]:
        say(f"{plan['title']} is connected already ({change['file']}).")
    else:
        say(str(change["diff"]))
    for each in moved["skipped"] if moved is not None else ():
        say(f"stays in {plan['title']}: {each['name']}: {each['reason']}")
    if moved is not None and moved["change"] is not None:
        say(str(moved["change"]["diff"]))


def show_done(done: "JsonObject") -> None:
    """What connecting a tool did."""
    change, title = done["change"], done["title"]
    how = "over HTTP, with a token of its own" if done["type"] == "http" else "as a process that it starts"
    who = f" as {done['agent']}" if done["agent"] is not None else ""
    if not change["changed"]:
        output.note(f"Nothing to do: {title} is connected already ({change['file']}).")
    elif done["reasons"]:
        output.line(f"Repaired {title}{who}: {'; '.join(done['reasons'])} ({change['file']}).")
    else:
        output.line(f"Connected {title}{who} {how} ({change['file']}).")
    if done["moved"] is not None:
        show_transfer(done["moved"], "moved  ")
    if change["changed"]:
        words = f"{done['client']} --agent {done['agent']}" if done["agent"] is not None else done["client"]
        output.note(f"Restart {title} if it runs. Take it back with `toolcrib connect {words} --undo`.")


def show_undone(undone: "JsonObject") -> None:
    """What taking it back did."""
    change, title = undone["change"], undone["title"]
    if change is not None and change["dryRun"]:
        output.line(str(change["diff"]))
        return
    if change is None:
        output.line(f"{title}: its file did not name this crib any more.")
    elif undone["exact"]:
        output.line(f"{title} is disconnected: {change['file']} is what it was before.")
    else:
        output.line(f"{title} is disconnected: others changed {change['file']} since, so only the entry is gone.")
    if undone["revokedToken"] is not None:
        output.note(f"The token {undone['revokedToken']!r} is revoked.")


def _rows(client: "JsonObject") -> "list[tuple[str, ...]]":
    others = str(client["others"] or "")
    if not client["connections"]:
        return [(client["client"], _STATES[client["state"]], client["type"], "", others, client["file"])]
    return [
        (
            client["client"],
            _STATES["stale" if each["stale"] else "connected"],
            each["type"],
            each["agent"] or "",
            others,
            f"{each['file']}:{each['line']}" if each["line"] else each["file"],
        )
        for each in client["connections"]
    ]


def _words(client: "JsonObject", connection: "JsonObject") -> str:
    agent = f" --agent {connection['agent']}" if connection["agent"] is not None else ""
    return f"{client['client']}{agent}"
