"""The refusal page: all text is escaped, and the page loads nothing."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.web.console.refusal import refusal_page

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


class Tags(HTMLParser):
    """All tags of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))


def test_refusal_shows_the_reason_and_the_hint_with_hidden_characters_escaped() -> None:
    page = refusal_page("No <login>", "a\u202eb\x1b[0m", "Open the link.")
    for part in ("No &lt;login&gt;", "a\\u{202e}b\\u{1b}[0m", "Open the link."):
        assert part in page


def test_refusal_loads_nothing() -> None:
    assert not {"link", "script", "img"} & {tag for tag, _ in Tags(refusal_page("t", "d", "h")).found}


@given(st.text(), st.text(), st.text(min_size=1))
def test_any_text_leaves_the_elements_of_the_page_unchanged(title: str, detail: str, hint: str) -> None:
    page = refusal_page(title, detail, hint)
    assert Tags(page).found == Tags(refusal_page("t", "d", "h")).found
    assert not HIDDEN.search(page.replace("\n", ""))
