"""Turns the events of a session into text.

Agent text is streamed in pieces; everything else is a line of our own. The renderer keeps the two apart, so that no
text of an agent, tool or server can imitate our lines.

Pure. Must never truncate what a user is asked to approve.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolcrib.cli.output import compact, one_line, safe
from toolcrib.cli.tools.commands import describe_part
from toolcrib.gate.approvals.display import show
from toolcrib.gate.policy.coding_tools import QUESTION
from toolcrib.model.json import JsonObject
from toolcrib.model.times import duration

Tone = Literal["plain", "faint", "strong", "emphasis", "code"]
"""The style of a line; carries no information that the words do not."""

_ARGUMENTS: Final = 160
_RESULT: Final = 300
_INSIDE: Final = "    "
"""Indentation for lines of sub-agents."""


@dataclass(frozen=True, slots=True)
class ViewText:
    """A piece of agent text or, if `faint`, of its thinking. Continues the previous piece."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class ViewLine:
    """A complete line of our own."""

    text: str
    tone: Tone = "plain"


Piece: TypeAlias = ViewText | ViewLine


@dataclass(slots=True)
class _Flow:
    """The text being streamed: its message, how much was displayed, and whether its last line is open."""

    message: object = None
    kind: str = ""
    shown: str = ""
    is_open: bool = False


class ChatView:
    """The view of one session. `status` is the last session status, `seq` the last event displayed."""

    def __init__(self, status: JsonObject | None = None, seq: int = 0) -> None:
        self.status: JsonObject = status or {}
        self.seq = seq
        self.is_busy = str(self.status.get("state")) in ("starting", "running", "waiting")
        self._flow = _Flow()
        self._calls: dict[str, JsonObject] = {}
        self._last_call: str | None = None
        self._last_failure: str | None = None
        self._shows: dict[str, Callable[[JsonObject], Sequence[Piece]]] = {
            "session_status": self._status,
            "user_message": self._user,
            "text_delta": self._delta,
            "thinking_delta": self._delta,
            "text_message": self._message,
            "tool_call_start": self._call,
            "tool_call_end": self._call_end,
            "tool_result": self._result,
            "approval_required": lambda event: approval_lines(event),
            "approval_resolved": lambda event: [ViewLine(f"  {describe_verdict(event)}", "faint")],
            "question_prompt": lambda event: question_lines(event),
            "question_answered": self._on_answered,
            "error": self._error,
            "done": self._on_done,
        }

    def show(self, event: JsonObject) -> list[Piece]:
        """Return the pieces of one event; none if its kind is unknown."""
        self.seq = max(self.seq, int(event["seq"]))
        shows = self._shows.get(str(event["kind"]))
        pieces = list(shows(event)) if shows is not None else []
        if any(isinstance(piece, ViewLine) for piece in pieces):
            return [*self._close_line(), *pieces]
        return pieces

    def _close_line(self) -> list[Piece]:
        """Return what closes an open line."""
        flow = self._flow
        ends: list[Piece] = [ViewText("\n", _tone(flow.kind))] if flow.is_open else []
        flow.is_open = False
        return ends

    def _delta(self, event: JsonObject) -> list[Piece]:
        if "parentToolCallId" in event:
            return []  # sub-agents stream concurrently; their text is displayed when complete
        kind, text = str(event["kind"]), str(event["text"])
        begun: list[Piece] = []
        if (self._flow.message, self._flow.kind) != (event["messageId"], kind):
            begun = self._close_line()
            self._flow = _Flow(event["messageId"], kind)
        self._flow.shown += text
        return [*begun, *self._text_pieces(text)]

    def _text_pieces(self, text: str) -> list[Piece]:
        # A trailing CR may be half of a CRLF; it is held back until more text arrives.
        pending = self._flow.shown[: len(self._flow.shown) - len(text)]
        whole = f"\r{text}" if pending.endswith("\r") else text
        ready = safe(whole.removesuffix("\r"))
        if ready:
            self._flow.is_open = not ready.endswith("\n")
        return [ViewText(ready, _tone(self._flow.kind))] if ready else []

    def _message(self, event: JsonObject) -> list[Piece]:
        text = str(event["text"])
        if "parentToolCallId" in event:
            return [ViewLine(f"{_INSIDE}{one_line(text, _RESULT)}", "faint")] if text.strip() else []
        flow = self._flow
        known = (flow.message, flow.kind) == (event["messageId"], "text_delta")
        begun: list[Piece] = []
        if not known or not text.startswith(flow.shown):
            begun = self._close_line()
            self._flow = flow = _Flow(event["messageId"], "text_delta")
        rest = text[len(flow.shown) :]
        flow.shown = text
        return [*begun, *self._text_pieces(rest), *self._close_line()]

    def _user(self, event: JsonObject) -> list[Piece]:
        lines: list[Piece] = [
            ViewLine(""),
            *(ViewLine(f"> {line}", "strong") for line in safe(str(event["content"])).split("\n")),
        ]
        if event.get("queued"):
            lines.append(ViewLine("  (queued until this turn has ended)", "faint"))
        return lines

    def _call(self, event: JsonObject) -> list[Piece]:
        self._calls[str(event["toolCallId"])] = event
        return []

    def _call_end(self, event: JsonObject) -> list[Piece]:
        id = str(event["toolCallId"])
        if self._is_question(id):
            return []  # the question and its answer are separate events
        self._last_call = id
        arguments = event.get("arguments")
        shown = f" {one_line(compact(arguments), _ARGUMENTS)}" if arguments else ""
        return [ViewLine(f"{_margin(event)}* {self._name(id)}{shown}")]

    def _result(self, event: JsonObject) -> list[Piece]:
        id = str(event["toolCallId"])
        if self._is_question(id) and not event.get("isError"):
            return []
        named = "" if id == self._last_call else f"{self._name(id)}: "
        took = describe_duration(event.get("durationMs"))
        how = f"error{took and ' after ' + took}" if event.get("isError") else f"ok{took and ' in ' + took}"
        text = one_line(_describe(event), _RESULT)
        self._calls.pop(id, None)
        tone: Tone = "strong" if event.get("isError") else "faint"
        return [ViewLine(f"{_margin(event)}  {named}{how}{text and ': ' + text}", tone)]

    def _is_question(self, id: str) -> bool:
        return self._calls.get(id, {}).get("toolName") == QUESTION

    def _name(self, id: str) -> str:
        start = self._calls.get(id, {})
        if start.get("server") and start.get("tool"):
            return one_line(f"{start['server']}/{start['tool']}")
        return one_line(str(start.get("toolName", "a tool")))

    def _on_answered(self, event: JsonObject) -> list[Piece]:
        answers: JsonObject = event.get("answers") or {}
        text = "; ".join(one_line(str(answer)) for answer in answers.values())
        return [ViewLine(f"  answered: {text}" if text else "  not answered", "faint")]

    def _error(self, event: JsonObject) -> list[Piece]:
        self._last_failure = str(event["message"])
        return failure_lines(self._last_failure, event.get("hint"))

    def _status(self, event: JsonObject) -> list[Piece]:
        before, self.status = self.status, event
        state = str(event.get("state"))
        self.is_busy = state in ("starting", "running", "waiting")
        lines: list[Piece] = [
            ViewLine(f"{name.capitalize()}: {one_line(str(event[name]))}.", "faint")
            for name in ("mode", "model")
            if event.get(name) and before.get(name) and event[name] != before[name]
        ]
        if state == "closed" and before.get("state") != "closed":
            lines.append(ViewLine("The session was closed. Send a message to reopen it.", "faint"))
        reason = event.get("reason")
        if state in ("failed", "interrupted") and reason and reason not in (self._last_failure, before.get("reason")):
            lines.append(ViewLine(f"{state}: {_indent(str(reason))}", "strong"))
        return lines

    def _on_done(self, event: JsonObject) -> list[Piece]:
        self.is_busy = False
        self._last_failure = None
        self._calls.clear()
        if event.get("reason") == "interrupted":
            return [ViewLine("Interrupted.", "strong")]
        return [*self._close_line()]


def failure_lines(message: str, hint: str | None) -> list[Piece]:
    """Return an error and its hint."""
    lines: list[Piece] = [ViewLine(f"error: {_indent(message)}", "strong")]
    return [*lines, ViewLine(f"hint: {_indent(hint)}")] if hint else lines


def approval_lines(event: JsonObject) -> list[Piece]:
    """Return a pending approval: tool, reason, warnings and the full arguments."""
    shown = show(event.get("arguments") or {})
    name = one_line(f"{event['server']}/{event['tool']}", 1000)
    lines: list[Piece] = [
        ViewLine(""),
        ViewLine(f"? {name} asks for approval. {one_line(str(event.get('reason') or ''), 1000)}".rstrip(), "strong"),
    ]
    lines += [
        ViewLine(f"  CAREFUL: {each.pointer or 'the arguments'}: {each.message}", "strong") for each in shown.remarks
    ]
    lines += [
        ViewLine(f"  LONG: {one_line(each.name, 1000)}: {each.characters:,} characters", "strong")
        for each in shown.arguments
        if each.collapsed
    ]
    lines += [ViewLine(f"  {line}") for line in shown.text.split("\n")]
    return lines


def question_lines(event: JsonObject) -> list[Piece]:
    """Return an agent's questions with their numbered options."""
    lines: list[Piece] = []
    for question in event["questions"]:
        lines += [ViewLine(""), ViewLine(f"? {one_line(str(question.get('question', '')), 2000)}", "strong")]
        for number, option in enumerate(question.get("options") or (), 1):
            described = one_line(str(option.get("description") or ""), 1000)
            label = one_line(str(option.get("label", "")), 1000)
            lines.append(ViewLine(f"  {number}. {label}{described and ': ' + described}"))
    return lines


def describe_verdict(event: JsonObject) -> str:
    """Return how an approval ended."""
    by = f" by {one_line(str(event['by']))}" if event.get("by") else ""
    words = {
        "approved": f"approved{by}",
        "denied": f"denied{by}",
        "expired": "expired: denied because it was not answered in time",
        "withdrawn": "withdrawn",
    }
    decision = str(event["decision"])
    reason = f": {one_line(str(event['reason']), 1000)}" if event.get("reason") and decision == "denied" else ""
    edited = event.get("arguments")
    changed = f", with edited arguments: {one_line(json.dumps(edited), 1000)}" if edited is not None else ""
    return words.get(decision, decision) + reason + changed


def describe_duration(milliseconds: object) -> str:
    """Return a duration; empty if there is none."""
    return duration(milliseconds) if isinstance(milliseconds, int | float) else ""


def _describe(result: JsonObject) -> str:
    parts = [describe_part(part) for part in result.get("content") or ()]
    if not parts and "structuredContent" in result:
        return compact(result["structuredContent"])
    return " ".join(parts)


def _margin(event: JsonObject) -> str:
    return _INSIDE if "parentToolCallId" in event else ""


def _tone(kind: str) -> Tone:
    return "faint" if kind == "thinking_delta" else "plain"


def _indent(text: str) -> str:
    return safe(text).replace("\n", "\n  ")
