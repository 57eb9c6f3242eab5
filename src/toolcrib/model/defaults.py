"""Fills defaults of a JSON Schema into arguments that omit them.

A `Filler` is compiled once per schema. It follows `properties`, `items`, `allOf` and local `$ref`s, within a fixed
depth and number of nodes. Branches of `anyOf` and `oneOf` are skipped, since only the tool knows which one applies.
Defaults that violate their own schema are ignored.

Must never modify the given arguments or fail for any schema.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from toolcrib.model.json import Json, JsonObject, is_array, is_object

_DEEPEST = 8
_MOST_NODES = 2_000
_MOST_ITEMS = 1_000
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "number": (int, float), "integer": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,), "null": (type(None),),
}  # fmt: skip


@dataclass(slots=True)
class Filler:
    """Fills the defaults of one object, and those of members that are present."""

    defaults: dict[str, Json] = field(default_factory=dict[str, Json])
    members: "dict[str, Filler]" = field(default_factory=dict[str, "Filler"])
    items: "Filler | None" = None

    def __bool__(self) -> bool:
        """Return whether there is anything to fill in."""
        return bool(self.defaults or self.members or self.items)

    def fill(self, value: JsonObject) -> JsonObject:
        """Return the object with defaults filled in, or the same object if it is complete."""
        filled = dict(value)
        for name, default in self.defaults.items():
            if name not in filled:
                filled[name] = deepcopy(default)
        for name, inside in self.members.items():
            if name in filled:
                filled[name] = inside.fill_any(filled[name])
        unchanged = len(filled) == len(value) and all(
            filled[name] is value[name] for name in self.members.keys() & value
        )
        return value if unchanged else filled

    def fill_any(self, value: Json) -> Json:
        """Return a value with the defaults of its members or items filled in."""
        if is_object(value):
            return self.fill(value)
        if self.items is None or not is_array(value) or len(value) > _MOST_ITEMS:
            return value
        items = [self.items.fill_any(each) for each in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items


class _Compiler:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._nodes = 0

    def compile(self, schema: Json, depth: int = 0) -> Filler:
        filler = Filler()
        for part in self._parts(schema, depth):
            properties: Json = part.get("properties")
            for name, inner in properties.items() if is_object(properties) else ():
                self._member(filler, name, inner, depth)
            if "items" in part and filler.items is None and depth < _DEEPEST:
                filler.items = self.compile(part["items"], depth + 1) or None
        return filler

    def _member(self, filler: Filler, name: str, schema: Json, depth: int) -> None:
        for part in self._parts(schema, depth):
            if "default" in part and name not in filler.defaults and self._allows(schema, part["default"]):
                filler.defaults[name] = part["default"]
        if depth < _DEEPEST and (inside := self.compile(schema, depth + 1)):
            filler.members[name] = inside

    def _allows(self, schema: Json, default: Json) -> bool:
        return all(_allows(part, default) for part in self._parts(schema, 0))

    def _parts(self, schema: Json, depth: int) -> Iterator[JsonObject]:
        """Yield the schema, its `$ref` targets and its `allOf` parts."""
        open_parts = [schema]
        seen: set[int] = set()
        while open_parts and self._nodes < _MOST_NODES:
            part = open_parts.pop(0)
            if not is_object(part) or id(part) in seen:
                continue
            seen.add(id(part))
            self._nodes += 1
            yield part
            if isinstance(part.get("$ref"), str):
                open_parts.append(self._resolve(part["$ref"]))
            if is_array(part.get("allOf")):
                open_parts.extend(part["allOf"])

    def _resolve(self, reference: str) -> Json:
        if not reference.startswith("#"):
            return None
        found: Json = self._root
        for step in filter(None, reference[1:].split("/")):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if is_object(found) else None
        return found

    def names(self) -> Iterator[str]:
        """Yield the names of all arguments that the schema declares, in any branch."""
        open_parts: list[Json] = [self._root]
        seen: set[int] = set()
        while open_parts and len(seen) < _MOST_NODES:
            part = open_parts.pop()
            if not is_object(part) or id(part) in seen:
                continue
            seen.add(id(part))
            if is_object(part.get("properties")):
                yield from part["properties"]
            if isinstance(part.get("$ref"), str):
                open_parts.append(self._resolve(part["$ref"]))
            for word in ("allOf", "anyOf", "oneOf"):
                open_parts.extend(part[word] if is_array(part.get(word)) else ())
            open_parts.extend(part.get(word) for word in ("if", "then", "else"))


def _allows(schema: JsonObject, value: Json) -> bool:
    """Return whether the `type` and `enum` of a schema allow a value."""
    wanted: Json = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else list(wanted) if is_array(wanted) else []
    if names and not any(_is_of(value, name) for name in names):
        return False
    choices: Json = schema.get("enum")
    return not is_array(choices) or any(value == each and type(value) is type(each) for each in choices)


def _is_of(value: Json, name: Json) -> bool:
    kinds = _TYPES.get(name) if isinstance(name, str) else None
    if kinds is None:
        return True
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) and (name != "integer" or value == int(value))


def compile_defaults(schema: JsonObject) -> Filler | None:
    """Return the filler for a schema, or None if it has no defaults."""
    return _Compiler(schema).compile(schema) or None


def argument_names(schema: JsonObject) -> frozenset[str]:
    """Return the names of all arguments that a schema declares."""
    return frozenset(_Compiler(schema).names())
