"""Patterns of tools: anchored, compared part by part, and never guessed."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.gate.policy.patterns import Names, PatternIndex, bare_names, glob, literal_pattern, names, resolve_pattern
from toolcrib.model.tools import ToolRef

TEXTS = st.text("ab*?[]!-/_", max_size=8)
REFS = st.builds(ToolRef, st.text("ab*[]_", min_size=1, max_size=4), st.text("ab*[]/_", min_size=1, max_size=6))


@pytest.mark.parametrize(
    ("pattern", "ref", "named"),
    [
        ("*", "github/search", True),
        ("*/*", "github/search", True),
        ("github/*", "github/search", True),
        ("github/*", "github2/search", False),
        ("github/*", "my-github/search", False),
        ("github/search", "github/search_code", False),
        ("github/s*h", "github/search", True),
        ("github/?earch", "github/search", True),
        ("github/[rs]earch", "github/search", True),
        ("*/search", "github/search", True),
        ("*/search", "github/deep/search", False),
        ("*hub/search", "github/search", True),
        ("github*", "github/search", False),
        ("github", "github/search", False),
        ("GitHub/*", "github/search", False),
        ("github/Search", "github/search", False),
        ("github/", "github/search", False),
        ("/search", "github/search", False),
        ("", "github/search", False),
        ("mcp__github__*", "github/search", False),
    ],
)
def test_pattern_matches_server_and_tool_separately(pattern: str, ref: str, named: bool) -> None:
    tool = ToolRef.parse(ref)
    assert tool is not None
    assert names(pattern, tool) is named
    assert bool(PatternIndex([pattern]).find(tool)) is named


@given(TEXTS, st.text("ab*?[]!-/_\n", max_size=8))
@settings(deadline=None)
def test_glob_agrees_with_fnmatch(pattern: str, text: str) -> None:
    assert bool(glob(pattern)(text)) is fnmatchcase(text, pattern)


@given(st.lists(TEXTS, max_size=8), REFS)
@settings(deadline=None)
def test_index_finds_exactly_the_patterns_that_name_a_tool(patterns: list[str], ref: ToolRef) -> None:
    assert PatternIndex(patterns).find(ref) == [at for at, pattern in enumerate(patterns) if names(pattern, ref)]


@given(st.lists(TEXTS, max_size=8), st.sets(st.integers(0, 7)), st.lists(REFS, max_size=3))
@settings(deadline=None)
def test_index_of_a_subset_keeps_the_numbers(patterns: list[str], kept: set[int], refs: list[ToolRef]) -> None:
    index = PatternIndex(patterns)
    some = index.only(kept)
    for ref in refs:
        assert some.find(ref) == [number for number in index.find(ref) if number in kept]


@given(REFS, REFS)
@settings(deadline=None)
def test_literal_pattern_names_only_its_tool(ref: ToolRef, other: ToolRef) -> None:
    assert names(literal_pattern(ref), ref)
    assert names(literal_pattern(ref), other) is (ref == other)


KNOWN = Names(
    {"mcp__my_hub__a_b": ToolRef("my.hub", "a/b"), "Bash": ToolRef("claude_code", "Bash"), "odd": ToolRef("s", "x*")},
    {"mcp__my_hub": "my.hub"},
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("github/*", "github/*"),
        ("  github/search ", "github/search"),
        ("Bash", "claude_code/Bash"),
        ("mcp__my_hub__a_b", "my.hub/a/b"),
        ("mcp__my_hub__*", "my.hub/*"),
        ("mcp__my_hub", "my.hub/*"),
        ("odd", "s/x[*]"),
        ("*", "*"),
        ("bash", None),
        ("mcp__other__tool", None),
        ("github", None),
        ("", None),
        ("a/" + "x" * 600, None),
    ],
)
def test_pattern_of_a_user_is_resolved_exactly_or_rejected(written: str, meant: str | None) -> None:
    assert resolve_pattern(written, KNOWN) == meant


def test_ambiguous_bare_name_is_left_out() -> None:
    one, two, other = ToolRef("a", "x"), ToolRef("b", "x"), ToolRef("b", "y")
    assert bare_names([one, two, other, other]) == {"y": other}
