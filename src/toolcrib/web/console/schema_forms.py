"""Builds forms from JSON Schemas, and arguments from submitted forms.

A schema and the submitted values make a tree of fields. A template renders the tree; `read` turns it into arguments, or
reports the invalid fields. Free-form objects, deep nesting and ambiguous schemas become one field for JSON.

Inputs are named by the JSON pointer of their value: `/a/0` is plain text, `=/a/0` JSON, `?/a/0` the chosen branch of a
union, `#/a` the length of a list, `@/a` a file.

Pure. Must never validate more than the form needs: the gate validates arguments.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import orjson

from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object, loads

Kind = Literal[
    "text", "line", "number", "integer", "boolean", "choice", "fixed", "object", "list", "union", "json", "file"
]
Filled = Mapping[str, str]
"""Submitted values, by input name."""

DEEPEST: Final = 6
LONGEST_LIST: Final = 100
_LINES: Final = {"email": "email", "uri": "url", "date": "date", "time": "time", "date-time": "text", "uuid": "text"}
"""Single-line string formats, and the input type of each."""
_NUMBERS: Final = {"integer": "Must be a whole number.", "number": "Must be a number."}
_NEEDED: Final = "Required."
_ABSENT: Final = object()
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "str": ("string",), "bool": ("boolean",), "int": ("integer", "number"), "float": ("number",), "list": ("array",),
}  # fmt: skip
"""The schema types that a Python value can match."""


@dataclass(frozen=True, slots=True)
class Field:
    """One input or group. `options` are JSON values to choose from, or the names of a union's branches."""

    path: str
    id: str
    kind: Kind
    label: str
    required: bool
    help: str = ""
    text: str = ""
    without: str | None = None
    options: tuple[str, ...] = ()
    chosen: int = 0
    value: Json = None
    children: tuple["Field", ...] = ()
    input: str = "text"
    base64: bool = False

    @property
    def blank(self) -> bool:
        """Whether nothing was filled in here or below."""
        if self.kind in ("object", "union"):
            return all(child.blank for child in self.children)
        return not self.children if self.kind == "list" else self.kind == "fixed" or not self.text


@dataclass(frozen=True, slots=True)
class FormArguments:
    """The arguments of a form, and an error message per invalid field; with errors the arguments are incomplete."""

    value: JsonObject
    wrong: Mapping[str, str]


def build(schema: JsonObject, filled: Filled) -> Field:
    """Return the field tree of a schema. A root that is not a plain object becomes one JSON field."""
    return _Builder(schema, filled).field(schema, "", "field", "Arguments", True, 0)


def read(form: Field) -> FormArguments:
    """Return the arguments of a form."""
    wrong: dict[str, str] = {}
    value = _value(form, wrong)
    if not is_object(value):
        if value is not _ABSENT and not wrong:
            wrong[form.path] = "Must be a JSON object."
        value = {}
    return FormArguments(value, wrong)


def filled_with(value: Json, path: str = "") -> dict[str, str]:
    """Return the inputs of a form that represents this value."""
    filled = {f"={path}": dumps(value, option=orjson.OPT_INDENT_2).decode()}
    if is_object(value):
        for name, member in value.items():
            filled |= filled_with(member, _inside(path, name))
    elif is_array(value):
        filled[f"#{path}"] = str(len(value))
        for index, item in enumerate(value):
            filled |= filled_with(item, f"{path}/{index}")
    elif value is not None:
        filled[path] = value if isinstance(value, str) else dumps(value).decode()
    return filled


def grown(filled: Filled, path: str) -> dict[str, str]:
    """Return the inputs with one more item in the list at `path`."""
    return {**filled, f"#{path}": str(_size(filled, path, 0) + 1)}


def shrunk(filled: Filled, path: str) -> dict[str, str]:
    """Return the inputs without the list item at `path`; later items move up."""
    parent, _, position = path.rpartition("/")
    if not position.isdigit():
        return dict(filled)
    gone, kept = int(position), dict[str, str]()
    for name, text in filled.items():
        sign, place = (name[0], name[1:]) if name[:1] in ("=", "?", "#", "@") else ("", name)
        index, slash, rest = place.removeprefix(f"{parent}/").partition("/")
        if not place.startswith(f"{parent}/") or not index.isdigit() or int(index) < gone:
            kept[name] = text
        elif int(index) > gone:
            kept[f"{sign}{parent}/{int(index) - 1}{slash}{rest}"] = text
    return {**kept, f"#{parent}": str(max(0, _size(filled, parent, 0) - 1))}


class _Builder:
    """Builds the fields of one schema."""

    def __init__(self, root: JsonObject, filled: Filled) -> None:
        self._root = root
        self._filled = filled

    def field(self, raw: Json, path: str, id: str, label: str, required: bool, depth: int) -> Field:
        schema = self._plain(raw)
        words = schema.get("title") if depth and isinstance(schema.get("title"), str) else label
        help = schema.get("description")
        default = schema.get("default")
        made = Field(
            path,
            id,
            "json",
            str(words),
            required,
            help if isinstance(help, str) and depth else "",
            self._filled.get(f"={path}", ""),
            None if default is None or required else _to_text(default),
        )
        return self._shape(made, schema, depth)

    def _shape(self, made: Field, schema: JsonObject, depth: int) -> Field:
        if depth > DEEPEST:
            return made
        if "const" in schema:
            return replace(made, kind="fixed", value=schema["const"])
        if is_array(options := schema.get("enum")) and options:
            return replace(made, kind="choice", options=tuple(_to_text(each) for each in options))
        branches = self._branches(schema, made.required)
        if len(branches) > 1:
            return self._union(made, branches, depth)
        (schema,) = branches
        match schema.get("type"):
            case "object":
                return self._object(made, schema, depth)
            case "array" if is_object(schema.get("items")):
                return self._list(made, schema, depth)
            case "string":
                return self._string(made, schema)
            case "integer" | "number" | "boolean" as kind:
                return replace(made, kind=kind, text=self._filled.get(made.path, ""))
            case _:
                return made

    def _object(self, made: Field, schema: JsonObject, depth: int) -> Field:
        properties = schema.get("properties")
        if not is_object(properties) or (not properties and depth):
            return made
        needed = schema.get("required")
        names = {name for name in needed if isinstance(name, str)} if is_array(needed) else set[str]()
        ordered = sorted(properties, key=lambda name: name not in names)
        children = tuple(
            self.field(properties[name], _inside(made.path, name), f"{made.id}-{index}", name, name in names, depth + 1)
            for index, name in enumerate(ordered)
        )
        return replace(made, kind="object", children=children)

    def _list(self, made: Field, schema: JsonObject, depth: int) -> Field:
        least = schema.get("minItems")
        size = _size(self._filled, made.path, least if isinstance(least, int) and made.required else 0)
        children = tuple(
            self.field(schema["items"], f"{made.path}/{index}", f"{made.id}-{index}", f"{index + 1}", True, depth + 1)
            for index in range(size)
        )
        return replace(made, kind="list", children=children)

    def _string(self, made: Field, schema: JsonObject) -> Field:
        text = self._filled.get(made.path, "").replace("\r\n", "\n")  # browsers submit CRLF
        form = schema.get("format")
        encoded = schema.get("contentEncoding") == "base64" or form in ("byte", "binary")
        if encoded or "contentMediaType" in schema:
            return replace(made, kind="file", text=self._file(made.path, encoded) or text, base64=encoded)
        if form in _LINES:
            return replace(made, kind="line", text=text, input=_LINES[form])
        return replace(made, kind="text", text=text)

    def _file(self, path: str, encoded: bool) -> str | None:
        given = self._filled.get(f"@{path}")
        if not given or encoded:
            return given or None
        try:
            return base64.b64decode(given).decode()
        except (binascii.Error, UnicodeDecodeError):
            return given

    def _union(self, made: Field, branches: list[JsonObject], depth: int) -> Field:
        chosen = self._chosen_branch(made.path, branches)
        names = tuple(_name(branch, number) for number, branch in enumerate(branches, 1))
        child = self.field(branches[chosen], made.path, f"{made.id}-{chosen}", names[chosen], True, depth + 1)
        return replace(made, kind="union", options=names, chosen=chosen, children=(replace(child, help=""),))

    def _chosen_branch(self, path: str, branches: list[JsonObject]) -> int:
        number = self._filled.get(f"?{path}", "")
        if number.isdigit() and int(number) < len(branches):
            return int(number)
        try:
            value: Json = loads(self._filled.get(f"={path}", ""))
        except orjson.JSONDecodeError:
            return 0
        return next((index for index, branch in enumerate(branches) if _fits(branch, value)), 0)

    def _branches(self, schema: JsonObject, required: bool) -> list[JsonObject]:
        """Return the alternatives that a schema allows. Null is dropped if optional: an empty field means the same."""
        kinds = schema.get("type")
        several = next((schema[word] for word in ("anyOf", "oneOf") if is_array(schema.get(word))), None)
        if several is not None:
            found = [self._plain(each) for each in several]
        elif is_array(kinds):
            found = [{**schema, "type": kind} for kind in kinds]
        else:
            return [schema]
        found = [each for each in found if required or each.get("type") != "null"]
        nothing: JsonObject = {"const": None, "title": "nothing"}
        return [nothing if each.get("type") == "null" else each for each in found] or [{}]

    def _plain(self, schema: Json) -> JsonObject:
        """Return a schema with its references resolved; empty if a reference is broken or circular."""
        plain: JsonObject = dict(schema) if is_object(schema) else {}
        for _ in range(2 * DEEPEST):
            together = plain.get("allOf")
            if isinstance(target := plain.pop("$ref", None), str):
                plain = {**self._target(target), **plain}
            elif is_array(together) and len(together) == 1 and is_object(together[0]):
                plain = {**together[0], **{key: value for key, value in plain.items() if key != "allOf"}}
            else:
                return plain
        return {}

    def _target(self, reference: str) -> JsonObject:
        found: Json = self._root
        if not reference.startswith("#"):
            return {}
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if is_object(found) else None
        return found if is_object(found) else {}


def _value(field: Field, wrong: dict[str, str]) -> Json:
    """Return the value of a field, or `_ABSENT`."""
    if not field.required and field.blank and field.kind != "list":
        return _ABSENT
    match field.kind:
        case "object":
            members = ((_last(child.path), _value(child, wrong)) for child in field.children)
            return {name: value for name, value in members if value is not _ABSENT}
        case "list":
            items = [value for child in field.children if (value := _value(child, wrong)) is not _ABSENT]
            return items if items or field.required else _ABSENT
        case "union":
            return _value(field.children[0], wrong)
        case "fixed":
            return field.value
        case "text" | "line" | "file":
            return field.text
        case _:
            return _parse(field, wrong)


def _parse(field: Field, wrong: dict[str, str]) -> Json:
    """Return the value of a field that is entered as JSON."""
    if not field.text.strip():
        if field.path:
            wrong[field.path] = _NEEDED
        return _ABSENT
    try:
        value: Json = loads(field.text)
    except orjson.JSONDecodeError as error:
        wrong[field.path] = _NUMBERS.get(field.kind, f"Not valid JSON: {error}.")
        return _ABSENT
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.kind in _NUMBERS and (not is_number or (field.kind == "integer" and value != int(value))):
        wrong[field.path] = _NUMBERS[field.kind]
    return value


def _fits(schema: JsonObject, value: Json) -> bool:
    """Return whether a value matches this branch of a union; the first match is displayed."""
    if "const" in schema:
        return bool(schema["const"] == value)
    if is_array(options := schema.get("enum")):
        return value in options
    if is_object(value):
        properties, needed = schema.get("properties"), schema.get("required")
        members = properties if is_object(properties) else {}
        fixed = all(
            _fits(member, value[name]) for name, member in members.items() if _is_fixed(member) and name in value
        )
        return (
            schema.get("type") in ("object", None) and fixed and set(needed if is_array(needed) else ()) <= set(value)
        )
    return schema.get("type") in _TYPES.get(type(value).__name__, ())


def _is_fixed(schema: Json) -> bool:
    return is_object(schema) and "const" in schema


def _name(schema: JsonObject, number: int) -> str:
    """Return the name of a union's branch."""
    properties = schema.get("properties")
    fixed = _constants(properties) if is_object(properties) else iter(())
    items = schema.get("items")
    plural = f"list of {items['type']}s" if is_object(items) and isinstance(items.get("type"), str) else None
    for word in (schema.get("title"), next(fixed, None), plural, schema.get("type")):
        if isinstance(word, str):
            return word
    return _to_text(schema["const"]) if "const" in schema else f"option {number}"


def _constants(properties: JsonObject) -> Iterator[str]:
    return (str(member["const"]) for member in properties.values() if _is_fixed(member))


def _size(filled: Filled, path: str, least: int) -> int:
    text = filled.get(f"#{path}", "")
    return min(int(text) if text.isdigit() and len(text) < 9 else least, LONGEST_LIST)


def _inside(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def _last(path: str) -> str:
    return path.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _to_text(value: Json) -> str:
    return dumps(value).decode()
