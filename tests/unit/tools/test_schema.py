"""Arguments of tools: the input schema, and the validation of what a caller sends."""

import dataclasses
import datetime
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from toolcrib.model.errors import ConfigError, InvalidRequest
from toolcrib.model.json import Json, JsonObject, canonical
from toolcrib.tools import tool
from toolcrib.tools.define import definition_of


class Unit(Enum):
    """Of temperature."""

    CELSIUS = "c"
    FAHRENHEIT = "f"


class Place(BaseModel):
    """A place on a map."""

    name: str
    inside: "Place | None" = None


@dataclasses.dataclass
class Range:
    low: int
    high: int = 10


def schema_of(function: Callable[..., Any]) -> JsonObject:
    definition = definition_of(tool(function))
    assert definition is not None
    return definition.input_schema


def check(function: Callable[..., Any], arguments: Json) -> dict[str, Any]:
    definition = definition_of(tool(function))
    assert definition is not None
    return definition.check(canonical(arguments))


def refusal(function: Callable[..., Any], arguments: Json) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check(function, arguments)
    assert caught.value.code == "tool.arguments_invalid"
    return caught.value.message


def test_schema_has_only_types_descriptions_and_defaults() -> None:
    async def forecast(city: str, days: Annotated[int, "1 to 7"] = 3, *, unit: Unit = Unit.CELSIUS) -> None: ...

    assert schema_of(forecast) == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "description": "1 to 7", "default": 3},
            "unit": {"$ref": "#/$defs/Unit", "default": "c"},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"Unit": {"type": "string", "enum": ["c", "f"], "title": "Unit", "description": "Of temperature."}},
    }


def test_tool_without_parameters_takes_an_empty_object() -> None:
    def ping() -> None: ...

    assert schema_of(ping) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert check(ping, {}) == {}
    assert "x: is not a parameter" in refusal(ping, {"x": 1})


PLAIN: list[tuple[Any, Any]] = [
    (str, "a"), (int, 3), (float, 1), (bool, True), (Any, None), (None, None), (dict, {}), (list, []),
    (str, None), (int, "no"), (list[str], ["a"]), (dict[str, int], {"a": 1}), (int | None, None),
    (int | str, 3), (Literal["x", 2], "x"), (Literal[0], False), (Literal[False], 0),
    (list[dict[str, Any]] | None, None), (dict[str, list[int | str]], {"a": [1, "b"]}), (float, float("nan")),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "default"), PLAIN)
@pytest.mark.parametrize("text", [None, "What it is."])
def test_schema_of_a_plain_type_equals_that_of_pydantic(annotation: Any, default: Any, text: str | None) -> None:
    def plain(needed: Any, given: Any = default) -> None: ...
    def built(needed: Any, given: Any = default) -> None: ...

    written = annotation if text is None else Annotated[annotation, text]
    exact = Annotated[annotation, Field(description=text)]
    plain.__annotations__ = {"needed": written, "given": written, "return": None}
    built.__annotations__ = {"needed": exact, "given": exact, "return": None}
    assert json.dumps(schema_of(plain)) == json.dumps(schema_of(built))


def test_members_of_a_union_keep_their_order() -> None:
    def first(value: int | str) -> None: ...
    def second(value: str | int) -> None: ...

    kinds = [[each["type"] for each in schema_of(f)["properties"]["value"]["anyOf"]] for f in (first, second)]
    assert kinds == [["integer", "string"], ["string", "integer"]]


def test_any_parameter_name_can_be_used() -> None:
    def odd(schema: int, _x: int, json: int, self: int, model_config: int, copy: int) -> None: ...

    names = ["schema", "_x", "json", "self", "model_config", "copy"]
    assert list(schema_of(odd)["properties"]) == names
    given = dict.fromkeys(names, 1)
    assert check(odd, given) == given


def test_description_comes_from_annotation_then_field_then_docstring() -> None:
    def act(a: Annotated[int, "annotated"], b: Annotated[int, Field(description="field", ge=1)], c: int) -> None:
        """Act.

        Args:
            a: doc a
            b: doc b
            c: doc c
        """

    properties = schema_of(act)["properties"]
    assert [properties[name]["description"] for name in "abc"] == ["annotated", "field", "doc c"]
    assert properties["b"]["minimum"] == 1


def test_alias_is_the_name_that_callers_use() -> None:
    def move(to: str, from_: Annotated[str, Field(alias="from")] = "here") -> None: ...

    assert schema_of(move)["properties"]["from"] == {"type": "string", "default": "here"}
    assert check(move, {"to": "a", "from": "b"}) == {"to": "a", "from_": "b"}


def test_default_that_the_schema_would_reject_is_left_out() -> None:
    nothing: Any = None
    opaque: Any = Opaque()

    def act(a: str = nothing, b: str | None = None, c: float = float("nan"), d: Any = opaque) -> None: ...

    properties = schema_of(act)["properties"]
    assert {name for name, shape in properties.items() if "default" in shape} == {"b"}


def test_only_given_arguments_are_returned() -> None:
    def act(a: int, b: int = 2, c: int | None = None) -> None: ...

    assert check(act, {"a": 1}) == {"a": 1}
    assert check(act, {"a": 1, "c": None}) == {"a": 1, "c": None}


def test_values_are_converted_to_the_declared_types() -> None:
    def act(
        unit: Unit, place: Place, span: Range, day: datetime.date, key: uuid.UUID, kind: Literal["a", 1],
        price: Decimal, tags: set[str], pair: tuple[int, str], table: dict[str, list[int]], ratio: float,
        maybe: int | None,
    ) -> None: ...  # fmt: skip

    key = uuid.uuid4()
    assert check(
        act,
        {
            "unit": "f", "place": {"name": "Ulm", "inside": {"name": "Earth"}}, "span": {"low": 1}, "day": "2026-08-01",
            "key": str(key), "kind": 1, "price": "1.50", "tags": ["x"], "pair": [1, "a"], "table": {"a": [1]},
            "ratio": 1, "maybe": None,
        },
    ) == {
        "unit": Unit.FAHRENHEIT, "place": Place(name="Ulm", inside=Place(name="Earth")), "span": Range(1),
        "day": datetime.date(2026, 8, 1), "key": key, "kind": 1, "price": Decimal("1.50"), "tags": {"x"},
        "pair": (1, "a"), "table": {"a": [1]}, "ratio": 1.0, "maybe": None,
    }  # fmt: skip


def test_each_invalid_field_is_named_with_its_reason() -> None:
    def act(city: str, place: Place, days: Annotated[int, Field(ge=1, le=7)] = 3) -> None: ...

    message = refusal(act, {"place": {"name": 5, "inside": {}}, "days": 9, "dayz": 1})
    assert message == (
        "Invalid arguments: city: is required; place.name: Input should be a valid string; "
        "place.inside.name: is required; days: Input should be less than or equal to 7; dayz: is not a parameter."
    )


@pytest.mark.parametrize("sent", ["3", 3.5, True, None, [3], {"n": 3}])
def test_value_that_is_not_an_integer_is_rejected(sent: Json) -> None:
    def act(n: int) -> None: ...

    assert "n: " in refusal(act, {"n": sent})


def test_strict_validation_includes_nested_types() -> None:
    class Step(BaseModel):
        count: int

    def act(span: Range, step: Step, many: list[int]) -> None: ...

    message = refusal(act, {"span": {"low": "1"}, "step": {"count": "1"}, "many": [1, "2"]})
    assert [clause.split(":")[0] for clause in message.removeprefix("Invalid arguments: ").split("; ")] == [
        "span.low",
        "step.count",
        "many.1",
    ]


def test_arguments_that_are_not_an_object_are_rejected() -> None:
    def act() -> None: ...

    assert refusal(act, [1]) == "Invalid arguments: arguments: Input should be an object."


def test_error_does_not_repeat_the_sent_values() -> None:
    def act(password: int, kind: Literal["a"]) -> None: ...

    assert "hunter2" not in refusal(act, {"password": "hunter2", "kind": "hunter2"})


def test_error_message_is_short_and_on_one_line() -> None:
    def act() -> None: ...

    message = refusal(act, {f"x{number}\n\x1b[31m" + "y" * 10_000: number for number in range(50)})
    assert message.endswith("and 40 more.")
    assert len(message) < 2_000
    assert message.isprintable()


def test_failing_validator_rejects_the_arguments(caplog: pytest.LogCaptureFixture) -> None:
    def broken(value: int) -> int:
        raise KeyError(value)

    def act(n: Annotated[int, AfterValidator(broken)] = 4) -> None: ...

    assert "default" not in schema_of(act)["properties"]["n"]
    message = refusal(act, {"n": 1234})
    assert message == "The arguments could not be checked: KeyError in a validator."
    assert "a validator failed" in caplog.text


def test_schema_of_a_function_is_deterministic() -> None:
    def act(place: Place, unit: Unit, kind: Literal["b", "a"]) -> None: ...

    assert json.dumps(schema_of(act)) == json.dumps(schema_of(act))


FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON | st.fixed_dictionaries({}, optional={"text": JSON, "count": JSON, "place": JSON, "other": JSON}))
def test_any_arguments_are_accepted_or_rejected_with_a_reason(sent: Json) -> None:
    def act(text: str, count: int = 1, place: Place | None = None) -> None: ...

    try:
        values = check(act, sent)
    except InvalidRequest as error:
        assert error.code == "tool.arguments_invalid"
        assert error.message.isprintable()
    else:
        assert isinstance(values["text"], str)
        assert type(values.get("count", 1)) is int
        assert isinstance(values.get("place"), Place | None)
        assert values.keys() <= sent.keys()


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.lists(FINITE))
def test_valid_values_arrive_unchanged(text: str, count: int, many: list[float]) -> None:
    def act(text: str, count: int, many: list[float]) -> None: ...

    sent: JsonObject = {"text": text, "count": count, "many": many}
    assert check(act, sent) == sent


class Opaque:
    pass


def bad_star(*names: str) -> None: ...
def bad_stars(**names: str) -> None: ...
def bad_positional(name: str, /) -> None: ...
def bad_untyped(name: str) -> None: ...
def bad_opaque(ok: int, name: Opaque) -> None: ...
def bad_callable(name: Callable[[], int]) -> None: ...
def bad_forward(name: str) -> None: ...
def bad_default(name: int = Field(default=3)) -> None: ...
def bad_inner_default(name: Annotated[int, Field(default=3)]) -> None: ...


del bad_untyped.__annotations__["name"]
bad_forward.__annotations__["name"] = "Nowhere"


@pytest.mark.parametrize(
    "function",
    [
        bad_star, bad_stars, bad_positional, bad_untyped, bad_opaque, bad_callable, bad_forward, bad_default,
        bad_inner_default,
    ],
)  # fmt: skip
def test_invalid_parameter_is_rejected_at_definition_with_its_name_and_a_hint(function: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        tool(function)
    assert caught.value.code == "tool.definition"
    assert function.__name__ in caught.value.message
    assert "`name" in caught.value.message or "`*name" in caught.value.message
    assert caught.value.hint
