"""Which URIs a template matches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.web.mcp.uris import LONGEST, matches, weight

segments = st.text(alphabet="abcXYZ0189-._~%", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("note://fixed", "note://fixed"),
        ("note://{id}", "note://7"),
        ("note://{a}/{b}", "note://x/y"),
        ("note://{a}{b}", "note://xy"),
        ("file:///{+path}", "file:///a/b/c.txt"),
        ("file://{/path*}", "file:///a/b"),
        ("find://words{?q,lang}", "find://words?q=a&lang=en"),
        ("find://words{?q}", "find://words"),
        ("find://words?q=1{&more}", "find://words?q=1&more=2"),
        ("doc://{name}{.ext}", "doc://readme.md"),
        ("doc://{name}{#part}", "doc://readme#top/of"),
        ("m://p{;x,y}", "m://p;x=1;y=2"),
        ("test://{id}/data", "test://1/data"),
    ],
)
def test_template_matches_its_expansions(template: str, uri: str) -> None:
    assert matches(template, uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("note://fixed", "note://other"),
        ("note://{id}", "note://"),
        ("note://{id}", "note://a/b"),
        ("note://{id}", "note://a?b"),
        ("note://{a}/{b}", "note://x"),
        ("note://{id}/end", "note://x/end/more"),
        ("find://words{?q}", "find://wordsq=a"),
        ("", "a"),
        ("note://{id}", "NOTE://7"),
    ],
)
def test_template_matches_no_other_uri(template: str, uri: str) -> None:
    assert not matches(template, uri)


@given(st.lists(segments, min_size=1, max_size=5))
def test_expansion_with_any_values_matches(values: list[str]) -> None:
    template = "x://" + "/".join(f"{{v{number}}}" for number in range(len(values)))
    assert matches(template, "x://" + "/".join(values))


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_two_texts_can_be_compared(template: str, uri: str) -> None:
    assert matches(template, uri) in (True, False)


@settings(deadline=2_000)
@given(st.integers(1, 60))
def test_adjacent_variables_do_not_cause_backtracking(count: int) -> None:
    assert not matches("x://" + "{a}" * count + "/end", "x://" + "a" * 500)


def test_long_uri_matches_nothing() -> None:
    assert not matches("{+a}", "a" * (LONGEST + 1))


def test_more_specific_template_weighs_more() -> None:
    assert weight("note://books/{id}") > weight("note://{+any}")
