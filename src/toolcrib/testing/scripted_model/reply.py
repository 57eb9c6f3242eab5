"""Computes the reply of the scripted model: a pure function of the request and the scripts.

The newest user text with `[[script:NAME]]` selects the script, and the number of assistant messages after it the step:
0 answers the prompt, 1 the first tool result, and so on; past the end the last step repeats. A newer prompt without a
tag selects the first script whose `when` matches, else the script `default`, else the tagged one continues. Requests
without a script, such as for titles, are answered with `ok`.

So one server handles any number of concurrent conversations, with resume, fork and sub-agents, and stores none.

Must never depend on anything but the request and the scripts.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.testing.scripted_model.script import Block, Raw, Refusal, Script, ScriptStep, TextStep, Thinking

DEFAULT = "default"
RESULT_CHARACTERS = 400
"""Maximum length of `{{last_tool_result}}`."""

_TAG = re.compile(r"\[\[script:([\w.-]+)\]\]")
_NOTE = re.compile(r"\s*(<[a-z][\w-]*>|\[(Request|Tool call) interrupted)")
"""Start of a text that the runtime inserts as user text."""
_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)
"""Text that the runtime adds to tool results."""
_USAGE: JsonObject = {
    "input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5,
}  # fmt: skip
_OK = ScriptStep(blocks=(TextStep("ok"),))


@dataclass(frozen=True, slots=True)
class ScriptPosition:
    """The step that a request asks for; `script` is None if no script matches."""

    script: str | None
    step: int


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The selected step and its message; the message is None for a refusal or a hang."""

    place: ScriptPosition
    step: ScriptStep
    message: JsonObject | None


def locate(messages: Sequence[Json], scripts: Mapping[str, Script]) -> ScriptPosition:
    """Return the step that these messages ask for."""
    asked = [(index, texts) for index, message in enumerate(messages) if (texts := _user_texts(message))]
    named = next(((index, tag) for index, texts in reversed(asked) if (tag := _tag(texts))), None)
    spoken = next(((index, words) for index, texts in reversed(asked) if (words := _words(texts))), None)
    if spoken is not None and (named is None or named[0] < spoken[0]):
        fitting = (name for name, script in scripts.items() if script.when and script.when.search(spoken[1]))
        name = next(fitting, DEFAULT)
        if name in scripts:
            return ScriptPosition(name, _answers(messages[spoken[0] :]))
    if named is not None:
        return ScriptPosition(named[1], _answers(messages[named[0] :]))
    return ScriptPosition(None, 0)


def reply(scripts: Mapping[str, Script], request: JsonObject) -> ModelReply:
    """Return the reply to a Messages API request. Equal requests get equal replies."""
    asked: Json = request.get("messages")
    messages = asked if is_array(asked) else ()
    place = locate(messages, scripts)
    step = _step(scripts, place)
    if not step.blocks:
        return ModelReply(place, step, None)
    # Real ids are unique, so the ids are derived from the whole request.
    key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:20]
    values = {
        "last_tool_result": _last_tool_result(messages)[:RESULT_CHARACTERS],
        "n_tools": str(len(named_tools(request))),
        "model": str(request.get("model")),
    }
    blocks = [_block(block, f"toolu_{key}{index:02d}", values) for index, block in enumerate(step.blocks)]
    calls = any(block.get("type") == "tool_use" for block in blocks)
    message: JsonObject = {
        "id": f"msg_{key}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": blocks,
        "stop_reason": step.stop_reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": {**_USAGE, **(step.usage or {})},
    }
    return ModelReply(place, step, message)


def named_tools(request: JsonObject, *, deferred: bool = False) -> tuple[str, ...]:
    """Return the names of the tools in a request; if `deferred`, only those the model has to search for."""
    tools: Json = request.get("tools")
    given = [tool for tool in tools if is_object(tool)] if is_array(tools) else []
    return tuple(str(tool.get("name")) for tool in given if not deferred or tool.get("defer_loading"))


def _step(scripts: Mapping[str, Script], place: ScriptPosition) -> ScriptStep:
    if place.script is None:
        return _OK
    script = scripts.get(place.script)
    if script is None:
        return ScriptStep(refusal=Refusal(400, "invalid_request_error", f"There is no script `{place.script}`."))
    return script.steps[min(place.step, len(script.steps) - 1)]


def _block(block: Block, call: str, values: Mapping[str, str]) -> JsonObject:
    if isinstance(block, TextStep):
        return {"type": "text", "text": _fill_in(block.text, values)}
    if isinstance(block, Thinking):
        return {"type": "thinking", "thinking": block.thinking, "signature": "c2ln"}
    if isinstance(block, Raw):
        return block.block
    return {"type": "tool_use", "id": call, "name": block.tool, "input": block.input}


def _fill_in(text: str, values: Mapping[str, str]) -> str:
    # In one pass, so that braces in a tool result are not substituted.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values.get(found[1], found[0]), text)


def _user_texts(message: Json) -> list[str]:
    if not is_object(message) or message.get("role") != "user":
        return []
    content: Json = message.get("content")
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in _blocks(content, "text") if isinstance(block.get("text"), str)]


def _blocks(content: Json, kind: str) -> list[JsonObject]:
    if not is_array(content):
        return []
    return [block for block in content if is_object(block) and block.get("type") == kind]


def _tag(texts: Iterable[str]) -> str | None:
    names: list[str] = [name for text in texts for name in _TAG.findall(text)]
    return names[-1] if names else None


def _words(texts: Sequence[str]) -> str | None:
    return next((text for text in reversed(texts) if text.strip() and not _NOTE.match(text)), None)


def _answers(messages: Sequence[Json]) -> int:
    return sum(is_object(message) and message.get("role") == "assistant" for message in messages)


def _last_tool_result(messages: Sequence[Json]) -> str:
    for message in reversed(messages):
        results = _blocks(message.get("content"), "tool_result") if is_object(message) else []
        if results:
            return _REMINDER.sub("", _text(results[-1].get("content", "")))
    return ""


def _text(content: Json) -> str:
    """Return a tool result as text, or as JSON if it has other parts."""
    if isinstance(content, str):
        return content
    texts = _blocks(content, "text")
    if is_array(content) and len(texts) == len(content):
        return "\n".join(str(block.get("text")) for block in texts)
    return json.dumps(content, ensure_ascii=False)
