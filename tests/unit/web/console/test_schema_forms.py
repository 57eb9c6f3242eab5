"""Forms made from schemas: what they ask for, and that what they say is what was filled in."""

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
    """An object with these members, all of them needed."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def only(schema: Any, filled: dict[str, str] | None = None, *, required: bool = True) -> Field:
    """The one field of a form with the argument `a`."""
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"] if required else []}
    (field,) = build(whole, filled or {}).children
    return field


def schemas_with_values() -> st.SearchStrategy[tuple[Schema, Any]]:
    """Schemas, each with a value that fits it."""
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
def test_a_form_filled_with_arguments_says_these_arguments(members: dict[str, tuple[Schema, Any]]) -> None:
    schema = object_of(**{name: each for name, (each, _) in members.items()})
    value = {name: each for name, (_, each) in members.items()}
    said = read(build(schema, filled_with(value)))
    assert (said.value, said.wrong) == (value, {})


@given(NONSENSE)
def test_no_schema_however_wrong_breaks_a_form(nonsense: Any) -> None:
    schema = {"type": "object", "properties": {"a": nonsense}, "required": nonsense}
    read(build(schema, {"/a": "x", "=/a": "{", "?/a": "9", "#/a": "3"}))


def test_what_refers_to_itself_ends_as_a_field_for_json() -> None:
    node: Schema = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}
    field = build({"$defs": {"node": node}, **object_of(a={"$ref": "#/$defs/node"})}, {}).children[0]
    for _ in range(20):
        deeper = [child for child in field.children if child.path.endswith("/next")]
        if not deeper:
            break
        (field,) = deeper
    assert field.kind == "json"
    assert only({"$ref": "#/properties/a"}).kind == "json"
    assert only({"$ref": "https://elsewhere.example/schema"}).kind == "json"


def test_optional_objects_that_were_not_touched_are_not_said_although_they_need_something() -> None:
    schema = {"type": "object", "properties": {"at": object_of(x={"type": "number"}, name={"type": "string"})}}
    assert read(build(schema, {})).value == {}
    half = read(build(schema, {"/at/name": "here"}))
    assert half.wrong == {"/at/x": "Required."}


def test_what_is_needed_and_empty_is_told_except_for_text_which_may_be_empty() -> None:
    schema = object_of(
        number={"type": "number"}, choice={"enum": [1]}, flag={"type": "boolean"}, text={"type": "string"}
    )
    said = read(build(schema, {}))
    assert set(said.wrong) == {"/number", "/choice", "/flag"}
    assert said.value == {"text": ""}


def test_numbers_are_numbers_of_their_kind() -> None:
    assert read(build(object_of(a={"type": "integer"}), {"/a": "1.5"})).wrong
    assert read(build(object_of(a={"type": "integer"}), {"/a": "true"})).wrong
    assert read(build(object_of(a={"type": "number"}), {"/a": "NaN"})).wrong
    assert read(build(object_of(a={"type": "number"}), {"/a": " 2.50 "})).value == {"a": 2.5}


def test_a_union_is_a_choice_and_nothing_is_one_only_where_a_value_is_needed() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert only(either, required=False).kind == "text"
    needed = only(either)
    assert (needed.kind, needed.options) == ("union", ("string", "nothing"))
    kinds = {"oneOf": [object_of(kind={"const": "circle"}, r={"type": "number"}), object_of(kind={"const": "dot"})]}
    assert only(kinds).options == ("circle", "dot")
    assert read(build(object_of(a=kinds), {"?/a": "1"})).value == {"a": {"kind": "dot"}}
    assert only(kinds, filled_with({"a": {"kind": "dot"}})).chosen == 1


def test_lists_grow_and_shrink_in_the_middle() -> None:
    schema = object_of(a={"type": "array", "items": object_of(b={"type": "string"})})
    filled = filled_with({"a": [{"b": "1"}, {"b": "2"}, {"b": "3"}]})
    assert read(build(schema, shrunk(filled, "/a/1"))).value == {"a": [{"b": "1"}, {"b": "3"}]}
    assert read(build(schema, grown(filled, "/a"))).value["a"][3] == {"b": ""}
    assert len(only(schema["properties"]["a"], {"#/a": "99999999"}).children) == LONGEST_LIST
    assert shrunk({"/a/x": "1"}, "/a/x") == {"/a/x": "1"}


def test_a_root_that_is_no_plain_object_is_asked_for_as_json() -> None:
    assert build({}, {"=": '{"a": 1}'}).kind == "json"
    assert read(build({}, {"=": '{"a": 1}'})).value == {"a": 1}
    assert read(build({}, {"=": "[1]"})).wrong == {"": "Must be a JSON object."}
    assert read(build({}, {})).wrong == {}
    assert build({"type": "object", "properties": {}}, {}).kind == "object"


def test_a_file_is_text_or_base64_as_the_schema_says() -> None:
    encoded = {"type": "string", "contentEncoding": "base64"}
    plain = {"type": "string", "contentMediaType": "text/csv"}
    assert only(encoded, {"@/a": "AP8="}).text == "AP8="
    assert only(plain, {"@/a": "YSxi"}).text == "a,b"
    assert only(plain, {"/a": "typed", "@/a": ""}).text == "typed"
