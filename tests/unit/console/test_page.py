"""The console's page: what it tells, and that nothing of others gets through unescaped."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.console.page import TOOLS_SHOWN, CribView, crib_page, refusal_page, style, text
from toolcrib.model.problems import Problem
from toolcrib.model.servers import ServerEntry, Source
from toolcrib.model.tools import Marks, Tool, ToolRef


def tool(name: str = "echo", description: str = "Says it again.", server: str = "demo") -> Tool:
    return Tool(ToolRef(server, name), description, {"type": "object"}, marks=Marks(read_only=True))


def view(
    *tools: Tool,
    servers: tuple[ServerEntry, ...] = (),
    problems: tuple[Problem, ...] = (),
    home: str = "/home/me/crib",
) -> CribView:
    return CribView(
        version="1.2.3",
        home=home,
        started_at="2026-01-01 10:00",
        mcp_url="http://127.0.0.1:4242/mcp",
        token_file=f"{home}/token",
        tools=tools,
        servers=servers,
        problems=problems,
    )


class Elements(HTMLParser):
    """All tags and attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_which_crib_it_is_how_to_connect_and_what_there_is() -> None:
    shown = Elements(crib_page(view(tool(), tool("ping", server="toolcrib")))).text
    for part in ("1.2.3", "/home/me/crib", "http://127.0.0.1:4242/mcp", "echo", "Says it again.", "ping", "reads only"):
        assert part in shown
    assert "Authorization: Bearer $(cat /home/me/crib/token)" in shown
    assert "Problems" not in shown


def test_found_servers_are_shown_with_state_and_place_and_nothing_of_theirs_gets_through() -> None:
    source = Source("cursor", "user", "/home/me/.cursor/mcp.json", 4)
    page = crib_page(view(servers=(ServerEntry("<b>git</b>\u202e", "git", source, {}),)))
    shown = Elements(page)
    assert r"<b>git</b>\u{202e}" in shown.text
    assert "cursor: /home/me/.cursor/mcp.json:4" in shown.text
    assert "invalid" in shown.text
    assert "b" not in shown.tags


def test_problems_are_shown_with_place_and_hint() -> None:
    problem = Problem("tool.module", "It does not load.", "Mend it.", "/home/me/crib/tools/x.py", 7)
    shown = Elements(crib_page(view(problems=(problem,)))).text
    assert "It does not load. /home/me/crib/tools/x.py:7" in shown
    assert "Mend it." in shown


def test_a_path_with_spaces_and_quotes_stays_one_word_of_the_command() -> None:
    shown = Elements(crib_page(view(home="/home/o'neil/my crib"))).text
    assert "$(cat '/home/o'\"'\"'neil/my crib/token')" in shown


def test_there_is_no_script_and_no_inline_style() -> None:
    page = Elements(crib_page(view(tool(), problems=(Problem("a", "b"),))))
    assert not {"script", "style", "iframe", "img", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name == "style" or name.startswith("on")]


def test_thousands_of_tools_are_counted_and_cut() -> None:
    page = crib_page(view(*[tool(f"t{number}") for number in range(TOOLS_SHOWN + 5)]))
    assert page.count("<li>") == TOOLS_SHOWN
    assert "5 more" in page


@given(st.text(), st.text())
def test_whatever_a_tool_is_called_and_says_the_page_has_the_same_elements(name: str, description: str) -> None:
    plain = Elements(crib_page(view(tool()))).tags
    assert Elements(crib_page(view(tool(name, description)))).tags == plain


@given(st.text())
def test_no_invisible_character_is_left_in_text_of_others(value: str) -> None:
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]", text(value)
    )
    assert not re.search(r"[\U000e0000-\U000e007f]", text(value))


def test_hidden_characters_are_shown_by_number() -> None:
    assert text("a\u202eb\x1b[0m<c>") == "a\\u{202e}b\\u{1b}[0m&lt;c&gt;"


def test_a_refusal_escapes_too_and_needs_no_style_sheet() -> None:
    page = refusal_page("<t>", "<d>", "<h>")
    assert "&lt;t&gt;" in page
    assert "<d>" not in page
    assert "<h>" not in page
    assert "stylesheet" not in page


def test_the_style_sheet_loads_nothing_from_elsewhere() -> None:
    sheet = style().decode()
    assert "color-scheme: light dark" in sheet
    assert "url(" not in sheet
    assert "@import" not in sheet
