"""Plots as SVG, drawn on the server: bars with a part in another tone, lines, and sparklines.

Only numbers reach the markup. Tones are classes of the style sheet, since the content policy allows no inline styles.
"""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

WIDTH: Final = 640
HEIGHT: Final = 120
_SPARK: Final = (120, 24)


def bars(values: Sequence[float], parts: Sequence[float], label: str) -> Markup:
    """Return a bar per value; `parts` are drawn over their lower ends, such as the errors among the calls."""
    highest = max([*values, 1e-9])
    step = WIDTH / max(len(values), 1)
    shapes = [
        _bar(index, step, value / highest, "value") + _bar(index, step, min(part, value) / highest, "part")
        for index, (value, part) in enumerate(zip(values, parts, strict=True))
    ]
    return _svg(WIDTH, HEIGHT, label, Markup().join(shapes))


def lines(series: Sequence[Sequence[float | None]], label: str) -> Markup:
    """Return one line per series over the same steps. A step without a value interrupts the line."""
    highest = max([value for each in series for value in each if value is not None] or [1e-9])
    shapes = [
        Markup('<polyline class="line tone-{}" points="{}"/>').format(tone, run)
        for tone, each in enumerate(series)
        for run in _runs(each, WIDTH, HEIGHT, max(highest, 1e-9))
    ]
    return _svg(WIDTH, HEIGHT, label, Markup().join(shapes))


def sparkline(values: Sequence[float], label: str) -> Markup:
    """Return a small line without axes."""
    width, height = _SPARK
    points = _runs(values, width, height, max([*values, 1e-9]))
    shapes = [Markup('<polyline class="line tone-0" points="{}"/>').format(run) for run in points]
    return _svg(width, height, label, Markup().join(shapes), "spark")


def _svg(width: int, height: int, label: str, shapes: Markup, kind: str = "plot") -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(kind, width, height, label, shapes)


def _bar(index: int, step: float, share: float, tone: str) -> Markup:
    if share <= 0:
        return Markup()
    height = max(share * HEIGHT, 1.0)
    return Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
        tone, index * step + 0.1 * step, HEIGHT - height, 0.8 * step, height
    )


def _runs(values: Sequence[float | None], width: int, height: int, highest: float) -> list[str]:
    """Return the points of each uninterrupted part; a part of one point is as wide as a bar."""
    step = width / max(len(values), 1)
    runs: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
            continue
        y = height - 1 - value / highest * (height - 2)
        runs[-1].append(f"{(index + 0.5) * step:.1f},{y:.1f}")
        is_alone = (index == 0 or values[index - 1] is None) and (index + 1 == len(values) or values[index + 1] is None)
        if is_alone:
            runs[-1] = [f"{(index + share) * step:.1f},{y:.1f}" for share in (0.1, 0.9)]
    return [" ".join(run) for run in runs if run]
