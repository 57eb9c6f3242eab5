"""Times as people read them: relative to now, in the largest unit that fits."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def relative_time(elapsed: float) -> str:
    """Return elapsed seconds, such as `3 min ago`; negative seconds are in the future, such as `in 2 h`."""
    for length, unit in _UNITS:
        if abs(elapsed) >= length:
            distance = f"{int(abs(elapsed) // length)} {unit}"
            return f"{distance} ago" if elapsed > 0 else f"in {distance}"
    return "now"
