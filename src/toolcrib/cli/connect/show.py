"""Formats app connections as text and tables."""

from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.cli.mcp.show import show_transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolcrib.model.json import JsonObject

_STATES = {
    "connected": "connected",
    "stale": "needs repair",
    "not_connected": "not connected",
    "not_installed": "not found",
}

NO_LEVEL = "a project's file names no token, so the app acts as you."
ASK_INSTEAD = "To require approval, run `toolcrib rules ask '*' --source ide --not-read-only`."


def show_clients(clients: "Sequence[JsonObject]") -> None:
    """Print installed or connected apps, then the names of the others."""
    here = [each for each in clients if each["state"] != "not_installed"]
    if here:
        rows = [row for each in here for row in _rows(each)]
        output.table(("client", "state", "over", "agent", "other servers", "file"), rows)
    else:
        output.note("No supported apps found on this machine.")
    costs = [row for each in here for connection in each["connections"] for row in _cost_rows(each, connection)]
    if costs:
        output.line("")
        output.table(("client", "agent", "--tools", "tools", "tokens", "saves"), costs)
        output.note(
            "Token counts are estimates. Change what an app lists with `toolcrib connect CLIENT --tools search`."
        )
    for each in here:
        for connection in each["connections"]:
            for reason in connection["stale"]:
                output.line(f"{each['title']}: {reason}.\n  next: toolcrib connect {_words(each, connection)}")
    missing = [each["client"] for each in clients if each["state"] == "not_installed"]
    if missing:
        output.note(f"Not found: {', '.join(missing)}.")
    if any(each["state"] == "not_connected" for each in here):
        output.note("Connect an app with `toolcrib connect CLIENT`, or all with `toolcrib connect --all`.")


def show_plan(plan: "JsonObject", say: "Callable[[str], None]") -> None:
    """Print what connecting an app would change."""
    change, moved = plan["change"], plan["moved"]
    for reason in plan["reasons"]:
        say(f"{plan['title']} has a stale entry: {reason}.")
    if not change["changed"]:
        say(f"{plan['title']} is already connected ({change['file']}).")
    else:
        say(str(change["diff"]))
    for each in moved["skipped"] if moved is not None else ():
        say(f"stays in {plan['title']}: {each['name']}: {each['reason']}")
    if moved is not None and moved["change"] is not None:
        say(str(moved["change"]["diff"]))


def show_done(done: "JsonObject", scope: str) -> None:
    """Print what connecting an app changed."""
    change, title = done["change"], done["title"]
    how = "over HTTP" if done["type"] == "http" else "over stdio"
    how += ", with its own token" if done["level"] is not None else ""
    identity = f" as {done['agent']}" if done["agent"] is not None else ""
    if not change["changed"]:
        output.note(f"Nothing to change: {title} is already connected ({change['file']}).")
    elif done["reasons"]:
        output.line(f"Repaired {title}{identity}: {'; '.join(done['reasons'])} ({change['file']}).")
    else:
        output.line(f"Connected {title}{identity} {how} ({change['file']}).")
    if done["moved"] is not None:
        show_transfer(done["moved"], "moved  ")
    (offer,) = (each for each in done["offers"] if each["tools"] == done["tools"])
    saved = f", {offer['saves']:,} fewer than with all tools" if offer["saves"] > 0 else ""
    noun = "tool" if offer["definitions"] == 1 else "tools"
    output.note(f"{title} receives {offer['definitions']} {noun}, about {offer['tokens']:,} tokens{saved}.")
    if done["tools"] == "chosen":
        output.note(f"{title} has a tool set. Choose its tools in the console under Connect, or `--tools all`.")
    elif done["tools"] != "all":
        words = {"search": "finds tools by search (`?tools=search`)", "code": "writes programs (`?tools=code`)"}
        output.note(f"{title} {words[done['tools']]} and does not list all of them. Change this with `--tools all`.")
    if done["level"] == "ask":
        output.note(f"Tools that are not read-only require your approval in {title}. Change this with `--level app`.")
    elif done["level"] is None:
        output.note(f"{title} decides which tools run: {NO_LEVEL} {ASK_INSTEAD}")
    if change["changed"]:
        words = f"{done['client']} --agent {done['agent']}" if done["agent"] is not None else done["client"]
        words += " --project" if scope == "project" else ""
        output.note(f"Restart {title} if it is running. Undo with `toolcrib connect {words} --undo`.")


def show_undone(undone: "JsonObject") -> None:
    """Print what disconnecting an app changed."""
    change, title = undone["change"], undone["title"]
    if change is not None and change["dryRun"]:
        output.line(str(change["diff"]))
        return
    if change is None:
        output.line(f"Disconnected {title}: its file no longer contained this crib.")
    elif undone["exact"]:
        output.line(f"Disconnected {title}: restored {change['file']}.")
    else:
        output.line(f"Disconnected {title}: removed only the entry, because {change['file']} was changed since.")
    if undone["revokedToken"] is not None:
        output.note(f"Revoked the token {undone['revokedToken']!r}.")


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


def _cost_rows(client: "JsonObject", connection: "JsonObject") -> "list[tuple[str, ...]]":
    """Return what a connection receives under each choice; the current one is marked."""
    return [
        (
            client["client"],
            connection["agent"] or "",
            f"{offer['tools']} (now)" if offer["tools"] == connection["tools"] else offer["tools"],
            str(offer["definitions"]),
            f"{offer['tokens']:,}",
            f"{offer['saves']:,}",
        )
        for offer in connection["offers"]
    ]


def _words(client: "JsonObject", connection: "JsonObject") -> str:
    agent = f" --agent {connection['agent']}" if connection["agent"] is not None else ""
    return f"{client['client']}{agent}"
