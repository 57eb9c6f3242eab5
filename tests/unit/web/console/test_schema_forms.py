"""Forms built from schemas: their fields, and the values that are read from them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.web.console.schema_forms import LONGEST_LIST, Field, build, filled_with, grown, read, shrunk

Schema = dict[str, Any]
NAMES = st.text(min_size=1, max_size=6)
WORDS = st.sampled_from(["type", "properties", "items", "anyOf", "enum", "$ref", "allOf", "required", "const"])
NONSENSE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.text(), st.integers()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner)),
    max_leaves=12,
)


def object_of(**properties: Any) -> Schema:
    """Return the schema of an object with these required members."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def only_field(schema: Any, filled: dict[str, str] | None = None, *, required: bool = True) -> Field:
    """Return the one field of a form with the argument `a`."""
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"] if required else []}
    (field,) = build(whole, filled or {}).children
    return field


def schemas_with_values() -> st.SearchStrategy[tuple[Schema, Any]]:
    """Return a strategy for schemas, each with a valid value."""
    leaves = st.one_of(
        st.tuples(
            st.just({"type": "string"}), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))
        ),
        st.tuples(st.just({"type": "integer"}), st.integers(-(2**53), 2**53)),
        st.tuples(st.just({"type": "number"}), st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just({"type": "boolean"}), st.booleans()),
        st.tuples(st.just({"enum": ["a", 1, None]}), st.sampled_from(["a", 1, None])),
        st.tuples(st.just({"type": "object"}), st.dictionaries(NAMES, st.integers(0, 9), max_size=2)),
        st.tuples(st.just({"anyOf": [{"type": "string"}, {"type": "null"}]}), st.one_of(st.just("x"), st.none())),
        st.tuples(st.just({"const": 7}), st.just(7)),
    )

    def deeper(inner: st.SearchStrategy[tuple[Schema, Any]]) -> st.SearchStrategy[tuple[Schema, Any]]:
        members = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
        objects = members.map(
            lambda each: (object_of(**{k: s for k, (s, _) in each.items()}), {k: v for k, (_, v) in each.items()})
        )
        lists = st.tuples(inner, st.integers(0, 3)).map(
            lambda each: ({"type": "array", "items": each[0][0]}, [each[0][1]] * each[1])
        )
        return st.one_of(objects, lists)

    return st.recursive(leaves, deeper, max_leaves=6)


@given(st.dictionaries(NAMES, schemas_with_values(), max_size=4))
def test_form_filled_with_arguments_reads_back_the_same_arguments(members: dict[str, tuple[Schema, Any]]) -> None:
    schema = object_of(**{name: each for name, (each, _) in members.items()})
    value = {name: each for name, (_, each) in members.items()}
    result = read(build(schema, filled_with(value)))
    assert (result.value, result.wrong) == (value, {})


@given(NONSENSE)
def test_any_schema_yields_a_form(nonsense: Any) -> None:
    schema = {"type": "object", "properties": {"a": nonsense}, "required": nonsense}
    read(build(schema, {"/a": "x", "=/a": "{", "?/a": "9", "#/a": "3"}))


def test_recursive_schema_ends_as_a_json_field() -> None:
    node: Schema = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}
    field = build({"$defs": {"node": node}, **object_of(a={"$ref": "#/$defs/node"})}, {}).children[0]
    for _ in range(20):
        deeper = [child for child in field.children if child.path.endswith("/next")]
        if not deeper:
            break
        (field,) = deeper
    assert field.kind == "json"
    assert only_field({"$ref": "#/properties/a"}).kind == "json"
    assert only_field({"$ref": "https://elsewhere.example/schema"}).kind == "json"


def test_untouched_optional_object_is_left_out() -> None:
    schema = {"type": "object", "properties": {"at": object_of(x={"type": "number"}, name={"type": "string"})}}
    assert read(build(schema, {})).value == {}
    half = read(build(schema, {"/at/name": "here"}))
    assert half.wrong == {"/at/x": "Required."}


def test_empty_required_field_is_an_error_except_for_text() -> None:
    schema = object_of(
        number={"type": "number"}, choice={"enum": [1]}, flag={"type": "boolean"}, text={"type": "string"}
    )
    result = read(build(schema, {}))
    assert set(result.wrong) == {"/number", "/choice", "/flag"}
    assert result.value == {"text": ""}


def test_numbers_are_validated_by_their_type() -> None:
    assert read(build(object_of(a={"type": "integer"}), {"/a": "1.5"})).wrong
    assert read(build(object_of(a={"type": "integer"}), {"/a": "true"})).wrong
    assert read(build(object_of(a={"type": "number"}), {"/a": "NaN"})).wrong
    assert read(build(object_of(a={"type": "number"}), {"/a": " 2.50 "})).value == {"a": 2.5}


def test_union_is_a_choice_and_null_is_one_only_if_required() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert only_field(either, required=False).kind == "text"
    needed = only_field(either)
    assert (needed.kind, needed.options) == ("union", ("string", "nothing"))
    kinds = {"oneOf": [object_of(kind={"const": "circle"}, r={"type": "number"}), object_of(kind={"const": "dot"})]}
    assert only_field(kinds).options == ("circle", "dot")
    assert read(build(object_of(a=kinds), {"?/a": "1"})).value == {"a": {"kind": "dot"}}
    assert only_field(kinds, filled_with({"a": {"kind": "dot"}})).chosen == 1


def test_items_of_lists_are_added_and_removed() -> None:
    schema = object_of(a={"type": "array", "items": object_of(b={"type": "string"})})
    filled = filled_with({"a": [{"b": "1"}, {"b": "2"}, {"b": "3"}]})
    assert read(build(schema, shrunk(filled, "/a/1"))).value == {"a": [{"b": "1"}, {"b": "3"}]}
    assert read(build(schema, grown(filled, "/a"))).value["a"][3] == {"b": ""}
    assert len(only_field(schema["properties"]["a"], {"#/a": "99999999"}).children) == LONGEST_LIST
    assert shrunk({"/a/x": "1"}, "/a/x") == {"/a/x": "1"}


def test_schema_that_is_not_a_plain_object_is_one_json_field() -> None:
    assert build({}, {"=": '{"a": 1}'}).kind == "json"
    assert read(build({}, {"=": '{"a": 1}'})).value == {"a": 1}
    assert read(build({}, {"=": "[1]"})).wrong == {"": "Must be a JSON object."}
    assert read(build({}, {})).wrong == {}
    assert build({"type": "object", "properties": {}}, {}).kind == "object"


def test_file_is_read_as_text_or_base64_by_its_schema() -> None:
    encoded = {"type": "string", "contentEncoding": "base64"}
    plain = {"type": "string", "contentMediaType": "text/csv"}
    assert only_field(encoded, {"@/a": "AP8="}).text == "AP8="
    assert only_field(plain, {"@/a": "YSxi"}).text == "a,b"
    assert only_field(plain, {"/a": "typed", "@/a": ""}).text == "typed"
