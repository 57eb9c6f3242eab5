"""The form of a schedule: read into a schedule, and filled from one. What is left empty is not limited, or as usual.

Above: the screen of schedules. Below: `forms`, `model.schedules`. It must never change what only the crib knows of a
schedule: who made it, whether it rests, how often it failed.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio

from toolcrib.builtin.scheduling import USUAL_MINUTES, Draft
from toolcrib.console.forms import Fields
from toolcrib.errors import InvalidRequest
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import MODES
from toolcrib.model.schedules import MISSED, MOST_RETRIES, OVERLAPS, Cadence, Schedule
from toolcrib.model.sessions import SessionLimits
from toolcrib.schedule.cadence import LONGEST_JITTER

UNITS: Final = {"1": "minutes", "60": "hours", "1440": "days"}
OVERLAP_WORDS: Final = {"skip": "skip it", "wait": "let it wait"}
MISSED_WORDS: Final = {"once": "make up for the last one, once", "skip": "skip them"}
_LONGEST_NAME: Final = 100
_LONGEST_PROMPT: Final = 100_000
_LONGEST_RUN: Final = 604_800
_MOST: Final = 1_000_000


def cadence_of(form: Fields) -> Cadence | None:
    """Of the three ways to say when, the one that was chosen; None if nothing is said. Raises `schedule.cadence`."""
    way = form.text("way")
    every, unit = form.number("every"), form.number("unit") or 1
    return Draft(
        cron=form.line("cron") if way == "cron" else None,
        timezone=form.line("timezone"),
        every_minutes=int(every * unit) if way == "every" and every is not None else None,
        at=_moment(form) if way == "at" else None,
    ).cadence()


async def wanted(crib: Crib, form: Fields) -> Schedule:
    """What a form asks for. Raises `agent.unknown`, `schedule.cadence`, `session.cwd`, `request.invalid`."""
    prompt, cadence = form.text("prompt"), cadence_of(form)
    if not prompt.strip() or len(prompt) > _LONGEST_PROMPT:
        raise InvalidRequest("request.invalid", f"A prompt has 1 to {_LONGEST_PROMPT} characters.")
    if cadence is None:
        raise InvalidRequest("request.invalid", "Nothing says when.", "Choose one of the three ways and fill it in.")
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
    """The one there was as a form wants it."""
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
    """What the fields of the form hold."""
    if schedule is None:
        return _filled(Cadence(cron="0 9 * * 1-5"), SessionLimits(seconds=USUAL_MINUTES * 60.0)) | _REST
    return _filled(schedule.cadence, schedule.limits) | {
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


def _filled(cadence: Cadence, limits: SessionLimits) -> JsonObject:
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


def _moment(form: Fields) -> str | None:
    """The moment of a form, in the time zone beside it."""
    text = form.line("at")
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        zone = ZoneInfo(form.line("timezone") or "UTC")
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return text  # told as what it is where it is read
    return (at if at.tzinfo is not None else at.replace(tzinfo=zone)).isoformat()


def _limits(form: Fields) -> SessionLimits:
    turns, cost = _whole(form, "maxTurns", 1, _MOST), form.number("maxCostUsd")
    if cost is not None and not 0 < cost <= _MOST:
        raise InvalidRequest("request.invalid", f"The most it may cost is more than nothing, and not {cost:g} USD.")
    seconds = _whole(form, "maxSeconds", 1, _LONGEST_RUN)
    return SessionLimits(turns, cost, None if seconds is None else float(seconds))


def _whole(form: Fields, name: str, least: int, most: int) -> int | None:
    number = form.number(name)
    if number is None:
        return None
    if not least <= number <= most or number != int(number):
        raise InvalidRequest("request.invalid", f"`{name}` is a whole number from {least} to {most}, not {number:g}.")
    return int(number)


async def _directory(text: str) -> str:
    if not (Path(text).is_absolute() and await anyio.Path(text).is_dir()):
        raise InvalidRequest("session.cwd", f"{text} is not the full path of a directory.")
    return text
