"""Variables in each client's syntax: found, replaced, and translated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.servers.readers.apps import FORMATS
from toolcrib.servers.variables import SYNTAXES, fill, references, rewrite

CASES = [
    ("claude", "a ${X} ${Y:-d} $Z ${UNSET}", "a 1 d $Z ${UNSET}"),
    ("copilot", "$X ${X} ${Y:-d}", "1 1 d"),
    ("dollar", "$X-${X}-${Y:-d}", "1-1-d"),
    ("dollar-plain", "$X ${X} ${Y:-d}", "1 1 ${Y:-d}"),
    ("vscode", "${env:X} ${X} ${input:t}", "1 ${X} ${input:t}"),
    ("env-colon", "${env:X} ${env:UNSET}", "1 ${env:UNSET}"),
    ("opencode", "{env:X} ${X}", "1 ${X}"),
    ("warp", "{{X}} ${X}", "1 ${X}"),
    ("goose", "$X ${X}", "1 1"),
    ("crush", "$X $(id)", "1 $(id)"),
    ("none", "$X ${X} {env:X}", "$X ${X} {env:X}"),
]


@pytest.mark.parametrize(("syntax", "text", "expected"), CASES)
def test_only_the_clients_own_syntax_is_replaced(syntax: str, text: str, expected: str) -> None:
    """Unset variables stay as written."""
    assert (
        fill(text, syntax, lambda found: {"X": "1"}.get(found.name) if found.kind == "variable" else None) == expected
    )


def test_every_format_has_a_known_syntax() -> None:
    assert {dialect.variables for dialect in FORMATS.values()} <= set(SYNTAXES)


@given(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), st.text(alphabet="abc /.-", max_size=8))
def test_variable_survives_translation_into_another_syntax(name: str, around: str) -> None:
    """A round trip through every syntax that can write variables."""
    text = f"{around}${{{name}}}{around}"
    for syntax, target in SYNTAXES.items():
        written, lost = rewrite(text, "toolcrib", syntax)
        assert bool(lost) == (target.write is None)
        if not lost:
            assert [found.name for found in references(written, syntax)] == [name]
            assert rewrite(written, syntax, "toolcrib")[0] == text


@given(st.sampled_from(sorted(SYNTAXES)), st.text(max_size=40))
def test_text_without_known_values_is_unchanged(syntax: str, text: str) -> None:
    """Only defaults are replaced."""
    defaults = [found for found in references(text, syntax) if found.default is not None]
    assert defaults or fill(text, syntax, lambda _: None) == text
