"""How the definition of a tool differs from the one that is pinned, as data a person can judge.

A change is a widening only if nothing but optional arguments were added: every word that was there before still is.
Anything else, be it a word of the description, is how tools are poisoned, and needs a person.

Pure. Above: `pins` holds tools back by it; the doors show it. Below: `model`. It must never call a change a widening
because it does not understand it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from toolcrib.model.json import Json, JsonObject, is_array, is_object

ChangeKind = Literal["first", "same", "widening", "other"]
DifferenceKind = Literal[
    "description",
    "title",
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
_OWN_KIND: dict[str, DifferenceKind] = {"description": "description", "title": "title", "outputSchema": "output"}
_PROSE = ("description", "title", "examples", "$comment")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs: what, of which name, and both values; None where there was none."""

    kind: DifferenceKind
    name: str
    before: Json
    after: Json

    @property
    def widens(self) -> bool:
        """Whether everything that could be said and done before still can, in the same words."""
        return self.kind == "argument_added" and self.before is None

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"kind": self.kind, "name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a definition."""

    kind: ChangeKind
    differences: tuple[Difference, ...] = ()

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"kind": self.kind, "differences": [difference.to_json() for difference in self.differences]}


def compare(before: JsonObject | None, after: JsonObject) -> Change:
    """What changed between two definitions of a tool, as `Tool.definition` gives them."""
    if before is None:
        return Change("first")
    differences = tuple(_differences(before, after))
    if not differences:
        return Change("same")
    return Change("widening" if all(each.widens for each in differences) else "other", differences)


def _differences(before: JsonObject, after: JsonObject) -> Iterator[Difference]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if _same(old, new) and (name in before) == (name in after):
            continue
        if name == "inputSchema" and is_object(old) and is_object(new):
            yield from _arguments(old, new)
        elif name == "annotations":
            yield from _annotations(old, new)
        else:
            yield Difference(_OWN_KIND.get(name, "other"), name, old, new)


def _annotations(old: Json, new: Json) -> Iterator[Difference]:
    flags, others = (old if is_object(old) else {}), (new if is_object(new) else {})
    changed = [name for name in sorted(flags.keys() | others.keys()) if not _equal(flags, others, name)]
    for name in changed:
        yield Difference("annotation", name, flags.get(name), others.get(name))
    if not changed:  # `{}` became nothing, or something that is no object
        yield Difference("other", "annotations", old, new)


def _arguments(old: JsonObject, new: JsonObject) -> Iterator[Difference]:
    was, now = _properties(old), _properties(new)
    needed, needs = _required(old), _required(new)
    if was is None or now is None or needed is None or needs is None:
        yield Difference("arguments", "inputSchema", old, new)
        return
    for name in sorted(was.keys() | now.keys()):
        yield from _argument(name, was, now, name in needed, name in needs)
    known = was.keys() | now.keys()
    for name in sorted((needed ^ needs) - known):
        yield Difference("argument_required" if name in needs else "argument_optional", name, None, None)
    for name in sorted((old.keys() | new.keys()) - {"properties", "required"}):
        if not _equal(old, new, name):
            yield Difference("arguments", name, old.get(name), new.get(name))


def _argument(name: str, was: JsonObject, now: JsonObject, needed: bool, needs: bool) -> Iterator[Difference]:
    if name not in was:
        yield Difference("argument_required" if needs else "argument_added", name, None, now[name])
    elif name not in now:
        yield Difference("argument_removed", name, was[name], None)
    else:
        if needed != needs:
            yield Difference("argument_required" if needs else "argument_optional", name, was[name], now[name])
        if not _same(was[name], now[name]):
            yield Difference(_how(was[name], now[name]), name, was[name], now[name])


def _how(old: Json, new: Json) -> DifferenceKind:
    """In which direction the schema of an argument changed, where that can be told."""
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
    """The arguments of a schema; None where it does not say them plainly."""
    properties = schema.get("properties", {})
    return properties if is_object(properties) else None


def _required(schema: JsonObject) -> frozenset[str] | None:
    required = schema.get("required", ())
    if not is_array(required) or not all(isinstance(name, str) for name in required):
        return None
    return frozenset(required)


def _equal(old: JsonObject, new: JsonObject, name: str) -> bool:
    return (name in old) == (name in new) and _same(old.get(name), new.get(name))


def _same(old: Json, new: Json) -> bool:
    """Whether two values are the same JSON: Python takes 1, 1.0 and true for equal, which a schema does not."""
    if is_object(old) and is_object(new):
        return old.keys() == new.keys() and all(_same(old[name], new[name]) for name in old)
    if is_array(old) and is_array(new):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)
