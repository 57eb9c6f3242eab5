"""The approval card: the same text, sizes and warnings that the REST API and the CLI show.

Long arguments are collapsed, and a card cannot be approved until each of them was opened: the page disables the
buttons, and `check_opened` rejects an approval that does not list the digests of all collapsed parts.
"""

from collections.abc import Collection
from datetime import datetime

import orjson
from starlette.datastructures import FormData

from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.approvals.display import DisplayedArguments, editable, show
from toolcrib.gate.approvals.requests import remember_as
from toolcrib.gate.policy.paths import REAL
from toolcrib.gate.policy.rule_parser import MOST_USES
from toolcrib.model.approvals import Approval, Scope
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, dumps, is_object, loads
from toolcrib.model.marks import MARK_WORDS, NO_MARKS, HeldMarks
from toolcrib.model.policy import CONDITION_EXAMPLE, parse_condition


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
        "rememberAs": _rules(approval),
        "onceOnly": approval.remembering.refusal,
        "marks": shown_marks(marks),
    }


def _rules(approval: Approval) -> JsonObject:
    """Return the rules that answers create, each with the lines of its conditions for editing."""
    rules = remember_as(approval)
    for each in rules.values():
        approve: JsonObject = each["approve"]
        widest: list[JsonObject] = approve["prefixes"][-1:]
        conditions = widest[0]["conditions"] if widest else approve["rule"].get("conditions", [])
        lines = [f"{one['pointer']} {one['test']} {_value(one['value'])}" for one in conditions]
        approve["lines"] = "\n".join(lines)
    return rules


def _value(value: Json) -> str:
    return value if isinstance(value, str) and not _is_json(value) else dumps(value).decode()


def _is_json(text: str) -> bool:
    try:
        loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


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


EDITED = "edited"
"""The choice of a rule whose conditions the person edits."""


def read_rule_limits(form: FormData, scope: Scope) -> JsonObject:
    """Return the chosen prefix, or the edited conditions, and the limits of the rule that the answer creates."""
    if scope == "once":
        return {}
    chosen = str(form.get(f"prefix-{scope}", ""))
    lines = [line for line in str(form.get(f"conditions-{scope}", "")).splitlines() if line.strip()]
    is_edited = chosen == EDITED
    return {
        "prefix": None if is_edited or not chosen else chosen,
        "conditions": [_condition(line) for line in lines] if is_edited else None,
        "uses": _number(str(form.get(f"uses-{scope}", ""))),
        "expires_at": _moment(str(form.get(f"until-{scope}", ""))),
    }


def _condition(line: str) -> JsonObject:
    found = parse_condition(line)
    if found is None:
        raise InvalidRequest("approval.prefix", f"{line!r} is not POINTER TEST VALUE.", CONDITION_EXAMPLE)
    return found


def _number(text: str) -> int | None:
    if not text.strip():
        return None
    if not (text.strip().isascii() and text.strip().isdigit() and 0 < int(text) <= MOST_USES):
        raise InvalidRequest("approval.scope", f"{text!r} is not a number of calls.")
    return int(text)


def _moment(text: str) -> datetime | None:
    """Return the moment of a time, which is local to the crib unless it has a zone."""
    if not text.strip():
        return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidRequest("approval.scope", f"{text!r} is not a time.") from error
    return at if at.tzinfo is not None else at.astimezone()


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
