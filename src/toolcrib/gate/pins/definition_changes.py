"""Compares the definition of a tool with its pin, as data a person can judge.

A change is a widening only if it adds nothing but optional arguments and every earlier word remains. Any other change,
even to a single word of the description, is a way to poison tools, and needs a person.

Pure. Must never classify a change as a widening because it does not understand it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from toolcrib.model.json import Json, JsonObject, is_array, is_object

ChangeKind = Literal["first", "new", "same", "widening", "other"]
"""`first` is a definition from the first sight of a server, `new` a later one without an accepted predecessor."""
DifferenceKind = Literal[
    "description",
    "title",
    "instructions",
    "annotation",
    "argument_added",
    "argument_removed",
    "argument_required",
    "argument_optional",
    "argument_description",
    "argument_widened",
    "argument_narrowed",
    "argument_changed",
    "arguments",
    "output",
    "other",
]
_OWN_KIND: dict[str, DifferenceKind] = {
    "description": "description",
    "title": "title",
    "outputSchema": "output",
    "instructions": "instructions",
    "arguments": "arguments",
}
_PROSE = ("description", "title", "examples", "$comment")


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One difference: its kind, the name of the field or argument, and both values, None if absent."""

    kind: DifferenceKind
    name: str
    before: Json
    after: Json

    @property
    def widens(self) -> bool:
        """Whether everything that was possible before still is, in the same words."""
        return self.kind == "argument_added" and self.before is None

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        return {"kind": self.kind, "name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """The difference between two definitions."""

    kind: ChangeKind
    differences: tuple[FieldDifference, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        return {"kind": self.kind, "differences": [difference.to_json() for difference in self.differences]}

    def added(self) -> JsonObject:
        """Return the schemas of the arguments that were added, by name."""
        return {each.name: each.after for each in self.differences if each.kind == "argument_added"}


def compare(before: JsonObject | None, after: JsonObject) -> DefinitionChange:
    """Return what changed between two definitions. An empty one means that none was accepted."""
    if before is None:
        return DefinitionChange("first")
    if not before and after:
        return DefinitionChange("new", tuple(_differences(before, after)))
    differences = tuple(_differences(before, after))
    if not differences:
        return DefinitionChange("same")
    return DefinitionChange("widening" if all(each.widens for each in differences) else "other", differences)


def _differences(before: JsonObject, after: JsonObject) -> Iterator[FieldDifference]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if _same(old, new) and (name in before) == (name in after):
            continue
        if name == "inputSchema" and is_object(old) and is_object(new):
            yield from _arguments(old, new)
        elif name == "annotations":
            yield from _annotations(old, new)
        else:
            yield FieldDifference(_OWN_KIND.get(name, "other"), name, old, new)


def _annotations(old: Json, new: Json) -> Iterator[FieldDifference]:
    flags, others = (old if is_object(old) else {}), (new if is_object(new) else {})
    changed = [name for name in sorted(flags.keys() | others.keys()) if not _equal(flags, others, name)]
    for name in changed:
        yield FieldDifference("annotation", name, flags.get(name), others.get(name))
    if not changed:  # `{}` became absent, or a value that is not an object
        yield FieldDifference("other", "annotations", old, new)


def _arguments(old: JsonObject, new: JsonObject) -> Iterator[FieldDifference]:
    was, now = _properties(old), _properties(new)
    needed, needs = _required_arguments(old), _required_arguments(new)
    if was is None or now is None or needed is None or needs is None:
        yield FieldDifference("arguments", "inputSchema", old, new)
        return
    for name in sorted(was.keys() | now.keys()):
        yield from _argument(name, was, now, name in needed, name in needs)
    known = was.keys() | now.keys()
    for name in sorted((needed ^ needs) - known):
        yield FieldDifference("argument_required" if name in needs else "argument_optional", name, None, None)
    for name in sorted((old.keys() | new.keys()) - {"properties", "required"}):
        if not _equal(old, new, name):
            yield FieldDifference("arguments", name, old.get(name), new.get(name))


def _argument(name: str, was: JsonObject, now: JsonObject, needed: bool, needs: bool) -> Iterator[FieldDifference]:
    if name not in was:
        yield FieldDifference("argument_required" if needs else "argument_added", name, None, now[name])
    elif name not in now:
        yield FieldDifference("argument_removed", name, was[name], None)
    else:
        if needed != needs:
            yield FieldDifference("argument_required" if needs else "argument_optional", name, was[name], now[name])
        if not _same(was[name], now[name]):
            yield FieldDifference(_how(was[name], now[name]), name, was[name], now[name])


def _how(old: Json, new: Json) -> DifferenceKind:
    """Return the direction in which the schema of an argument changed, if it can be determined."""
    if not is_object(old) or not is_object(new):
        return "argument_changed"
    changed = {name for name in old.keys() | new.keys() if not _equal(old, new, name)}
    if changed <= set(_PROSE):
        return "argument_description"
    if len(changed) == 1 and changed <= {"enum", "type"}:
        (name,) = changed
        before, after = _choices(old, name), _choices(new, name)
        if before < after:
            return "argument_widened"
        if after < before:
            return "argument_narrowed"
    return "argument_changed"


def _choices(schema: JsonObject, name: str) -> frozenset[str]:
    value = schema.get(name)
    choices = value if is_array(value) else (value,)
    return frozenset(f"{type(each).__name__} {each!r}" for each in choices if name in schema)


def _properties(schema: JsonObject) -> JsonObject | None:
    """Return the arguments of a schema, or None if it does not list them plainly."""
    properties = schema.get("properties", {})
    return properties if is_object(properties) else None


def _required_arguments(schema: JsonObject) -> frozenset[str] | None:
    required = schema.get("required", ())
    if not is_array(required) or not all(isinstance(name, str) for name in required):
        return None
    return frozenset(required)


def _equal(old: JsonObject, new: JsonObject, name: str) -> bool:
    return (name in old) == (name in new) and _same(old.get(name), new.get(name))


def _same(old: Json, new: Json) -> bool:
    """Return whether two values are the same JSON. In Python 1, 1.0 and true are equal; in a schema they differ."""
    if is_object(old) and is_object(new):
        return old.keys() == new.keys() and all(_same(old[name], new[name]) for name in old)
    if is_array(old) and is_array(new):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)
