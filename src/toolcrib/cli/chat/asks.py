"""The pending approvals and questions of a chat, answered one after the other.

A line answers only the request it was typed for. Destructive calls need the whole word, never a single key; silence and
unknown input are no answer.

Pure. Must never turn a line into an approval that does not state it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from toolcrib.cli.output import one_line
from toolcrib.model.json import Json, JsonObject

Scope = Literal["once", "session", "always"]
Decision = Literal["approve", "deny"]

_SCOPES: Final[Mapping[str, Scope]] = {"approve": "once", "session": "session", "always": "always"}
_SHORT: Final[Mapping[str, str]] = {"a": "approve", "y": "approve", "yes": "approve", "s": "session", "w": "always"}
"""Abbreviations accepted for calls that are not destructive."""
_LENGTHS: Final = {"session": "this session", "always": "good"}
_REFUSALS: Final = ("deny", "d", "n", "no")
_EDITS: Final = ("edit", "e")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A parsed answer to an approval. `edit`: edit the arguments first. `prefix`: the wider rule that was chosen."""

    decision: Decision = "approve"
    scope: Scope = "once"
    reason: str | None = None
    edit: bool = False
    prefix: str | None = None


@dataclass(slots=True)
class Ask:
    """One pending request. A question has `questions`, and the `answers` collected so far.

    `remember_as` holds the rules that an approval with a wider scope would write. The request can be answered once
    `is_ready`; before that the rules are not known.
    """

    id: str
    event: JsonObject
    needs_word: bool = True
    remember_as: JsonObject = field(default_factory=dict[str, Json])
    questions: Sequence[JsonObject] = ()
    answers: dict[str, Json] = field(default_factory=dict[str, Json])
    is_editing: bool = False
    is_ready: bool = False

    @property
    def next_question(self) -> JsonObject | None:
        """The first unanswered question."""
        return next((each for each in self.questions if str(each.get("question")) not in self.answers), None)

    @property
    def label(self) -> str:
        """The prompt of the input row."""
        if self.questions:
            number = f" {len(self.answers) + 1} of {len(self.questions)}" if len(self.questions) > 1 else ""
            return f"answer{number} > "
        what = "arguments of" if self.is_editing else "approve"
        return f"{what} {self.event['server']}/{self.event['tool']}? > "


class Asks:
    """All pending requests, oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, Ask] = {}

    @property
    def first(self) -> Ask | None:
        """The request to answer next."""
        return next(iter(self._open.values()), None)

    def get(self, id: str) -> Ask | None:
        """Return the request while it is pending, else None."""
        return self._open.get(id)

    def note(self, event: JsonObject) -> Ask | None:
        """Process an event; return the request that it opens."""
        match event:
            case {"kind": "approval_required", "approvalId": id}:
                ask = Ask(str(id), event)
            case {"kind": "question_prompt", "questionId": id, "questions": questions}:
                ask = Ask(str(id), event, questions=questions)
            case {"kind": "approval_resolved", "approvalId": id} | {"kind": "question_answered", "questionId": id}:
                self._open.pop(str(id), None)
                return None
            case {"kind": "done"}:
                self._open.clear()
                return None
            case _:
                return None
        self._open[ask.id] = ask
        return ask

    def keep(self, ids: Collection[str]) -> None:
        """Drop all requests but these."""
        self._open = {id: ask for id, ask in self._open.items() if id in ids}


def read_verdict(line: str, *, needs_word: bool) -> Verdict | None:
    """Parse an answer to an approval; return None if unknown. With `needs_word`, abbreviations do not approve."""
    word, _, rest = line.strip().partition(" ")
    word, rest = word.lower(), rest.strip()
    if word in _REFUSALS:
        return Verdict("deny", reason=rest or None)
    if not needs_word:
        word = _SHORT.get(word, word)
    scope = _SCOPES.get(word)
    if rest:
        return Verdict("approve", scope, prefix=rest) if scope in ("session", "always") else None
    if word in _EDITS:
        return Verdict(edit=True)
    return None if scope is None else Verdict("approve", scope)


def choice_lines(ask: Ask) -> list[str]:
    """Return the possible answers to an approval, with the exact rule that each wider scope writes."""
    words = ("approve", "session", "always") if ask.needs_word else ("a", "s", "w")
    typed: dict[str, str] = dict(zip(_SCOPES.values(), words, strict=True))
    offered = [scope for scope in _LENGTHS if scope in ask.remember_as]
    longer = "".join(f"{typed[scope]} for {_LENGTHS[scope]}, " for scope in offered)
    lines = [f"Type {typed['once']} to approve it once, {longer}e to edit the arguments, d REASON to deny it."]
    for scope in offered:
        proposed: JsonObject = ask.remember_as[scope]["approve"]
        lines.append(f"{typed[scope]} writes the rule: {one_line(str(proposed['sentence']), 5000)}")
        for each in proposed.get("prefixes", ()):
            words_typed = one_line(f"{typed[scope]} {each['prefix']}", 5000)
            lines.append(f"{words_typed} writes instead: {one_line(str(each['sentence']), 5000)}")
    return lines


def read_choice(question: JsonObject, line: str) -> Json:
    """Return the answer in a line: options by number or name, else free text.

    None for an empty line and for a number out of range.
    """
    labels = [str(option.get("label", "")) for option in question.get("options") or ()]
    several = question.get("multiSelect") is True
    parts = [part.strip() for part in line.split(",")] if several else [line.strip()]
    if not labels or not line.strip():
        return line.strip() or None
    chosen = [_match_choice(part, labels) for part in parts]
    if any(label is None and _is_number(part) for part, label in zip(parts, chosen, strict=True)):
        return None
    if None in chosen:
        return line.strip()
    return [*chosen] if several else chosen[0]


def _match_choice(part: str, labels: Sequence[str]) -> str | None:
    if _is_number(part):
        return labels[int(part) - 1] if 1 <= int(part) <= len(labels) else None
    return next((label for label in labels if label.lower() == part.lower()), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 3
