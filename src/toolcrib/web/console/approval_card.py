"""The approval card: the same text, sizes and warnings that the REST API and the CLI show.

Long arguments are collapsed, and a card cannot be approved until each of them was opened: the page disables the
buttons, and `check_opened` rejects an approval that does not list the digests of all collapsed parts.
"""

from collections.abc import Collection

import orjson

from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.approvals.display import DisplayedArguments, editable, show
from toolcrib.gate.approvals.requests import remember_as
from toolcrib.gate.policy.paths import REAL
from toolcrib.model.approvals import Approval
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, is_object, loads
from toolcrib.model.marks import MARK_WORDS, NO_MARKS, HeldMarks


def card(approvals: Approvals, approval: Approval, marks: HeldMarks = NO_MARKS, *, destructive: bool) -> JsonObject:
    """Return the values of the card template. Secrets are masked. `marks` are those of the conversation."""
    masked = approvals.shown(approval)
    shown = _display(masked, is_masked=masked.arguments != approval.arguments)
    return masked.to_json() | {
        "sessionId": approval.principal.session,
        "approvalId": approval.id,
        "reason": approval.why,
        "isDestructive": destructive,
        "shown": shown.to_json(),
        "unseen": sum(each.collapsed for each in shown.arguments),
        "editable": editable(masked.given),
        "rememberAs": remember_as(approval),
        "onceOnly": approval.remembering.refusal,
        "marks": shown_marks(marks),
    }


def shown_marks(marks: HeldMarks) -> list[JsonObject]:
    """Return the marks of a conversation for display."""
    return [{**each, "words": MARK_WORDS[each["mark"]]} for each in marks.to_json()]


def _display(masked: Approval, *, is_masked: bool = False) -> DisplayedArguments:
    return show(masked.given, masked.principal.cwd, REAL, is_masked=is_masked)


def check_opened(masked: Approval, opened: Collection[str], edited: JsonObject | None) -> None:
    """Raise `InvalidRequest` (`approval.unseen`) if a collapsed argument that will run was not opened.

    `masked` is the approval as displayed on the card.
    """
    given: Json = masked.given
    for argument in _display(masked).arguments:
        replaced = edited is not None and is_object(given) and edited.get(argument.name) != given[argument.name]
        if argument.collapsed and argument.digest not in opened and not replaced:
            message = f"The argument {argument.name!r} ({argument.characters:,} characters) is still collapsed."
            raise InvalidRequest("approval.unseen", message)


def read_edited(text: str, given: Json) -> JsonObject | None:
    """Return the edited arguments, or None if they are unchanged."""
    text = text.strip()
    if not text:
        return None
    try:
        edited: Json = loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("tool.arguments_invalid", f"The arguments are not valid JSON: {error}.") from error
    if not is_object(edited):
        raise InvalidRequest("tool.arguments_invalid", "The arguments must be a JSON object.")
    return None if edited == given else edited
