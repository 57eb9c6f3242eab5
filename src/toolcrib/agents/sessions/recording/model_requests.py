"""The identity of a request to a model: the hash of model, messages and tool schemas.

Requests of the same conversation differ between machines and days in what the runtime adds: reminders, cache hints,
directories. Those parts are removed before hashing. Results of the runtime's own tools are left out too: in a replay
these tools do not run, and their calls identify them.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolcrib.model.json import Json, JsonObject, digest, is_array, is_object

_REMINDER: Final = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_IGNORED: Final = frozenset({"cache_control", "defer_loading"})
_OWN_RESULT: Final = "(result of the runtime's own tool)"
_CRIB_TOOL: Final = "mcp__"
_SHOWN_LINES: Final = 40
_SHOWN_CHARACTERS: Final = 4_000


@dataclass(frozen=True, slots=True)
class ModelRequestKey:
    """What identifies a request. `messages` are their hashes in order, `contents` the messages by hash."""

    model: str
    messages: tuple[str, ...]
    tools: str
    contents: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject], repr=False, compare=False)

    @property
    def digest(self) -> str:
        """The key of the answer."""
        return digest([self.model, list(self.messages), self.tools])


def request_key(request: JsonObject, places: Mapping[str, str]) -> ModelRequestKey:
    """Return the key of a request to the Messages API. `places` are the names of directories that differ by machine."""
    given: Json = request.get("messages")
    messages = [each for each in given if is_object(each)] if is_array(given) else []
    own = _own_calls(messages)
    plain = [_message(each, own, places) for each in messages]
    hashes = [digest(each) for each in plain]
    tools: Json = request.get("tools")
    listed = [_plain(each, places) for each in tools] if is_array(tools) else []
    listed.sort(key=lambda each: str(each.get("name")) if is_object(each) else "")
    return ModelRequestKey(
        str(request.get("model")), tuple(hashes), digest(listed), dict(zip(hashes, plain, strict=True))
    )


def nearest(wanted: ModelRequestKey, recorded: Iterable[ModelRequestKey]) -> ModelRequestKey | None:
    """Return the recorded request that has the most in common with this one."""

    def likeness(other: ModelRequestKey) -> tuple[int, bool, bool, int]:
        shared = _common_prefix(wanted.messages, other.messages)
        same = (wanted.model == other.model, wanted.tools == other.tools)
        return shared, *same, -abs(len(wanted.messages) - len(other.messages))

    return max(recorded, key=likeness, default=None)


def difference(wanted: ModelRequestKey, recorded: ModelRequestKey | None, contents: Mapping[str, JsonObject]) -> str:
    """Return how a request differs from a recorded one: in model, tools, and the first message that is not equal."""
    if recorded is None:
        return "The recording has no request to a model."
    parts: list[str] = []
    if wanted.model != recorded.model:
        parts.append(f"model: recorded {recorded.model}, requested {wanted.model}")
    if wanted.tools != recorded.tools:
        parts.append("tools: the schemas differ")
    at = _common_prefix(wanted.messages, recorded.messages)
    if at < max(len(wanted.messages), len(recorded.messages)):
        before = _message_lines(recorded.messages[at : at + 1], contents)
        after = _message_lines(wanted.messages[at : at + 1], wanted.contents)
        lines = difflib.unified_diff(before, after, f"recorded message {at}", f"requested message {at}", lineterm="")
        parts += list(lines)[:_SHOWN_LINES]
    return "\n".join(parts)[:_SHOWN_CHARACTERS]


def _common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _message_lines(hashes: Sequence[str], contents: Mapping[str, JsonObject]) -> list[str]:
    message = contents.get(hashes[0]) if hashes else None
    return json.dumps(message, indent=2, ensure_ascii=False, sort_keys=True).splitlines() if message else []


def _own_calls(messages: Iterable[JsonObject]) -> frozenset[str]:
    blocks = (block for message in messages for block in _blocks(message))
    uses = (block for block in blocks if block.get("type") == "tool_use")
    return frozenset(str(use.get("id")) for use in uses if not str(use.get("name")).startswith(_CRIB_TOOL))


def _blocks(message: JsonObject) -> list[JsonObject]:
    content: Json = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if is_object(block)] if is_array(content) else []


def _message(message: JsonObject, own: frozenset[str], places: Mapping[str, str]) -> JsonObject:
    blocks: list[Json] = []
    for block in _blocks(message):
        if block.get("type") == "tool_result" and block.get("tool_use_id") in own:
            blocks.append({"type": "tool_result", "tool_use_id": block.get("tool_use_id"), "content": _OWN_RESULT})
            continue
        plain = _plain(block, places)
        if not (is_object(plain) and plain.get("type") == "text" and not str(plain.get("text")).strip()):
            blocks.append(plain)
    return {"role": message.get("role"), "content": blocks}


def _plain(value: Json, places: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        text = _REMINDER.sub("", value) if "<system-reminder>" in value else value
        for place, name in places.items():
            text = text.replace(place, name)
        return text
    if is_object(value):
        return {key: _plain(item, places) for key, item in value.items() if key not in _IGNORED}
    if is_array(value):
        return [_plain(item, places) for item in value]
    return value
