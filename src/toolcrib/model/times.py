"""Times: durations as people read them, in the unit that fits, and timestamps that sort as text."""

from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def relative_time(elapsed: float) -> str:
    """Return elapsed seconds, such as `3 min ago`; negative seconds are in the future, such as `in 2 h`."""
    for length, unit in _UNITS:
        if abs(elapsed) >= length:
            distance = f"{int(abs(elapsed) // length)} {unit}"
            return f"{distance} ago" if elapsed > 0 else f"in {distance}"
    return "now"


def duration(milliseconds: float) -> str:
    """Return a duration, such as `0.4 ms`, `12 ms` or `1.5 s`. A short one is never shown as none at all."""
    if 0 < milliseconds < 0.1:
        return "< 0.1 ms"
    if 0 < milliseconds < 9.95:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 1_000 else f"{milliseconds / 1_000:.1f} s"


def moment(text: str, *, end_of_day: bool = False) -> str:
    """Return ISO 8601 in UTC with milliseconds; a bare date is its start or end of day. Raises `ValueError`."""
    at = datetime.fromisoformat(text)
    if end_of_day and len(text) <= len("2026-01-31"):
        at = at.replace(hour=23, minute=59, second=59, microsecond=999_999)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
