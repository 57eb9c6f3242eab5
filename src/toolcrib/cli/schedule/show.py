"""Formats schedules as text and tables, and parses times."""

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.model.json import JsonObject

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"(?:[0-9]{1,6}[smhd])+")


def seconds_of(span: str) -> int:
    """Return the seconds of a duration such as `30m`, `2h` or `1h30m`."""
    if not _SPAN.fullmatch(span):
        raise InvalidRequest("cli.usage", f"{span!r} is not an interval.", "Use a form such as 30m, 2h or 1d.")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([smhd])", span))


def moment(text: str) -> str:
    """Return a time with its UTC offset; the default is this machine's time zone."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        hint = "Use a form such as 2026-11-16T09:00 or 2026-11-16T09:00+01:00."
        raise InvalidRequest("cli.usage", f"{text!r} is not a date and time.", hint) from None


def schedule_body(
    every: str | None, at: str | None, cwd: str | None, limits: "JsonObject", fields: "JsonObject"
) -> "JsonObject":
    """Return the request body, without options that were not given."""
    given: JsonObject = {
        **fields,
        "everySeconds": seconds_of(every) if every is not None else None,
        "at": moment(at) if at is not None else None,
        "cwd": str(Path(cwd).expanduser().absolute()) if cwd is not None else None,
        "limits": {key: value for key, value in limits.items() if value is not None} or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def show_schedules(found: "Sequence[JsonObject]") -> None:
    """Print the list, by name."""
    if not found:
        output.note("No schedules found. Create one with `toolcrib schedule add`.")
        return
    output.table(("id", "name", "agent", "when", "next", "last run"), [_row(each) for each in found])


def _row(schedule: "JsonObject") -> tuple[str, ...]:
    following = schedule["next"]
    upcoming = "paused" if schedule["paused"] else output.when(following[0]) if following else "over"
    last = schedule.get("lastRun")
    ended = f"{last['state']} {output.when(last['startedAt'])}" if last else "-"
    return schedule["id"], schedule["name"], schedule["agentId"], schedule["words"], upcoming, ended


def show_schedule(schedule: "JsonObject") -> None:
    """Print a schedule: prompt, cadence, last run, and what would prevent the next."""
    facts = [
        ("schedule", schedule["id"]),
        ("name", schedule["name"]),
        ("agent", schedule["agentId"]),
        ("prompt", schedule["prompt"]),
        ("when", schedule["words"]),
        ("next", ", ".join(_time(each) for each in schedule["next"])),
        ("paused", (schedule.get("reason") or "yes") if schedule["paused"] else ""),
        ("directory", schedule["cwd"]),
        ("mode", schedule["mode"]),
        ("needs", ", ".join(schedule["tools"])),
        ("limits", ", ".join(f"{value} {key}" for key, value in schedule["limits"].items())),
        ("created by", schedule["createdBy"]),
        ("last run", _ending(schedule["lastRun"]) if "lastRun" in schedule else ""),
    ]
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<12} {output.one_line(str(value), 1000)}")
    readiness = schedule["readiness"]
    output.line("Ready to run." if readiness["ready"] else "Not ready to run.")
    output.warn_all(readiness["problems"])


def show_history(runs: "Sequence[JsonObject]") -> None:
    """Print the runs, newest first."""
    if not runs:
        output.note("No runs yet.")
        return
    rows = [
        (
            output.when(run["dueAt"]),
            str(run["attempt"]),
            run["state"],
            f"{run['costUsd']:.4f}",
            str(run.get("sessionId", "-"))[:8],
            run.get("reason", ""),
        )
        for run in runs
    ]
    output.table(("due", "try", "state", "usd", "session", "why"), rows)


def show_run(run: "JsonObject") -> None:
    """Print one run, and how to read its transcript."""
    output.line("Begun." if run["state"] == "running" else _ending(run))
    if "sessionId" in run:
        output.line(f"Read it with `toolcrib sessions export {run['sessionId'][:8]} --format markdown`.")


def _ending(run: "JsonObject") -> str:
    why = f": {run['reason']}" if run.get("reason") else ""
    return f"{run['state']}, started {output.when(run['startedAt'])}{why}"


def _time(text: str) -> str:
    """Return a time in this machine's time zone."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
