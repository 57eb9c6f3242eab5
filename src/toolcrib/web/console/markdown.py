"""Renders untrusted Markdown as inert HTML: no raw tags, remote images, scripts or styles.

The parser drops HTML and accepts only safe link schemes; its output is sanitised again against a short list of
elements. Characters that hide or reorder text are made visible first.
"""

from functools import cache

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

from toolcrib.model.text import visible

LONGEST = 200_000
"""Longer texts are displayed as plain text."""
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_SCHEMES = {"http", "https", "mailto"}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}


def render(text: str) -> Markup:
    """Return the text as safe HTML."""
    shown = visible(text)
    if len(shown) > LONGEST:
        return Markup('<pre tabindex="0">{}</pre>').format(shown)
    made = _parser().render(shown)
    clean = nh3.clean(made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel="noopener noreferrer")
    return Markup(clean)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
