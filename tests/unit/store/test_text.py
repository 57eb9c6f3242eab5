"""Text in columns: any Python string can be stored, in a form that is valid for every engine."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.store.schema import escape, unescape

anything = st.text(st.characters() | st.sampled_from("\0\\u00005c\ud800\udfff"))


@given(anything)
def test_any_text_is_read_back_unchanged(text: str) -> None:
    assert unescape(escape(text)) == text


@given(anything)
def test_stored_text_has_neither_nul_nor_surrogates(text: str) -> None:
    stored = escape(text)
    assert "\0" not in stored
    assert stored.encode().decode() == stored


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\\")))
def test_ordinary_text_is_stored_unchanged(text: str) -> None:
    assert escape(text) == text
