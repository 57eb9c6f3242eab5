"""Converts an agent from AgentZoo's file format to our input shape; pure.

AgentZoo validates nothing, so any field may hold anything. Missing values are filled in with a note; values of the
wrong type are left to the validation, which names their location.
"""

from collections.abc import Iterable

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from toolcrib.agents.zoo.check import InvalidFields, parse
from toolcrib.agents.zoo.input import AgentInput, CategoryInput, EntryInput, MetadataInput, SkillInput
from toolcrib.model.agents import GENERAL, slug
from toolcrib.model.json import Json, JsonObject, is_array, is_object


def agent_shape(value: Json) -> tuple[Json, list[str]]:
    """Return the shape to validate, and notes on what was changed."""
    if not is_object(value):
        return value, []
    notes: list[str] = []
    shape = _known_fields(AgentInput, value, "", notes)
    for name in ("version", "createdAt", "updatedAt", "tokens"):
        shape.pop(name, None)
    if isinstance(shape.get("id"), str):
        shape["id"] = _fitting_id(shape["id"], notes)
    for name, model in (("skillCategories", CategoryInput), ("skills", SkillInput)):
        if is_array(shape.get(name)):
            shape[name] = [_known_fields(model, each, f"{name}.{at}.", notes) for at, each in enumerate(shape[name])]
    _add_categories(shape, notes)
    if is_array(shape.get("brainEntries")):
        shape["brainEntries"] = list(_entries(shape["brainEntries"], notes))
    return shape, notes


def _known_fields(model: type[BaseModel], value: Json, where: str, notes: list[str]) -> Json:
    """Return an object without unknown and null fields; other values unchanged."""
    if not is_object(value):
        return value
    known = {to_camel(name) for name in model.model_fields}
    others = [name for name in value if name not in known]
    if others:
        notes.append(f"ignored: {', '.join(f'{where}{name}'[:80] for name in others[:10])}")
    return {name: each for name, each in value.items() if name in known and each is not None}


def _fitting_id(given: str, notes: list[str]) -> str:
    fitting = "".join(each if each.isascii() and (each.isalnum() or each in "_-") else "-" for each in given)
    fitting = fitting.strip("-_")[:50] or slug(given, fallback="agent")
    if fitting != given:
        notes.append(f"the id {given[:60]!r} became {fitting!r}")
    return fitting


def _add_categories(shape: JsonObject, notes: list[str]) -> None:
    """Add the categories that skills reference but the file does not define."""
    skills, given = shape.get("skills"), shape.get("skillCategories", [GENERAL.to_json()])
    if not is_array(skills) or not is_array(given):
        return
    categories = shape["skillCategories"] = [*given]
    known = {each.get("id") for each in categories if is_object(each)}
    for skill in skills:
        named = skill.get("categoryId") if is_object(skill) else None
        if isinstance(named, str) and named not in known:
            categories.append({"id": named, "name": named})
            known.add(named)
            notes.append(f"the missing category {named[:60]!r} was added")


def _entries(values: Iterable[Json], notes: list[str]) -> Iterable[Json]:
    """Yield the usable entries: one bad memory must not lose the agent."""
    seen: set[str] = set()
    for at, value in enumerate(values):
        shape = _known_fields(EntryInput, value, f"brainEntries.{at}.", notes)
        if is_object(shape) and is_object(shape.get("metadata")):
            shape["metadata"] = _known_fields(MetadataInput, shape["metadata"], f"brainEntries.{at}.metadata.", notes)
        try:
            entry = parse(EntryInput, shape)
        except InvalidFields as error:
            notes.append(f"brainEntries.{at} was skipped: {error.message}")
            continue
        if entry.id in seen:
            shape.pop("id")
        seen.add(entry.id or "")
        yield shape
