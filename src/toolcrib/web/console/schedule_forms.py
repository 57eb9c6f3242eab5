"""Converts between schedules and their form. An empty field means the default, or no limit.

Must never change fields that only the crib sets: creator, paused state, failure count.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio

from toolcrib.agents.schedules.cadence import LONGEST_JITTER
from toolcrib.builtin.scheduling import USUAL_MINUTES, Draft
from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import MODES
from toolcrib.model.schedules import MISSED, MOST_RETRIES, OVERLAPS, Cadence, Schedule
from toolcrib.model.sessions import SessionLimits
from toolcrib.web.console.forms import FormFields

UNITS: Final = {"1": "minutes", "60": "hours", "1440": "days"}
OVERLAP_WORDS: Final = {"skip": "skip the new run", "wait": "start it afterwards"}
MISSED_WORDS: Final = {"once": "run once", "skip": "skip"}
_LONGEST_NAME: Final = 100
_LONGEST_PROMPT: Final = 100_000
_LONGEST_RUN: Final = 604_800
_MOST: Final = 1_000_000


def cadence_of(form: FormFields) -> Cadence | None:
    """Return the cadence chosen in the form, or None if its fields are empty. Raises `schedule.cadence`."""
    way = form.text("way")
    every, unit = form.number("every"), form.number("unit") or 1
    return Draft(
        cron=form.line("cron") if way == "cron" else None,
        timezone=form.line("timezone"),
        every_minutes=int(every * unit) if way == "every" and every is not None else None,
        at=_moment(form) if way == "at" else None,
    ).cadence()


async def wanted(crib: Crib, form: FormFields) -> Schedule:
    """Return the schedule described by a form. Raises `agent.unknown`, `schedule.cadence`, `session.cwd`,
    `request.invalid`.
    """
    prompt, cadence = form.text("prompt"), cadence_of(form)
    if not prompt.strip() or len(prompt) > _LONGEST_PROMPT:
        raise InvalidRequest("request.invalid", f"The prompt must have 1 to {_LONGEST_PROMPT} characters.")
    if cadence is None:
        raise InvalidRequest("request.invalid", "The schedule has no time.", "Fill in cron, every or once.")
    agent = (await crib.zoo.get(form.line("agent") or "")).agent
    name = form.line("name") or prompt.strip().splitlines()[0]
    return Schedule(
        id="",
        name=" ".join(name.split())[:_LONGEST_NAME],
        agent=agent.id,
        prompt=prompt,
        cwd=await _directory(form.line("cwd") or str(crib.settings.default_cwd or await anyio.Path.cwd())),
        cadence=cadence,
        created_at=datetime.now(UTC),
        mode=form.choice("mode", MODES) or agent.mode or "default",
        model=form.line("model"),
        tools=tuple(dict.fromkeys(form.lines("tools"))),
        limits=_limits(form),
        overlap=form.choice("overlap", OVERLAPS) or "skip",
        missed=form.choice("missed", MISSED) or "once",
        jitter_seconds=_whole(form, "jitterSeconds", 0, LONGEST_JITTER) or 0,
        retries=_whole(form, "retries", 0, MOST_RETRIES) or 0,
    )


def changed(before: Schedule, after: Schedule) -> Schedule:
    """Return `after` with the identity and state of `before`."""
    return replace(
        after,
        id=before.id,
        created_at=before.created_at,
        created_by=before.created_by,
        creator=before.creator,
        paused=before.paused,
        paused_by=before.paused_by,
        reason=before.reason,
        failures=before.failures,
    )


def filled(schedule: Schedule | None) -> JsonObject:
    """Return the field values of the form."""
    if schedule is None:
        return _cadence_fields(Cadence(cron="0 9 * * 1-5"), SessionLimits(seconds=USUAL_MINUTES * 60.0)) | _REST
    return _cadence_fields(schedule.cadence, schedule.limits) | {
        "mode": schedule.mode,
        "model": schedule.model or "",
        "tools": list(schedule.tools),
        "overlap": schedule.overlap,
        "missed": schedule.missed,
        "jitterSeconds": schedule.jitter_seconds,
        "retries": schedule.retries,
    }


_REST: Final[JsonObject] = {
    "mode": "", "model": "", "tools": [], "overlap": "skip", "missed": "once", "jitterSeconds": 0, "retries": 0,
}  # fmt: skip


def _cadence_fields(cadence: Cadence, limits: SessionLimits) -> JsonObject:
    minutes = cadence.every_seconds // 60 if cadence.every_seconds else None
    unit = next((size for size in (1440, 60, 1) if minutes and minutes % size == 0), 60)
    return {
        "way": "cron" if cadence.cron else "every" if minutes else "at",
        "cron": cadence.cron or "",
        "timezone": cadence.timezone,
        "every": minutes // unit if minutes else "",
        "unit": str(unit),
        "at": cadence.at.astimezone(ZoneInfo(cadence.timezone)).strftime("%Y-%m-%dT%H:%M") if cadence.at else "",
        "maxTurns": limits.turns or "",
        "maxSeconds": f"{limits.seconds:g}" if limits.seconds else "",
        "maxCostUsd": limits.cost_usd or "",
    }


def _moment(form: FormFields) -> str | None:
    """Return the moment of the form, in the time zone chosen next to it."""
    text = form.line("at")
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        zone = ZoneInfo(form.line("timezone") or "UTC")
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return text  # reported by the cadence parser
    return (at if at.tzinfo is not None else at.replace(tzinfo=zone)).isoformat()


def _limits(form: FormFields) -> SessionLimits:
    turns, cost = _whole(form, "maxTurns", 1, _MOST), form.number("maxCostUsd")
    if cost is not None and not 0 < cost <= _MOST:
        raise InvalidRequest("request.invalid", f"The cost limit must be greater than 0, not {cost:g} USD.")
    seconds = _whole(form, "maxSeconds", 1, _LONGEST_RUN)
    return SessionLimits(turns, cost, None if seconds is None else float(seconds))


def _whole(form: FormFields, name: str, least: int, most: int) -> int | None:
    number = form.number(name)
    if number is None:
        return None
    if not least <= number <= most or number != int(number):
        raise InvalidRequest(
            "request.invalid", f"`{name}` must be a whole number from {least} to {most}, not {number:g}."
        )
    return int(number)


async def _directory(text: str) -> str:
    if not (Path(text).is_absolute() and await anyio.Path(text).is_dir()):
        raise InvalidRequest("session.cwd", f"{text} is not an absolute path of an existing directory.")
    return text
