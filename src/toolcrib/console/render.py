"""Templates with values in, HTML out. The one road by which text of others reaches a page.

Whatever a template prints is escaped, and characters that hide or reorder text are made visible, without any template
having to ask for it. Markdown takes the one filter `md`. A name that a template uses and nobody gave is an error.

Above: the screens. Below: `templates`. It must never take a string of others for markup.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from toolcrib.console import assets, markdown
from toolcrib.model.json import Json
from toolcrib.model.text import visible

_MARKUP_MAKERS = ("safe", "tojson", "urlize", "xmlattr")
"""Filters of Jinja that call a text markup; no template has them."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def page(template: str, values: Mapping[str, Any]) -> str:
    """A template filled in."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("toolcrib.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: Mapping[str, Callable[..., object]] = {
        "md": markdown.render, "ago": ago, "moment": moment, "pretty": pretty, "count": count, "seconds": seconds,
        "exact": exact, "clock": clock,
    }  # fmt: skip
    known = cast("dict[str, Any]", environment.filters)
    for name in _MARKUP_MAKERS:
        del known[name]
    known.update(filters)
    cast("dict[str, Any]", environment.globals)["asset"] = assets.url
    return environment


def _shown(value: object) -> object:
    """What is printed for a value: nothing for none, and text of others with nothing unseen in it."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def exact(value: str | None) -> Markup:
    """A text for a field that is sent back: escaped and otherwise as it is, so that saving changes nothing unseen."""
    return escape(value or "")


def moment(value: datetime | str | None) -> Markup | str:
    """A point in time, exact for programs and short for people; the page turns it into local time."""
    if value is None:
        return ""
    at = (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)
    exact = at.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, at.strftime("%Y-%m-%d %H:%M"))


def clock(value: str) -> str:
    """The time of a moment of today to the millisecond, in UTC, where moments are compared."""
    at = datetime.fromisoformat(value).astimezone(UTC)
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def ago(value: datetime | str | None) -> Markup | str:
    """How long ago something was; the page keeps it current."""
    if value is None:
        return ""
    at = (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)
    exact = at.isoformat(timespec="seconds")
    words = since((datetime.now(UTC) - at).total_seconds())
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(exact, exact, words)


def since(elapsed: float) -> str:
    """A time that has passed, in the largest unit that fits."""
    for length, unit in _UNITS:
        if elapsed >= length:
            return f"{int(elapsed // length)} {unit} ago"
    return "now"


def seconds(milliseconds: float | None) -> str:
    """A duration for people."""
    if milliseconds is None:
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < 1_000 else f"{milliseconds / 1_000:.1f} s"


def pretty(value: Json) -> str:
    """A value as JSON a person can read."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 tool`, `12 tools`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
