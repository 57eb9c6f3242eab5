"""Renders a session as Markdown: messages, tool calls with arguments, and results. Pure.

Must never let a tool's result imitate other content: its fence is longer than any fence inside it.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.sessions import SessionEvent, SessionEventKind

_TICKS = re.compile(r"`+")


async def markdown(title: str, events: AsyncIterator[SessionEvent]) -> AsyncIterator[bytes]:
    """Yield the rendered parts in order; deltas are skipped, since the full text follows."""
    yield f"# {_line(title)}\n".encode()
    names: dict[str, str] = {}
    async for event in events:
        if event.kind == "tool_call_start":
            names[str(event.data.get("toolCallId"))] = str(event.data.get("toolName"))
        write = _PARTS.get(event.kind)
        if write is not None:
            inside = "> " if event.parent is not None else ""
            text = write(event.data, names.get(str(event.data.get("toolCallId")), "a tool"))
            if text:
                lines = "".join(f"{inside}{line}\n" for line in text.split("\n"))
                yield f"\n{lines}".encode("utf-8", "replace")


def _user(data: JsonObject, _: str) -> str:
    return f"## You\n\n{data.get('content', '')}"


def _text(data: JsonObject, _: str) -> str:
    return f"## Agent\n\n{data.get('text', '')}"


def _call(data: JsonObject, name: str) -> str:
    arguments = json.dumps(data.get("arguments"), indent=2, ensure_ascii=False)
    return f"**Call of {_code(name)}**\n\n{_code_block(arguments, 'json')}"


def _result(data: JsonObject, name: str) -> str:
    content: Json = data.get("content")
    shown = "\n".join(_block(block) for block in content) if is_array(content) else ""
    word = "Error" if data.get("isError") else "Result"
    return f"**{word} of {_code(name)}**\n\n{_code_block(shown)}"


def _block(block: Json) -> str:
    if not is_object(block):
        return str(block)
    return str(block.get("text")) if block.get("type") == "text" else f"[{block.get('type')}]"


def _approval(data: JsonObject, _: str) -> str:
    by, reason, edited = data.get("by"), data.get("reason"), data.get("arguments")
    changed = (
        f" It ran with other arguments: `{_line(json.dumps(edited, ensure_ascii=False))}`" if edited is not None else ""
    )
    verdict = f"{data.get('decision')}{f' by {by}' if by else ''}{f': {_line(reason)}' if reason else '.'}"
    return f"*The call was {verdict}*{changed}"


def _questions(data: JsonObject, _: str) -> str:
    questions: Json = data.get("questions")
    asked = [each.get("question") for each in questions if is_object(each)] if is_array(questions) else []
    return "\n".join(f"**Question:** {_line(each)}" for each in asked)


def _answers(data: JsonObject, _: str) -> str:
    answers: Json = data.get("answers")
    pairs = answers.items() if is_object(answers) else ()
    return "\n".join(f"**Answer to** {_line(question)} **is** {_line(answer)}" for question, answer in pairs)


def _error(data: JsonObject, _: str) -> str:
    return f"**Error** ({data.get('code')}): {_line(data.get('message'))}"


def _end(data: JsonObject, _: str) -> str:
    return "" if data.get("reason") == "completed" else f"*The answer ended: {data.get('reason')}.*"


_PARTS: Final[Mapping[SessionEventKind, Callable[[JsonObject, str], str]]] = {
    "user_message": _user,
    "text_message": _text,
    "tool_call_end": _call,
    "approval_resolved": _approval,
    "tool_result": _result,
    "question_prompt": _questions,
    "question_answered": _answers,
    "error": _error,
    "done": _end,
}


def _line(value: Json) -> str:
    return " ".join(str(value).split())


def _longest(text: str) -> int:
    return max((len(ticks) for ticks in _TICKS.findall(text)), default=0)


def _code(text: str) -> str:
    ticks = "`" * (_longest(text) + 1)
    return f"{ticks}{_line(text)}{ticks}"


def _code_block(text: str, language: str = "") -> str:
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"
