"""Reading and writing of JSON: like orjson, with integers of up to 300 digits."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.json import DIGITS_LIMIT, Json, canonical, digest, dumps, loads, storable

LONG = st.integers(-(10**40), 10**40)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_written_value_is_read_back_unchanged(value: Json) -> None:
    text = dumps(value)
    assert loads(text) == loads(text.decode()) == value
    assert json.loads(text) == value
    assert canonical(loads(canonical(value))) == canonical(value)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30, -(10**299)])
def test_long_integer_is_exact(number: int) -> None:
    value = loads(b'{"n":[%d,"%d"]}' % (number, number))
    assert value == {"n": [number, str(number)]}
    assert type(value["n"][0]) is int
    assert dumps(value) == b'{"n":[%d,"%d"]}' % (number, number)


def test_long_integers_have_distinct_digests() -> None:
    assert digest({"n": 10**30}) != digest({"n": 10**30 + 1})
    assert canonical({"b": 10**30, "a": 1}) == b'{"a":1,"b":1000000000000000000000000000000}'


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("digits", [DIGITS_LIMIT + 1, DIGITS_LIMIT + 2, 400, 4_000])
def test_integer_with_too_many_digits_is_rejected(sign: str, digits: int) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(f"[{sign}{'9' * digits}]")
    with pytest.raises(TypeError, match="digits"):
        dumps([int(f"{sign}{'9' * digits}")])


def test_long_numbers_that_are_not_integers_are_read_as_by_orjson() -> None:
    text = b'{"pi":3.14159265358979323846264338327950288,"id":"12345678901234567890123","e":1.5e30}'
    assert loads(text) == orjson.loads(text)


@pytest.mark.parametrize("text", [b"", b"[1,]", b"NaN", b'"\\ud800"', b"[12345678901234567890123,]"])
def test_invalid_json_is_rejected(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(text)


@pytest.mark.parametrize("value", [object(), {"a": {1, 2}}, "\ud800", [10**30, object()], {"a": ["\ud800", 2**70]}])
def test_unsupported_value_raises_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_long_integers_are_storable() -> None:
    assert storable({"n": 10**30}) == {"n": 10**30}
