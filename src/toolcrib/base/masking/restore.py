"""Restores secrets in a value that was displayed masked, edited by a person and sent back."""

from difflib import SequenceMatcher

from toolcrib.model.json import Json, JsonObject, canonical, is_array, is_object


def restore_masked(sent: JsonObject, shown: JsonObject, kept: JsonObject) -> JsonObject:
    """Return `sent`, with everything that is unchanged since it was `shown` replaced by what was `kept`."""
    return {key: _value(value, shown.get(key), kept.get(key)) for key, value in sent.items()}


def _value(sent: Json, shown: Json, kept: Json) -> Json:
    if sent == shown:
        return kept if kept is not None else sent
    if is_object(sent) and is_object(shown) and is_object(kept):
        return restore_masked(sent, shown, kept)
    if is_array(sent) and is_array(shown) and is_array(kept):
        return _items(list(sent), list(shown), list(kept))
    return sent


def _items(sent: list[Json], shown: list[Json], kept: list[Json]) -> list[Json]:
    """Return the items: those with unchanged neighbours from `kept` by position, moved ones by the first equal item.

    Different secrets may be masked alike; their neighbours distinguish them.
    """
    before, after = ([canonical(item) for item in items] for items in (shown, sent))
    items = [_find_original(item, shown, kept) for item in sent]
    for old, new, size in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        items[new : new + size] = kept[old : old + size]
    return items


def _find_original(sent: Json, shown: list[Json], kept: list[Json]) -> Json:
    return next((old for seen, old in zip(shown, kept, strict=False) if seen == sent), sent)
