"""When a schedule is due: cron expressions in a time zone, intervals, or a single moment; and descriptions of these.

Cron is parsed by `cronsim`, which is small, maintained, follows Debian's cron (including DST changes) and can describe
expressions. Pure, apart from jitter: the current time is passed in.
"""

import random
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.schedules import Cadence

SHORTEST = 60
"""Seconds; the minimum interval."""
LONGEST_JITTER = 3_600
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def checked(cadence: Cadence) -> Cadence:
    """Return the cadence if it is valid; raises `schedule.cadence`."""
    given = [cadence.cron is not None, cadence.every_seconds is not None, cadence.at is not None]
    if sum(given) != 1:
        raise _wrong("A schedule needs exactly one of a cron expression, an interval and a time.")
    if cadence.cron is not None:
        _check_cron(cadence.cron, cadence.timezone)
    if cadence.every_seconds is not None and cadence.every_seconds < SHORTEST:
        raise _wrong(f"An interval must be at least {SHORTEST} seconds.")
    if cadence.at is not None and cadence.at.tzinfo is None:
        raise _wrong("A time needs its offset from UTC, as in 2026-11-16T09:00:00+01:00.")
    return cadence


def _check_cron(expression: str, timezone: str) -> None:
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _wrong(f"{timezone!r} is not a time zone.", "Use a name such as Europe/Berlin.") from None
    if len(expression.split()) != 5:
        raise _wrong(f"{expression!r} must have five fields: minute, hour, day, month, weekday.")
    try:
        next(CronSim(expression, datetime.now(zone)))
    except CronSimError as error:
        raise _wrong(f"{expression!r} is not a cron expression: {error}.") from None
    except StopIteration:
        raise _wrong(f"{expression!r} matches no date.") from None


def following(cadence: Cadence, after: datetime, count: int = 1) -> list[datetime]:
    """Return the next `count` due times after this moment, in UTC; empty if there are none."""
    if cadence.at is not None:
        return [cadence.at.astimezone(UTC)] if cadence.at > after else []
    if cadence.every_seconds is not None:
        step = timedelta(seconds=cadence.every_seconds)
        return [after.astimezone(UTC) + step * (number + 1) for number in range(count)]
    zone = ZoneInfo(cadence.timezone)
    moments = CronSim(cadence.cron or "", after.astimezone(zone))
    return [moment.astimezone(UTC) for moment in islice(moments, count)]


def latest_missed(cadence: Cadence, since: datetime, now: datetime) -> datetime:
    """Return the latest due time between `since`, itself a due time, and `now`."""
    if cadence.cron is None:
        return since
    zone = ZoneInfo(cadence.timezone)
    try:
        last = next(CronSim(cadence.cron, now.astimezone(zone), reverse=True)).astimezone(UTC)
    except StopIteration:
        return since
    return max(last, since)


def spread(seconds: int) -> timedelta:
    """Return a random delay of up to this many seconds."""
    return timedelta(seconds=random.uniform(0, seconds))


def in_words(cadence: Cadence) -> str:
    """Describe the cadence for people."""
    if cadence.at is not None:
        return f"Once, at {cadence.at.isoformat(sep=' ', timespec='minutes')}"
    if cadence.every_seconds is not None:
        return f"Every {_span(cadence.every_seconds)}"
    zone = ZoneInfo(cadence.timezone)
    try:
        words = CronSim(cadence.cron or "", datetime.now(zone)).explain()
    except CronSimError:
        words = cadence.cron or ""
    return f"{words} ({cadence.timezone})"


def _span(seconds: int) -> str:
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    number = seconds // size
    return unit if number == 1 else f"{number} {unit}s"


def _wrong(message: str, hint: str | None = None) -> InvalidRequest:
    return InvalidRequest("schedule.cadence", message, hint)
