"""Renders templates to HTML. The only way untrusted text reaches a page.

All output is escaped, and characters that hide or reorder text are made visible, without any action by the template.
Markdown goes through the `md` filter. An undefined variable is an error.

Must never treat an untrusted string as markup.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from toolcrib.gate.approvals.display import show
from toolcrib.model.json import Json
from toolcrib.model.text import visible
from toolcrib.model.times import duration, relative_time
from toolcrib.web.console import assets, markdown

_MARKUP_MAKERS = ("safe", "tojson", "urlize", "xmlattr")
"""Jinja filters that mark text as safe; removed from the environment."""


def page(template: str, values: Mapping[str, Any]) -> str:
    """Render a template."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("toolcrib.web.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_display,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: Mapping[str, Callable[..., object]] = {
        "md": markdown.render, "ago": ago, "moment": moment, "pretty": pretty, "count": count, "seconds": seconds,
        "exact": exact, "clock": clock, "timer": timer, "masked_arguments": masked_arguments,
        "words": words,
    }  # fmt: skip
    known = cast("dict[str, Any]", environment.filters)
    for name in _MARKUP_MAKERS:
        del known[name]
    known.update(filters)
    cast("dict[str, Any]", environment.globals)["asset"] = assets.url
    return environment


def _display(value: object) -> object:
    """Return the printed form of a value: empty for None, and text with hidden characters made visible."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def words(value: str | None) -> Markup:
    """Return a sentence, escaped, with its `commands` and `names` as code."""
    parts = visible(value or "").split("`")
    if len(parts) % 2 == 0:  # a backtick without its pair
        return escape("`".join(parts))
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def exact(value: str | None) -> Markup:
    """Return escaped but otherwise unchanged text for a field that is submitted again: saving must alter nothing."""
    return escape(value or "")


def moment(value: datetime | str | None) -> Markup | str:
    """Return a `<time>` element, which the page's script converts to local time."""
    if value is None:
        return ""
    at = (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)
    exact = at.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, at.strftime("%Y-%m-%d %H:%M"))


def clock(value: str) -> str:
    """Return the UTC time of day to the millisecond, for comparing entries."""
    at = datetime.fromisoformat(value).astimezone(UTC)
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def ago(value: datetime | str | None) -> Markup | str:
    """Return the elapsed time as a `<time>` element, which the page's script keeps current."""
    if value is None:
        return ""
    at = (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)
    exact = at.isoformat(timespec="seconds")
    words = relative_time(max((datetime.now(UTC) - at).total_seconds(), 0))
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(exact, exact, words)


def timer(value: str) -> Markup:
    """Return the seconds since a moment as a `<time>` element, which the page's script counts up."""
    at = datetime.fromisoformat(value).astimezone(UTC)
    exact, elapsed = at.isoformat(timespec="milliseconds"), (datetime.now(UTC) - at).total_seconds()
    return Markup('<time datetime="{}" data-timer>{} s</time>').format(exact, max(int(elapsed), 0))


def seconds(milliseconds: float | None) -> str:
    """Return a duration for display; empty if there is none."""
    return "" if milliseconds is None else duration(milliseconds)


def pretty(value: Json) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def masked_arguments(value: Json) -> str:
    """Return arguments as approvals display them: hidden characters escaped, long runs of blanks counted."""
    return show(value).text


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: `1 tool`, `12 tools`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
