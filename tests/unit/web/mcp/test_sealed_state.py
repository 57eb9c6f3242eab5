"""Sealed state is returned unchanged for the same principal and request in time, and otherwise refused."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.json import Json, JsonObject
from toolcrib.web.mcp.sealed_state import LONGEST, BrokenSeal, StateSeal, TooMuchState
from unit.clock import Clock

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
contents = st.dictionaries(texts, st.none() | texts | st.integers(-9, 9) | st.lists(texts, max_size=3), max_size=4)
BOUND: Json = [{"name": "owner"}, "all", "tools/call", "digest"]


@given(contents)
def test_sealed_content_is_read_back(content: JsonObject) -> None:
    seal = StateSeal(b"key")
    assert seal.open(seal.close(content, BOUND, seconds=60), BOUND) == content


@given(contents, st.data())
def test_changed_text_is_refused(content: JsonObject, data: st.DataObject) -> None:
    seal = StateSeal(b"key", Clock())
    sealed = seal.close(content, BOUND, seconds=60)
    place = data.draw(st.integers(0, len(sealed) - 1))
    letter = data.draw(st.sampled_from("AZaz09-_=+/! é").filter(lambda one: one != sealed[place]))
    for changed in (sealed[:place] + letter + sealed[place + 1 :], sealed[:place], sealed + letter, letter + sealed):
        with pytest.raises(BrokenSeal):
            seal.open(changed, BOUND)


@given(st.text(max_size=200))
def test_arbitrary_text_is_refused(text: str) -> None:
    with pytest.raises(BrokenSeal):
        StateSeal(b"key").open(text, BOUND)


@pytest.mark.parametrize("other", [[], [*BOUND, ""], [{"name": "other"}, *BOUND[1:]], "all"])
def test_seal_is_bound_to_its_request(other: Json) -> None:
    seal = StateSeal(b"key")
    with pytest.raises(BrokenSeal):
        seal.open(seal.close({"a": 1}, BOUND, seconds=60), other)


def test_seal_is_bound_to_its_key() -> None:
    with pytest.raises(BrokenSeal):
        StateSeal(b"other").open(StateSeal(b"key").close({}, BOUND, seconds=60), BOUND)


def test_seal_expires() -> None:
    clock = Clock()
    seal = StateSeal(b"key", clock)
    sealed = seal.close({"a": 1}, BOUND, seconds=60)
    clock.now += 60
    assert seal.open(sealed, BOUND) == {"a": 1}
    clock.now += 1
    with pytest.raises(BrokenSeal):
        seal.open(sealed, BOUND)


def test_oversized_content_is_refused_before_decoding() -> None:
    with pytest.raises(TooMuchState):
        StateSeal(b"key").close({"a": "x" * LONGEST}, BOUND, seconds=60)
    with pytest.raises(BrokenSeal):
        StateSeal(b"key").open(base64.urlsafe_b64encode(b"x" * LONGEST).decode(), BOUND)
