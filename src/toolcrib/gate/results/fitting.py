"""Fits a result into a client's budget: the whole is kept, and the client gets a preview, its size and a handle.

The structured content of a tool with an output schema stays as it is, because clients validate it. A result that fits
is returned unchanged.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final, NamedTuple

from toolcrib.gate.results.kept import KeptResult, KeptResults
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.model.tools import CallResult, Tool, ToolRef

_BYTES_PER_TOKEN: Final = 4
_HEAD: Final = 2_000
_TAIL: Final = 800
"""Characters of the preview."""
_SHAPE_DEPTH: Final = 3
_SHAPE_MEMBERS: Final = 15


class FittedResult(NamedTuple):
    """A result for the client. `digest` is the SHA-256 of the whole if it was shortened."""

    result: CallResult
    digest: str | None = None


class ResultBudget(NamedTuple):
    """What one client may receive: estimated tokens, how to read on, and whether it understands links to resources.

    Binary parts are shortened too, unless the client `keeps_blobs` because it cannot read resources.
    """

    tokens: int
    how_to_read: str
    takes_links: bool
    keeps_blobs: bool = False

    def fit(self, kept: KeptResults, principal: Principal, tool: Tool, result: CallResult) -> FittedResult:
        """Return the result, shortened if it exceeds the budget."""
        if not result.is_final or result.fault is not None:
            return FittedResult(result)
        has_schema = tool.output_schema is not None
        structured = dumps(result.structured_content) if result.has_structured and not has_schema else b""
        text = _text_of(result.content) or structured.decode()
        counted = (each for each in result.content if not self.keeps_blobs or _blob(each) is None)
        size = sum(map(_size, counted)) + len(structured)
        if size <= self.tokens * _BYTES_PER_TOKEN:
            return FittedResult(result)
        digest = sha256(dumps(result.to_json())).hexdigest()
        blobs = tuple(blob for each in result.content if (blob := _blob(each)) is not None)
        whole = kept.keep(principal, text, blobs)
        return FittedResult(self._shorten(result, whole, keeps_structure=has_schema), digest)

    def _shorten(self, result: CallResult, whole: KeptResult, *, keeps_structure: bool) -> CallResult:
        content: list[JsonObject] = []
        if whole.text:
            content.append({"type": "text", "text": self._preview(whole)})
            if self.takes_links:
                link = {"type": "resource_link", "uri": whole.uri(), "name": whole.handle, "mimeType": "text/plain"}
                content.append(link | {"size": len(whole.text.encode())})
        numbers = iter(range(len(whole.blobs)))
        for each in result.content:
            if (blob := _blob(each)) is not None:
                content.append(self._part(each, blob, whole, next(numbers)))
            elif _text(each) is None:
                content.append(each)
        return CallResult(
            content,
            result.is_error,
            result.structured_content if keeps_structure else None,
            result.has_structured and keeps_structure,
            result.extra,
        )

    def _part(self, part: JsonObject, blob: JsonObject, whole: KeptResult, number: int) -> JsonObject:
        """Return a binary part as it is if it fits by itself, otherwise as a link, or its description."""
        if self.keeps_blobs or len(blob["data"]) <= self.tokens * _BYTES_PER_TOKEN:
            return part
        uri, size = whole.uri(number), len(blob["data"]) * 3 // 4
        if self.takes_links:
            name = f"{whole.handle}-{number}"
            return {"type": "resource_link", "uri": uri, "name": name, "mimeType": blob["mimeType"], "size": size}
        return {"type": "text", "text": f"[{blob['mimeType']}, {size:,} bytes: read the resource {uri}]"}

    def _preview(self, whole: KeptResult) -> str:
        """Return size, handle, shape, head and tail of a text."""
        text = whole.text
        head, tail = min(_HEAD, self.tokens * 2), min(_TAIL, self.tokens)
        lines = text.count("\n") + 1
        size = len(text.encode(errors="replace"))
        parts = [
            f"[Shortened: {size:,} bytes, {lines:,} lines, about {estimate_bytes(size):,} tokens. "
            f"Handle: {whole.handle}. {self.how_to_read}]"
        ]
        if whole.value is not None:
            parts.append(f"[Shape: {shape(whole.value)}]")
        if len(text) <= head + tail:
            return "\n".join([*parts, text])
        left_out = len(text) - head - tail
        return "\n".join([*parts, text[:head], f"[… {left_out:,} characters left out …]", text[-tail:]])


def is_whole(ref: ToolRef, patterns: Sequence[str]) -> bool:
    """Return whether the results of a tool are never shortened."""
    return any(fnmatchcase(str(ref), pattern) for pattern in patterns)


def shape(value: Json, depth: int = 0) -> str:
    """Return the structure of a JSON value: types, lengths and the first members."""
    if is_object(value):
        if depth >= _SHAPE_DEPTH:
            return f"object with {len(value)} members"
        members = [f"{key[:40]!r}: {shape(each, depth + 1)}" for key, each in list(value.items())[:_SHAPE_MEMBERS]]
        more = f", … {len(value) - len(members)} more" if len(value) > len(members) else ""
        return f"{{{', '.join(members)}{more}}}"
    if is_array(value):
        return f"[{len(value):,} × {shape(value[0], depth + 1)}]" if value else "[]"
    if isinstance(value, str) and len(value) > 100:
        return f"str of {len(value):,} characters"
    return "None" if value is None else type(value).__name__


def _text_of(content: Sequence[JsonObject]) -> str:
    return "\n".join(text for each in content if (text := _text(each)) is not None)


def _text(part: JsonObject) -> str | None:
    """Return the text of a text block or of an embedded text resource."""
    resource: Json = part.get("resource")
    holder = part if part.get("type") == "text" else resource
    text: Json = holder.get("text") if is_object(holder) else None
    return text if isinstance(text, str) else None


def _size(part: JsonObject) -> int:
    """Return the approximate size of a part, without encoding what is text already."""
    text = _text(part)
    return len(text) if text is not None else len(dumps(part))


def _blob(part: JsonObject) -> JsonObject | None:
    """Return media type and base64 data of a binary part."""
    resource: Json = part.get("resource")
    holder = resource if is_object(resource) else part
    data: Json = holder.get("blob") if holder is resource else holder.get("data")
    if not isinstance(data, str):
        return None
    return {"mimeType": str(holder.get("mimeType") or "application/octet-stream"), "data": data}
