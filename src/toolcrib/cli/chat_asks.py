"""What waits for the person in a chat: calls to be judged and questions of the agent, one after the other.

A line answers what it was typed for and nothing else. What destroys something is approved by its whole word, never by
one key; silence and anything that is not understood are no answer.

Pure. Above: the chat. Below: `output.one_line`. It must never make an approval of a line that does not say so.
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
"""What is enough where nothing can be destroyed."""
_REFUSALS: Final = ("deny", "d", "n", "no")
_EDITS: Final = ("edit", "e")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a line says to a call. `edit`: the arguments are to be changed first."""

    decision: Decision = "approve"
    scope: Scope = "once"
    reason: str | None = None
    edit: bool = False


@dataclass(slots=True)
class Ask:
    """One thing that waits. A question of the agent has `questions`, and `answers` as far as they were given."""

    id: str
    event: JsonObject
    needs_word: bool = True
    questions: Sequence[JsonObject] = ()
    answers: dict[str, Json] = field(default_factory=dict[str, Json])
    is_editing: bool = False

    @property
    def next_question(self) -> JsonObject | None:
        """The first question that has no answer yet."""
        return next((each for each in self.questions if str(each.get("question")) not in self.answers), None)

    @property
    def label(self) -> str:
        """What stands before the line that answers it."""
        if self.questions:
            number = f" {len(self.answers) + 1} of {len(self.questions)}" if len(self.questions) > 1 else ""
            return f"answer{number} > "
        what = "arguments of" if self.is_editing else "approve"
        return f"{what} {self.event['server']}/{self.event['tool']}? > "


class Asks:
    """All that waits, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, Ask] = {}

    @property
    def first(self) -> Ask | None:
        """What is to be answered next."""
        return next(iter(self._open.values()), None)

    def get(self, id: str) -> Ask | None:
        """That one, while it waits."""
        return self._open.get(id)

    def note(self, event: JsonObject) -> Ask | None:
        """Take an event into account; gives what has begun to wait with it."""
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
        """Forget all but these."""
        self._open = {id: ask for id, ask in self._open.items() if id in ids}


def read_verdict(line: str, *, needs_word: bool) -> Verdict | None:
    """What a line says to a call; None if it is not understood. With `needs_word` no abbreviation says yes."""
    word, _, rest = line.strip().partition(" ")
    word, rest = word.lower(), rest.strip()
    if word in _REFUSALS:
        return Verdict("deny", reason=rest or None)
    if rest:
        return None
    if word in _EDITS:
        return Verdict(edit=True)
    if not needs_word:
        word = _SHORT.get(word, word)
    scope = _SCOPES.get(word)
    return None if scope is None else Verdict("approve", scope)


def choices_line(ask: Ask, agent: str | None) -> str:
    """What may be answered to a call; the answer for good says which rule it writes."""
    rule = one_line(f"allow {ask.event['server']}/{ask.event['tool']}", 1000) + (f" for agent {agent}" if agent else "")
    approve, session, always = ("approve", "session", "always") if ask.needs_word else ("a", "s", "w")
    return (
        f"Type {approve} to approve it once, {session} for this session, {always} for good (writes the rule `{rule}`), "
        "e to edit the arguments, d REASON to deny it."
    )


def read_choice(question: JsonObject, line: str) -> Json:
    """The answer that a line gives to a question: choices by number or name, else the person's own words.

    None for an empty line, and for the number of a choice that there is none of.
    """
    labels = [str(option.get("label", "")) for option in question.get("options") or ()]
    several = question.get("multiSelect") is True
    parts = [part.strip() for part in line.split(",")] if several else [line.strip()]
    if not labels or not line.strip():
        return line.strip() or None
    chosen = [_chosen(part, labels) for part in parts]
    if any(label is None and _is_number(part) for part, label in zip(parts, chosen, strict=True)):
        return None
    if None in chosen:
        return line.strip()
    return [*chosen] if several else chosen[0]


def _chosen(part: str, labels: Sequence[str]) -> str | None:
    if _is_number(part):
        return labels[int(part) - 1] if 1 <= int(part) <= len(labels) else None
    return next((label for label in labels if label.lower() == part.lower()), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 3
