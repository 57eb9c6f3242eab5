"""Renders the difference between two revisions of an agent as readable text; pure."""

import difflib
import json

from toolcrib.model.agents import Agent
from toolcrib.model.json import Json, is_array, is_object

_LONG = ("systemPrompt", "description")


def difference(before: Agent | None, after: Agent | None, names: tuple[str, str]) -> str:
    """Return a unified diff, with long texts split into lines; empty if nothing differs."""
    lines = difflib.unified_diff(_lines(before), _lines(after), *names, lineterm="")
    return "\n".join(lines)


def _lines(agent: Agent | None) -> list[str]:
    if agent is None:
        return []
    return json.dumps(_split_texts(agent.to_json()), ensure_ascii=False, indent=2).split("\n")


def _split_texts(value: Json) -> Json:
    """Return the value with every long text replaced by a list of its lines."""
    if is_object(value):
        return {name: _text(name, each) for name, each in value.items()}
    return [_split_texts(each) for each in value] if is_array(value) else value


def _text(name: str, value: Json) -> Json:
    return value.split("\n") if name in _LONG and isinstance(value, str) and "\n" in value else _split_texts(value)
