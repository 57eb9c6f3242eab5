"""Accessors for untyped JSON: each returns the value if it has the expected type, else None."""

from typing import Any, cast

from toolcrib.model.json import Json, JsonObject


def as_object(value: Json) -> JsonObject | None:
    """Return the value if it is an object."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: Json) -> list[Any] | None:
    """Return the value if it is a list."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_text(value: Json) -> str | None:
    """Return the value if it is text."""
    return value if isinstance(value, str) else None


def at(value: Json, *path: str) -> Json:
    """Return the value under these keys, or None."""
    for key in path:
        holder = as_object(value)
        value = holder.get(key) if holder is not None else None
    return value
