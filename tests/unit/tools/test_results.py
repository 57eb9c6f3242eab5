"""Return values become results: the form of each type, and which values are rejected."""

import datetime
import math
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.model.json import Json, JsonObject, dumps, loads
from toolcrib.model.tools import CallResult
from toolcrib.tools import tool
from toolcrib.tools.define import ToolDefinition, definition_of
from toolcrib.tools.results import LARGEST, to_result


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    YES = "yes"


class Day(BaseModel):
    date: datetime.date
    high: float = Field(serialization_alias="highest")


@dataclass
class Point:
    x: int
    y: int = 0


class Pong(TypedDict):
    status: str


class Node(BaseModel):
    name: str
    children: list["Node"] = []


def definition(function: Callable[..., Any]) -> ToolDefinition:
    found = definition_of(tool(function))
    assert found is not None
    return found


def text_of(result: CallResult) -> str:
    (block,) = result.content
    assert block["type"] == "text"
    return block["text"]


def refusal(value: object, convert: Callable[[object], CallResult] = to_result) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        convert(value)
    assert caught.value.code == "tool.result_invalid"
    assert caught.value.hint
    return caught.value


def test_text_is_one_text_block() -> None:
    assert to_result("schön\n") == CallResult.text("schön\n")


def test_none_is_an_empty_result() -> None:
    assert to_result(None) == CallResult()


def test_result_made_by_the_tool_is_passed_on() -> None:
    made = CallResult(content=({"type": "image", "data": "AA==", "mimeType": "image/png"},), is_error=True)
    assert to_result(made) is made


def test_values_in_a_result_made_by_the_tool_are_converted_to_json() -> None:
    made = CallResult(structured_content={"at": Point(1)}, has_structured=True, extra={"_meta": {"pair": (1, 2)}})
    result = to_result(made)
    assert result.to_json() == {
        "content": [],
        "isError": False,
        "structuredContent": {"at": {"x": 1, "y": 0}},
        "_meta": {"pair": [1, 2]},
    }


@pytest.mark.parametrize(
    ("value", "carried"),
    [
        ({"a": 1, "b": None}, {"a": 1, "b": None}),
        (OrderedDict([("a", 1)]), {"a": 1}),
        ({1: "one", Word.YES: (1, 2)}, {"1": "one", "yes": [1, 2]}),
        (Point(1), {"x": 1, "y": 0}),
        (Day(date=datetime.date(2026, 8, 1), high=1.5), {"date": "2026-08-01", "highest": 1.5}),
        (
            {"day": datetime.date(2026, 8, 1), "id": uuid.UUID(int=1)},
            {"day": "2026-08-01", "id": str(uuid.UUID(int=1))},
        ),
        ({"points": [Point(1, 2)]}, {"points": [{"x": 1, "y": 2}]}),
    ],
)
def test_object_is_structured_content_and_the_same_json_as_text(value: object, carried: JsonObject) -> None:
    result = to_result(value)
    assert result.has_structured
    assert result.structured_content == carried
    assert orjson.loads(text_of(result)) == carried


@pytest.mark.parametrize(
    ("value", "carried", "text"),
    [
        (5, 5, "5"),
        (True, True, "true"),
        (1.5, 1.5, "1.5"),
        ([1, "a"], [1, "a"], '[1,"a"]'),
        ((1, 2), [1, 2], "[1,2]"),
        ({3}, [3], "[3]"),
        (Colour.RED, "red", "red"),
        (Word.YES, "yes", "yes"),
        (Decimal("1.50"), "1.50", "1.50"),
        (datetime.date(2026, 8, 1), "2026-08-01", "2026-08-01"),
        ([], [], "[]"),
    ],
)
def test_other_value_is_structured_under_result(value: object, carried: Json, text: str) -> None:
    result = to_result(value)
    assert result.structured_content == {"result": carried}
    assert text_of(result) == text


def test_result_is_independent_of_the_tools_own_object() -> None:
    own = {"list": [1]}
    result = to_result(own)
    own["list"].append(2)
    assert result.structured_content == {"list": [1]}


def cycle() -> Json:
    own: list[Json] = []
    own.append(own)
    return {"own": own}


def depth() -> Json:
    value: Json = 1
    for _ in range(300):
        value = [value]
    return value


def endless() -> Iterator[int]:
    while True:
        yield 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"abc", "bytes"),
        (bytearray(b"abc"), "bytes"),
        (math.nan, "NaN"),
        ({"a": [1, {"b": math.inf}]}, "NaN"),
        (Day(date=datetime.date(2026, 8, 1), high=math.nan), "NaN"),
        (cycle(), "Circular"),
        (depth(), "depth"),
        (object(), "object"),
        ({"f": print}, "builtin"),
        ({"b": b"\xff"}, "utf-8"),
        ({"n": 10**2000}, "digits"),
        ("\ud800", "surrogates"),
        ({"s": "\ud800"}, "surrogates"),
        (endless(), "iterator"),
        ("x" * (LARGEST + 1), "16 MiB"),
        (["x" * LARGEST], "16 MiB"),
        ("ü" * (LARGEST // 2 + 1), "16 MiB"),
        (CallResult.text("x" * LARGEST), "16 MiB"),
        (CallResult(structured_content=math.nan, has_structured=True), "NaN"),
        (CallResult(content=({"type": object()},)), "object"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_unsupported_value_is_rejected_with_the_reason(value: object, expected: str) -> None:
    assert expected in refusal(value).message


def test_largest_text_is_accepted() -> None:
    assert len(text_of(to_result("x" * LARGEST))) == LARGEST


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), PLAIN))
def test_plain_objects_arrive_unchanged(value: JsonObject) -> None:
    result = to_result(value)
    assert result.structured_content == value
    assert orjson.loads(text_of(result)) == value


@given(
    st.recursive(
        st.floats() | st.text() | st.binary() | st.integers() | st.dates() | st.uuids() | st.decimals()
        | st.just(object()),
        lambda inner: st.lists(inner, max_size=3) | st.sets(st.integers() | st.text(), max_size=3) | st.tuples(inner)
        | st.dictionaries(st.text() | st.integers() | st.dates(), inner, max_size=3),
        max_leaves=8,
    )
)  # fmt: skip
def test_any_value_is_converted_to_json_or_rejected(value: object) -> None:
    try:
        result = to_result(value)
    except Unavailable as error:
        assert error.code == "tool.result_invalid"
    else:
        wire = result.to_json()
        assert loads(dumps(wire)) == wire


def test_only_object_types_have_an_output_schema() -> None:
    def loose() -> dict[str, int]:
        raise AssertionError

    def listed() -> list[Point]:
        raise AssertionError

    def rooted() -> RootModel[list[int]]:
        raise AssertionError

    def maybe() -> Point | None: ...
    def nothing() -> None: ...

    for function in (loose, listed, rooted, maybe, nothing):
        assert definition(function).output_schema is None


def test_declared_object_type_is_the_output_schema() -> None:
    def day() -> Day:
        raise AssertionError

    def point() -> Point:
        raise AssertionError

    def pong() -> Pong:
        raise AssertionError

    assert definition(day).output_schema == {
        "type": "object",
        "properties": {"date": {"type": "string", "format": "date"}, "highest": {"type": "number"}},
        "required": ["date", "highest"],
    }
    assert definition(point).output_schema == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
    }
    assert definition(pong).output_schema == {
        "type": "object",
        "properties": {"status": {"type": "string"}},
        "required": ["status"],
    }


def test_output_schema_of_a_recursive_type_is_an_object() -> None:
    def tree() -> Node:
        raise AssertionError

    schema = definition(tree).output_schema
    assert schema is not None
    assert schema["type"] == "object"
    assert "Node" in schema["$defs"]


def test_result_is_converted_to_its_declared_type() -> None:
    def day() -> Day:
        raise AssertionError

    def pong() -> Pong:
        raise AssertionError

    convert = definition(day).to_result
    carried = {"date": "2026-08-01", "highest": 2.0}
    assert convert(Day(date=datetime.date(2026, 8, 1), high=2)).structured_content == carried
    assert convert({"date": "2026-08-01", "high": 2}).structured_content == carried
    assert definition(pong).to_result({"status": "ok", "secret": 1}).structured_content == {"status": "ok"}
    assert convert(CallResult.error("no")) == CallResult.error("no")


def test_result_that_does_not_match_its_declared_type_is_rejected() -> None:
    def pong() -> Pong:
        raise AssertionError

    def point() -> Point:
        raise AssertionError

    assert "not a Pong: status: is required" in refusal({}, definition(pong).to_result).message
    assert "not a Pong" in refusal(None, definition(pong).to_result).message
    wrong: Any = "far"
    assert "a Point with wrong fields" in refusal(Point(wrong), definition(point).to_result).message


def test_return_type_without_a_schema_is_rejected_at_definition() -> None:
    class Opaque:
        pass

    class Odd(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        opaque: Opaque

    def odd() -> Odd:
        raise AssertionError

    with pytest.raises(ConfigError, match="its return type has no JSON Schema"):
        tool(odd)
