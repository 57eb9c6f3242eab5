"""Strict JSON: each text has one meaning or is rejected."""

import json
import os
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.json import MAX_DEPTH, MalformedJson, parse_strict, refuse_long_integers

CORPUS = os.environ.get("TOOLCRIB_CORPUS")

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(JSON_VALUES)
def test_written_json_is_read_back(value: object) -> None:
    assert parse_strict(orjson.dumps(value)) == value


@given(JSON_VALUES, st.sampled_from([None, 2]))
def test_formatting_does_not_change_the_value(value: object, indent: int | None) -> None:
    assert parse_strict(json.dumps(value, indent=indent).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{} {}",
        b'{"a":1} trailing',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":NaN}',
        b"[Infinity]",
        b'{"id":1e400}',
        b'["\\ud800"]',
        b'["\xff"]',
        b'["\xed\xa0\x80"]',
        b"[1,]",
        b"{'a':1}",
        b"[\x00]",
        b'["a\nb"]',
    ],
)
def test_invalid_json_is_rejected(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        parse_strict(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":"allowed","name":"denied"}',
        b'{"a":{"b":[{"x":1,"x":1}]}}',
        b'{"name":1,"n\\u0061me":2}',
        b'{"":1,"":2}',
        b'{"name": "allowed", "name": "denied"}',
        b'{"a": {"b": [{"x": "\\"", "x": 1}]}}',
    ],
)
def test_repeated_key_is_rejected_at_any_depth_and_in_any_spelling(body: bytes) -> None:
    with pytest.raises(MalformedJson, match="twice"):
        parse_strict(body)


KEYS = st.text(st.sampled_from(["a", "b", '"', "\\", "ä"]), max_size=2)


@given(st.lists(st.tuples(KEYS, JSON_VALUES), max_size=4), st.sampled_from([(",", ":"), (", ", ": "), ("\n,", " :")]))
def test_object_is_rejected_if_and_only_if_a_key_repeats(
    pairs: list[tuple[str, object]], separators: tuple[str, str]
) -> None:
    comma, colon = separators
    written = [json.dumps(key) + colon + json.dumps(value, ensure_ascii=False) for key, value in pairs]
    body = f"[1,{{{comma.join(written)}}}]".encode()
    if len(dict(pairs)) == len(pairs):
        assert parse_strict(body) == [1, dict(pairs)]
    else:
        with pytest.raises(MalformedJson, match="twice"):
            parse_strict(body)


def test_error_names_the_repeated_key_shortened() -> None:
    key = "k" * 5_000
    with pytest.raises(MalformedJson) as error:
        parse_strict(f'{{"{key}":1, "{key}":2}}'.encode())
    assert key[:100] in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("digits", [302, 400, 5_000])
def test_integer_with_too_many_digits_is_rejected(digits: int) -> None:
    with pytest.raises(MalformedJson):
        parse_strict(f'{{"n": {"9" * digits}}}'.encode())


@pytest.mark.parametrize("body", [b'{"n": %d}', b'{"a": [{"arguments": %d}]}', b"[%d]"])
def test_long_integers_are_rejected_outside_the_given_member(body: bytes) -> None:
    text = body % 2**64
    with pytest.raises(MalformedJson, match="64 bits"):
        refuse_long_integers(parse_strict(text), text, but_in="arguments")
    allowed = b'{"n": 1, "arguments": {"n": %d}}' % 2**64
    refuse_long_integers(parse_strict(allowed), allowed, but_in="arguments")


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 2**53 + 1, 0, 2**64, -(2**63) - 1, 10**299])
def test_integer_is_kept_exactly(number: int) -> None:
    for body in (f"[{number}]", f"[ {number} ]"):
        assert parse_strict(body.encode()) == [number]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"k":', "}"), ('[{"k":', "}]")])
def test_nesting_limit_is_exact(opening: str, closing: str) -> None:
    levels = MAX_DEPTH // len(closing)
    fits = opening * levels + "0" + closing * levels
    assert parse_strict(fits.encode()) is not None
    with pytest.raises(MalformedJson, match="deeper"):
        parse_strict(f"[{fits}]".encode())


def test_adjacent_brackets_and_brackets_in_strings_are_not_nesting() -> None:
    assert parse_strict(b"[" + b",".join([b"[]"] * 5_000) + b"]") == [[]] * 5_000
    text = '["' + "[" * 5_000 + '\\"' + "{" * 5_000 + '"]'
    assert parse_strict(text.encode()) == ["[" * 5_000 + '"' + "{" * 5_000]


def test_deeply_nested_text_is_rejected() -> None:
    for body in (b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900):
        with pytest.raises(MalformedJson):
            parse_strict(body)


def test_key_that_is_special_in_other_languages_is_an_ordinary_key() -> None:
    assert parse_strict(b'{"__proto__":{"a":1},"constructor":2,"name\\u0000":3}') == {
        "__proto__": {"a": 1},
        "constructor": 2,
        "name\0": 3,
    }


REPEATS_A_KEY = {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"}
"""Accepted by the suite but rejected here: parsers disagree on the value of a repeated key."""


def _suite(prefix: str) -> list[Path]:
    if not CORPUS:
        return []
    found = sorted((Path(CORPUS) / "json-parsing" / "test_parsing").glob(f"{prefix}_*.json"))
    assert found
    return found


@pytest.mark.skipif(not CORPUS, reason="TOOLCRIB_CORPUS is not set")
def test_public_suite_is_accepted_and_rejected_as_specified() -> None:
    wrong: list[str] = []
    for path in [*_suite("y"), *_suite("n")]:
        try:
            parse_strict(path.read_bytes())
            accepted = True
        except MalformedJson:
            accepted = False
        if accepted != (path.name.startswith("y_") and path.name not in REPEATS_A_KEY):
            wrong.append(path.name)
    assert wrong == []


@pytest.mark.skipif(not CORPUS, reason="TOOLCRIB_CORPUS is not set")
def test_implementation_defined_texts_of_the_public_suite_do_not_crash() -> None:
    for path in _suite("i"):
        try:
            parse_strict(path.read_bytes())
        except MalformedJson as error:
            assert str(error)
