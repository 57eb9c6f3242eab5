"""Defaults of a schema are filled in where the schema allows it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.defaults import argument_names, compile_defaults
from toolcrib.model.json import Json, JsonObject, is_object

DAYS: JsonObject = {"properties": {"days": {"default": 7}}}


def fill_defaults(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    filler = compile_defaults(schema)
    return arguments if filler is None else filler.fill(arguments)


def test_absent_arguments_get_defaults_and_given_ones_are_kept() -> None:
    schema = {"properties": {"days": {"type": "integer", "default": 7}, "city": {"type": "string"}}}
    assert fill_defaults(schema, {"city": "Ulm"}) == {"city": "Ulm", "days": 7}
    given = {"days": 1}
    assert fill_defaults(schema, given) is given


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"at": DAYS}},
        {"allOf": [{"properties": {"at": {"$ref": "#/$defs/at"}}}], "$defs": {"at": DAYS}},
        {"$ref": "#/$defs/all", "$defs": {"all": {"properties": {"at": {"allOf": [DAYS]}}}}},
    ],
)
def test_defaults_are_found_through_objects_references_and_compositions(schema: JsonObject) -> None:
    assert fill_defaults(schema, {"at": {}}) == {"at": {"days": 7}}
    assert fill_defaults(schema, {}) == {}


def test_items_of_lists_get_their_defaults() -> None:
    schema = {"properties": {"all": {"items": DAYS}}}
    assert fill_defaults(schema, {"all": [{}, {"days": 1}]}) == {"all": [{"days": 7}, {"days": 1}]}


@pytest.mark.parametrize(
    "inner",
    [
        {"type": "integer", "default": "7"},
        {"type": "string", "default": None},
        {"enum": ["a", "b"], "default": "c"},
        {"type": "boolean", "default": 1},
        {"type": "integer", "default": True},
    ],
)
def test_default_that_its_schema_forbids_is_not_used(inner: JsonObject) -> None:
    assert fill_defaults({"properties": {"x": inner}}, {}) == {}


def test_filling_modifies_neither_the_arguments_nor_the_schema() -> None:
    schema = {"properties": {"x": {"default": {"a": [1]}}, "y": {"properties": {"z": {"default": 1}}}}}
    given: JsonObject = {"y": {}}
    result = fill_defaults(schema, given)
    result["x"]["a"].append(2)
    assert given == {"y": {}}
    assert fill_defaults(schema, {})["x"] == {"a": [1]}


def test_recursive_and_huge_schemas_are_bounded() -> None:
    tree: JsonObject = {"properties": {"child": {"$ref": "#"}, "n": {"default": 1}}}
    assert fill_defaults(tree, {"child": {"child": {}}}) == {"n": 1, "child": {"n": 1, "child": {"n": 1}}}
    wide: JsonObject = {"allOf": [{"properties": {f"p{n}": {"default": n}}} for n in range(20_000)]}
    assert 0 < len(fill_defaults(wide, {})) < 5_000


def test_argument_names_include_those_of_every_branch() -> None:
    schema: JsonObject = {
        "oneOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/b"}],
        "$defs": {"b": {"properties": {"b": {}}}},
    }
    assert argument_names(schema) == {"a", "b"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "allOf", "$ref", "default", "type", "enum", "a"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["properties", "allOf", "$ref", "items"]), JSON), JSON)
def test_filling_works_for_any_schema_and_is_idempotent(schema: JsonObject, value: Json) -> None:
    once = fill_defaults(schema, value if is_object(value) else {})
    assert fill_defaults(schema, once) == once
