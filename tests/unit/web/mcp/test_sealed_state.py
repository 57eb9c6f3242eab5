"""Sealed state comes back unchanged, for the same asker and request, in time; or it does not come back."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.json import Json, JsonObject
from toolcrib.web.mcp.sealed_state import LONGEST, BrokenSeal, StateSeal, TooMuchState

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
contents = st.dictionaries(texts, st.none() | texts | st.integers(-9, 9) | st.lists(texts, max_size=3), max_size=4)
BOUND: Json = [{"name": "owner"}, "all", "tools/call", "digest"]


class Clock:
    """Tells the time it is told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@given(contents)
def test_what_was_sealed_comes_back(content: JsonObject) -> None:
    seal = StateSeal(b"key")
    assert seal.open(seal.close(content, BOUND, seconds=60), BOUND) == content


@given(contents, st.data())
def test_no_text_with_another_letter_is_taken(content: JsonObject, data: st.DataObject) -> None:
    seal = StateSeal(b"key", Clock())
    sealed = seal.close(content, BOUND, seconds=60)
    place = data.draw(st.integers(0, len(sealed) - 1))
    letter = data.draw(st.sampled_from("AZaz09-_=+/! é").filter(lambda one: one != sealed[place]))
    for changed in (sealed[:place] + letter + sealed[place + 1 :], sealed[:place], sealed + letter, letter + sealed):
        with pytest.raises(BrokenSeal):
            seal.open(changed, BOUND)


@given(st.text(max_size=200))
def test_any_text_is_opened_or_refused_and_nothing_else(text: str) -> None:
    with pytest.raises(BrokenSeal):
        StateSeal(b"key").open(text, BOUND)


@pytest.mark.parametrize("other", [[], [*BOUND, ""], [{"name": "other"}, *BOUND[1:]], "all"])
def test_it_holds_for_nothing_else(other: Json) -> None:
    seal = StateSeal(b"key")
    with pytest.raises(BrokenSeal):
        seal.open(seal.close({"a": 1}, BOUND, seconds=60), other)


def test_another_key_does_not_open_it() -> None:
    with pytest.raises(BrokenSeal):
        StateSeal(b"other").open(StateSeal(b"key").close({}, BOUND, seconds=60), BOUND)


def test_it_holds_for_its_time_and_no_longer() -> None:
    clock = Clock()
    seal = StateSeal(b"key", clock)
    sealed = seal.close({"a": 1}, BOUND, seconds=60)
    clock.now += 60
    assert seal.open(sealed, BOUND) == {"a": 1}
    clock.now += 1
    with pytest.raises(BrokenSeal):
        seal.open(sealed, BOUND)


def test_too_much_is_not_sealed_and_not_even_decoded() -> None:
    with pytest.raises(TooMuchState):
        StateSeal(b"key").close({"a": "x" * LONGEST}, BOUND, seconds=60)
    with pytest.raises(BrokenSeal):
        StateSeal(b"key").open(base64.urlsafe_b64encode(b"x" * LONGEST).decode(), BOUND)
