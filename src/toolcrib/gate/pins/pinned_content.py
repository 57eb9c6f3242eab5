"""The pinned content of an upstream server besides tools: prompts, resources, templates, skills, instructions.

Their text reaches a model just as a tool's does. A changed text waits for a person's review; meanwhile the pinned one
stays in place, so that prompts and resources keep working. A new item with a lint finding has no pinned text, so it is
omitted and cannot be read. A skill is pinned with the digests of its files: a changed one is omitted, like a tool, and
its files cannot be read.

Must never show a text that `pins` did not see.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from toolcrib.gate.pins.definition_changes import DefinitionChange
from toolcrib.gate.pins.lint import holding, lint_text
from toolcrib.gate.pins.pins import Pins, Sighting
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.pins import PinKind
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ContentSource, Introduction, SkillSource
from toolcrib.model.tools import ContentItem

_VERSION = re.compile(r"v?\d{1,9}(?:\.\d{1,9}){0,3}(?:[-+.][A-Za-z0-9.]{1,20})?")
_NAMES: dict[PinKind, str] = {
    "prompt": "Prompt",
    "resource": "Resource",
    "template": "Resource template",
    "skill": "Skill",
}
_HINT = "Run `toolcrib tools changes`."


@dataclass(frozen=True, slots=True)
class PinnedContent:
    """The items of a server that may be shown. `withheld` has the names and URIs of those that may not be read."""

    prompts: tuple[ContentItem, ...] = ()
    resources: tuple[ContentItem, ...] = ()
    templates: tuple[ContentItem, ...] = ()
    skills: tuple[ContentItem, ...] = ()
    withheld: frozenset[tuple[PinKind, str]] = frozenset()
    problems: tuple[Problem, ...] = field(default=(), repr=False)


async def see_content(
    pins: Pins, identity: str, source: ContentSource, introduction: Introduction | None, *, is_again: bool = False
) -> PinnedContent:
    """Judge everything a server offers besides tools. `introduction` is None while the server is unknown.

    With `is_again`, the same offer was judged before, and nothing new is held.
    """
    if introduction is None:
        return PinnedContent()
    known = pins.pin(identity, "", "instructions") is not None
    lists: dict[PinKind, Sequence[ContentItem]] = {
        "prompt": source.prompts(),
        "resource": source.resources(),
        "template": source.templates(),
        "skill": await source.skills() if isinstance(source, SkillSource) else (),
    }
    shown: dict[PinKind, tuple[ContentItem, ...]] = {}
    withheld: set[tuple[PinKind, str]] = set()
    problems: list[Problem] = []
    for kind, items in lists.items():
        texts = [_text_of(item) for item in items] if kind == "resource" else items
        seen = await pins.see_content(identity, kind, texts, _review, known=known, is_again=is_again)
        counting = [
            item if each.usable else None if kind == "skill" else _accepted_item(pins, identity, kind, item)
            for item, each in zip(items, seen, strict=True)
        ]
        shown[kind] = tuple(item for item in counting if item is not None)
        withheld.update((kind, item.key) for item, kept in zip(items, counting, strict=True) if kept is None)
        problems += [_note(kind, each) for each in seen if not each.usable]
    own = ContentItem(source.name, "", instructions_of(introduction))
    (seen_own,) = await pins.see_content(identity, "instructions", [own], _review, known=known, is_again=is_again)
    if not seen_own.usable:
        message = (
            f"Server {source.name!r} changed its instructions; the accepted ones stay in use until a person decides."
        )
        problems.append(Problem("tool.changed", message, _HINT))
    lists_shown = (shown["prompt"], shown["resource"], shown["template"], shown["skill"])
    return PinnedContent(*lists_shown, frozenset(withheld), tuple(problems))


def instructions_of(introduction: Introduction) -> JsonObject:
    """Return the pinned part of a server's introduction: the texts that clients pass on."""
    title: Json = introduction.info.get("title") or introduction.info.get("name")
    texts: JsonObject = {"title": title, "instructions": introduction.instructions}
    return {name: text for name, text in texts.items() if isinstance(text, str) and text}


def pinned_introduction(pins: Pins, identity: str, introduction: Introduction) -> Introduction:
    """Return an introduction with the pinned texts. The version is kept only if it looks like one."""
    pin = pins.pin(identity, "", "instructions")
    texts = pin.definition if pin is not None and pin.counts else {}
    version: Json = introduction.info.get("version")
    info: JsonObject = {"title": texts["title"]} if "title" in texts else {}
    if isinstance(version, str) and _VERSION.fullmatch(version):
        info["version"] = version
    return Introduction(introduction.capabilities, info, texts.get("instructions"))


def _accepted_item(pins: Pins, identity: str, kind: PinKind, item: ContentItem) -> ContentItem | None:
    """Return the item with its accepted text, or None if no text of it was accepted."""
    pin = pins.pin(identity, item.key, kind)
    return ContentItem(item.server, item.key, pin.definition) if pin is not None and pin.counts else None


def _text_of(resource: ContentItem) -> ContentItem:
    """Return a resource without its size and modification time, which change on every write."""
    definition = {name: value for name, value in resource.definition.items() if name != "size"}
    annotations: Json = definition.get("annotations")
    if is_object(annotations):
        definition["annotations"] = {name: each for name, each in annotations.items() if name != "lastModified"}
    return ContentItem(resource.server, resource.key, definition)


def _review(item: ContentItem, _: DefinitionChange) -> tuple[Problem, ...]:
    return holding(lint_text(item.definition))


def _note(kind: PinKind, seen: Sighting[ContentItem]) -> Problem:
    why = f": {seen.findings[0].message}" if seen.findings else "."
    what = "is new" if seen.change.kind == "new" else "changed"
    message = f"{_NAMES[kind]} {seen.tool.ref} {what} and needs a person to accept it{why}"
    return Problem("tool.changed", message, _HINT)
