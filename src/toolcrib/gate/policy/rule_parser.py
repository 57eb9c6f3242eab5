"""Parses rules as people write them, and reports every fault with its location.

A rule is an object of known members (`effect, pattern, conditions, where, reason, expiresAt, definitionHash, session,
principal, uses`), in JSON for the API and as `[[rules]]` tables in TOML files, where members may also be `snake_case`.
The short form of a rule is `deny github/*`.

Must never silently drop a rule of the managed file: an unreadable one makes every call ask for an approval.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from toolcrib.gate.policy.commands import words_of
from toolcrib.gate.policy.conditions import is_number
from toolcrib.gate.policy.fields import (
    FaultyRequest,
    FieldFault,
    Members,
    boolean,
    lines_of_tables,
    list_of,
    one_of,
    text_of,
)
from toolcrib.gate.policy.patterns import Names, resolve_pattern
from toolcrib.gate.policy.regular import NotRegular, regular
from toolcrib.model.json import Json, JsonObject, digest, is_array, is_object
from toolcrib.model.marks import ACTS, MARKS, Act, Mark
from toolcrib.model.policy import (
    CONDITION_TESTS,
    RULE_EFFECTS,
    Binding,
    Condition,
    ConditionTest,
    Rule,
    RuleEffect,
    RuleOrigin,
    Where,
)
from toolcrib.model.principals import KINDS, MODES, SOURCES, Mode, PrincipalKind, Source
from toolcrib.model.problems import Problem
from toolcrib.servers.syntax.document import SyntaxProblem
from toolcrib.servers.syntax.toml import parse

MOST_CONDITIONS = 20
LONGEST_REASON = 1000
MEMBERS = (
    "effect", "pattern", "conditions", "where", "reason", "expiresAt", "definitionHash", "session", "principal",
    "uses",
)  # fmt: skip
"""The members of a rule that a person writes."""
FileKind: TypeAlias = Literal["managed", "user"]
CREATORS: Mapping[FileKind, str] = {"managed": "administrator", "user": "owner"}
"""The author of a file of each kind."""
_WHERE_MEMBERS = (
    "readOnly", "destructive", "openWorld", "sources", "agents", "projects", "modes", "marks", "flows", "except",
)  # fmt: skip
MOST_USES = 100_000
_POINTER = re.compile(r"(/([^~/]|~[01])*)*")


@dataclass(frozen=True, slots=True)
class Read:
    """A rule, or its faults."""

    rule: Rule | None
    faults: tuple[FieldFault, ...] = ()


@dataclass(frozen=True, slots=True)
class RulesRead:
    """The rules of a file, and its problems. If it is not `whole`, it may contain further, unreadable rules."""

    rules: tuple[Rule, ...] = ()
    problems: tuple[Problem, ...] = ()
    whole: bool = True


def read_rule(
    raw: Json, known: Names, *, id: str | None, origin: RuleOrigin, created_by: str, created_at: datetime | None
) -> Read:
    """Parse one rule. Without an id, it gets one derived from its content, so that equal rules have equal ids."""
    if not is_object(raw):
        return Read(None, (FieldFault("", "A rule must be an object."),))
    faults: list[FieldFault] = []
    reader = Members(raw, MEMBERS, faults)
    effect = reader.take("effect", _EFFECT, "allow, ask or deny", needed=True)
    pattern = reader.take(
        "pattern",
        lambda value: resolve_pattern(value, known) if isinstance(value, str) else None,
        "`server/tool` with `*` for any, or the name of a known tool",
        needed=True,
    )
    conditions = reader.take("conditions", lambda value: _conditions(value, faults), "a list of conditions")
    where = reader.take("where", lambda value: _where(value, known, faults), "an object")
    expires_at = reader.take("expiresAt", _time, "a time as in 2030-01-31T12:00:00Z")
    reason = reader.take("reason", text_of(LONGEST_REASON), f"a text of at most {LONGEST_REASON} characters")
    bound = reader.take("definitionHash", text_of(64), "the hash of a definition")
    session = reader.take("session", text_of(200), "the id of a session")
    principal = reader.take("principal", lambda value: _principal(value, faults), "an object")
    uses = reader.take("uses", _uses, f"a whole number up to {MOST_USES}")
    if uses is not None and origin.file is not None:
        reader.wrong("uses", "is not possible in a file, since the number of calls left is stored with the rule.")
    if origin.kind == "session" and session is None:
        reader.wrong("session", "must be given for a rule of a session.")
    if faults or effect is None or pattern is None:
        return Read(None, tuple(faults))
    rule = Rule(
        id or "", effect, pattern, origin, reason, created_by, created_at, expires_at, conditions or (),
        where or Where(), bound, session, principal, uses,
    )  # fmt: skip
    return Read(rule if id else replace(rule, id=_id_of(rule)))


def read_line(text: str) -> JsonObject:
    """Return the unchecked rule of a line `effect pattern`."""
    effect, _, pattern = text.strip().partition(" ")
    return {"effect": effect, "pattern": pattern.strip()}


def read_rules_file(
    text: str, file: str, kind: FileKind, known: Names, *, written_at: datetime | None = None
) -> RulesRead:
    """Parse the `[[rules]]` of a TOML file. Invalid TOML has none, except for the managed file's substitute."""
    try:
        raw = parse(text).value.get("rules", [])
    except SyntaxProblem as problem:
        found = Problem("rule.invalid", f"The rules cannot be read: {problem.reason}.", file=file, line=problem.line)
        return RulesRead(stand_in(kind, found), (found,), whole=False)
    lines = lines_of_tables(text, "rules")
    if not is_array(raw):
        found = Problem("rule.invalid", "`rules` must be tables, written `[[rules]]`.", file=file, line=lines(0))
        return RulesRead(stand_in(kind, found), (found,), whole=False)
    rules: list[Rule] = []
    problems: list[Problem] = []
    creator = CREATORS[kind]
    for number, entry in enumerate(raw):
        origin = RuleOrigin(kind, file, lines(number))
        read = read_rule(entry, known, id=None, origin=origin, created_by=creator, created_at=written_at)
        if read.rule is not None:
            rules.append(read.rule)
            continue
        message = " ".join(fault.message for fault in read.faults)
        found = Problem("rule.invalid", f"This rule is ignored: {message}", file=file, line=origin.line)
        problems.append(found)
        rules.extend(stand_in(kind, found))
    return RulesRead(_unique(rules), tuple(problems))


def stand_in(kind: FileKind, found: Problem) -> tuple[Rule, ...]:
    """Return the substitute for an unreadable rule of the managed file, which may have been a deny rule."""
    if kind != "managed":
        return ()
    reason = "A rule of the managed file cannot be read; until it is fixed, a person is asked before every call."
    origin = RuleOrigin(kind, found.file, found.line)
    return (Rule(f"managed-unreadable-{found.line or 0}", "ask", "*", origin, reason, "administrator"),)


def _unique(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Make ids unique: rules with equal content get a number."""
    seen: dict[str, int] = {}
    found: list[Rule] = []
    for rule in rules:
        seen[rule.id] = seen.get(rule.id, 0) + 1
        found.append(rule if seen[rule.id] == 1 else replace(rule, id=f"{rule.id}-{seen[rule.id]}"))
    return tuple(found)


def _id_of(rule: Rule) -> str:
    said = {key: value for key, value in rule.to_json().items() if key not in ("id", "origin", "createdAt", "reason")}
    return f"{rule.origin.kind}-{digest(said)[:10]}"


def read_conditions(raw: Json) -> tuple[Condition, ...]:
    """Parse the conditions of a rule. Raises `FaultyRequest` (`rule.invalid`) with every fault."""
    faults: list[FieldFault] = []
    found = _conditions(raw, faults)
    if found is None:
        faults.append(FieldFault("conditions", f"`conditions` must be a list of at most {MOST_CONDITIONS} conditions."))
    if faults or found is None:
        raise FaultyRequest("rule.invalid", faults)
    return found


def _conditions(value: Json, faults: list[FieldFault]) -> tuple[Condition, ...] | None:
    if not is_array(value) or len(value) > MOST_CONDITIONS:
        return None
    return tuple(found for at, each in enumerate(value) if (found := _condition(each, f"conditions/{at}", faults)))


def _condition(raw: Json, at: str, faults: list[FieldFault]) -> Condition | None:
    if not is_object(raw):
        faults.append(FieldFault(at, f"`{at}` must be an object with pointer, test and value."))
        return None
    reader = Members(raw, ("pointer", "test", "value"), faults, f"{at}/")
    pointer = reader.take("pointer", _pointer, "a JSON pointer such as /repo", needed=True)
    test = reader.take("test", _TEST, f"one of {', '.join(CONDITION_TESTS)}", needed=True)
    if pointer is None or test is None:
        return None
    if "value" not in raw:
        reader.wrong("value", "is missing.")
        return None
    if (wrong := _wrong_value(test, raw["value"])) is not None:
        reader.wrong("value", wrong)
        return None
    return Condition(pointer, test, raw["value"])


def _wrong_value(test: str, value: Json) -> str | None:
    if test == "range":
        bounds = value if is_object(value) else {}
        fits = bool(bounds) and bounds.keys() <= {"min", "max"} and all(is_number(bound) for bound in bounds.values())
        return None if fits else "must be an object with numbers min, max or both."
    if test == "equals":
        return None
    if test == "present":
        return None if isinstance(value, bool) else "must be true or false."
    if not isinstance(value, str) or not value:
        return "must be a text."
    if test == "path":
        return (
            None if value.startswith(("/", "~/")) or value == "~" else "must be an absolute path, or begin with `~/`."
        )
    if test == "command":
        return None if words_of(value) else "must be plain words, without shell syntax."
    if test == "regex":
        try:
            regular(value)
        except NotRegular as error:
            return f"is not a supported regular expression: {error}."
    return None


def _where(value: Json, known: Names, faults: list[FieldFault]) -> Where | None:
    if not is_object(value):
        return None

    def pattern(text: Json) -> str | None:
        return resolve_pattern(text, known) if isinstance(text, str) else None

    reader = Members(value, _WHERE_MEMBERS, faults, "where/")
    return Where(
        reader.take("readOnly", boolean, "true or false"),
        reader.take("destructive", boolean, "true or false"),
        reader.take("openWorld", boolean, "true or false"),
        reader.take("sources", list_of(_SOURCE), f"a list of {', '.join(SOURCES)}") or (),
        reader.take("agents", list_of(text_of(200)), "a list of ids of agents") or (),
        reader.take("projects", list_of(_absolute), "a list of absolute paths") or (),
        reader.take("modes", list_of(_MODE), f"a list of {', '.join(MODES)}") or (),
        reader.take("marks", list_of(_MARK), f"a list of {', '.join(MARKS)}") or (),
        reader.take("flows", list_of(_ACT), f"a list of {', '.join(ACTS)}") or (),
        reader.take("except", list_of(pattern), "a list of patterns `server/tool`") or (),
    )


def _principal(value: Json, faults: list[FieldFault]) -> Binding | None:
    if not is_object(value):
        return None
    reader = Members(value, ("kind", "source", "agent", "name", "tokenId"), faults, "principal/")
    kind = reader.take("kind", _KIND, f"one of {', '.join(KINDS)}", needed=True)
    source = reader.take("source", _SOURCE, f"one of {', '.join(SOURCES)}", needed=True)
    agent = reader.take("agent", text_of(200), "the id of an agent")
    name = reader.take("name", text_of(200), "the name of a token")
    token_id = reader.take("tokenId", text_of(200), "the id of a token")
    return None if kind is None or source is None else Binding(kind, source, agent, name, token_id)


_KIND: Callable[[Json], PrincipalKind | None] = one_of(KINDS)
_EFFECT: Callable[[Json], RuleEffect | None] = one_of(RULE_EFFECTS)
_TEST: Callable[[Json], ConditionTest | None] = one_of(CONDITION_TESTS)
_SOURCE: Callable[[Json], Source | None] = one_of(SOURCES)
_MODE: Callable[[Json], Mode | None] = one_of(MODES)
_MARK: Callable[[Json], Mark | None] = one_of(MARKS)
_ACT: Callable[[Json], Act | None] = one_of(ACTS)


def _uses(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_USES else None


def _pointer(value: Json) -> str | None:
    return value if isinstance(value, str) and len(value) <= LONGEST_REASON and _POINTER.fullmatch(value) else None


def _absolute(value: Json) -> str | None:
    return value if isinstance(value, str) and value.startswith("/") and len(value) > 1 else None


def _time(value: Json) -> datetime | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
