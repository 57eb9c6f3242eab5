"""Prepares the content of a tool result for display.

Pure. Must never trust a part's own claim that it is safe to load: only images of known types are rendered as images,
everything else is text.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

import orjson

from toolcrib.model.json import Json, JsonObject, is_object, loads

PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]*={0,2}")


def shown(content: Sequence[Json]) -> list[JsonObject]:
    """Return each part with its `form`: `text`, `json`, `picture`, `data`, `link` or `other`."""
    return [_part(part) if is_object(part) else {"form": "other", "value": part} for part in content]


def _part(part: JsonObject) -> JsonObject:
    match part.get("type"):
        case "text" if isinstance(part.get("text"), str):
            return _text(part["text"])
        case "image" | "audio":
            return _data(part.get("data"), part.get("mimeType"), str(part["type"]))
        case "resource" if is_object(resource := part.get("resource")):
            return _resource(resource)
        case "resource_link":
            words = {
                key: str(part[key]) for key in ("name", "title", "uri", "mimeType", "description") if part.get(key)
            }
            return {"form": "link", "name": "", "title": "", "uri": "", "mimeType": "", "description": ""} | words
        case _:
            return {"form": "other", "value": part}


def _text(text: str) -> JsonObject:
    """Return text; a JSON object or array is rendered as JSON."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return {"form": "json", "value": loads(text), "text": text}
        except orjson.JSONDecodeError:
            pass
    return {"form": "text", "text": text}


def _resource(resource: JsonObject) -> JsonObject:
    inner = _text(resource["text"]) if isinstance(resource.get("text"), str) else None
    if inner is None:
        inner = _data(resource.get("blob"), resource.get("mimeType"), "resource")
    return inner | {"uri": str(resource.get("uri", ""))}


def _data(data: Json, media_type: Json, what: str) -> JsonObject:
    """Return an image, or the size of data that cannot be displayed."""
    if not isinstance(data, str) or _BASE64.fullmatch(data) is None:
        return {"form": "other", "value": {"type": what, "mimeType": media_type}}
    if media_type in PICTURES:
        return {"form": "picture", "mimeType": media_type, "data": "".join(data.split())}
    try:
        size = len(b64decode(data))
    except binascii.Error:
        size = 0
    return {"form": "data", "what": what, "mimeType": str(media_type or "unknown type"), "bytes": size}
