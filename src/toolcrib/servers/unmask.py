"""Puts secrets back into a definition that was read masked, edited by a person and sent back."""

from difflib import SequenceMatcher

from toolcrib.config.values import as_list, as_object
from toolcrib.model.json import Json, JsonObject, canonical


def unmasked(sent: JsonObject, shown: JsonObject, kept: JsonObject) -> JsonObject:
    """The definition `sent`, where whatever is still as it was `shown` is what was `kept` in the file."""
    return {key: _value(value, shown.get(key), kept.get(key)) for key, value in sent.items()}


def _value(sent: Json, shown: Json, kept: Json) -> Json:
    if sent == shown:
        return kept if kept is not None else sent
    members, shown_members, kept_members = as_object(sent), as_object(shown), as_object(kept)
    if members is not None and shown_members is not None and kept_members is not None:
        return unmasked(members, shown_members, kept_members)
    listed, shown_list, kept_list = as_list(sent), as_list(shown), as_list(kept)
    if listed is not None and shown_list is not None and kept_list is not None:
        return _items(listed, shown_list, kept_list)
    return sent


def _items(sent: list[Json], shown: list[Json], kept: list[Json]) -> list[Json]:
    """An item that stands among the same others as when it was shown is the kept one; one that moved, the first equal.

    Several secrets may look alike when they are masked: what stands around them tells them apart.
    """
    before, after = ([canonical(item) for item in items] for items in (shown, sent))
    items = [_moved(item, shown, kept) for item in sent]
    for old, new, size in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        items[new : new + size] = kept[old : old + size]
    return items


def _moved(sent: Json, shown: list[Json], kept: list[Json]) -> Json:
    return next((old for seen, old in zip(shown, kept, strict=False) if seen == sent), sent)
