"""Rules, decisions and their reasons.

A decision records every step that led to it, in order, so that it can be explained. A bundle is a named set of tools
that is granted as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject, loads
from toolcrib.model.marks import NO_MARKS, Act, HeldMarks, Mark
from toolcrib.model.principals import Mode, Principal, PrincipalKind, Source
from toolcrib.model.tools import ToolRef

Verdict = Literal["allow", "ask", "deny", "hidden", "unknown"]
"""Outcome of a call: it runs, needs approval, is denied, or the tool does not exist for this principal."""

StepName = Literal[
    "registered", "source", "permissions", "scheduler", "deny", "managed", "remembered", "ask", "allow", "mode",
    "by_hand", "creator", "home",
]  # fmt: skip
"""Steps of a decision. `managed`: an `ask` rule of the managed file. `remembered`: an answer that a person gave for
longer than one call. `creator`: the limit that a session inherits from its creator. `home`: the call touches the crib's
home."""
Effect = Literal["include", "exclude", "allow", "ask", "deny", "none"]
RuleEffect = Literal["allow", "ask", "deny"]
OriginKind = Literal["default", "managed", "user", "project", "agent", "skill", "session", "remembered"]
ConditionTest = Literal["equals", "glob", "regex", "range", "path", "command", "present"]

RULE_EFFECTS: tuple[RuleEffect, ...] = get_args(RuleEffect)
CONDITION_TESTS: tuple[ConditionTest, ...] = get_args(ConditionTest)


@dataclass(frozen=True, slots=True)
class RuleOrigin:
    """Where a rule is defined: the kind of place, and the file and line if any."""

    kind: OriginKind
    file: str | None = None
    line: int | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        return _present({"kind": self.kind, "file": self.file, "line": self.line})


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of one argument, addressed by a JSON pointer.

    `value` is any JSON for `equals`, a pattern for `glob` and `regex` (both match the whole text), an object with
    `min`, `max` or both for `range` (inclusive), a file or directory for `path`, the first words of a command for
    `command`, and a boolean for `present`.
    """

    pointer: str
    test: ConditionTest
    value: Json

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"pointer": self.pointer, "test": self.test, "value": self.value}


CONDITION_EXAMPLE = "Write '/path path /etc', '/amount range {\"max\": 10}' or '/force equals true'."


def parse_condition(text: str) -> JsonObject | None:
    """Parse a line `POINTER TEST VALUE`, None if it is not one. A value that is not JSON is a string."""
    parts = text.strip().split(None, 2)
    if len(parts) != 3 or parts[1] not in CONDITION_TESTS:
        return None
    pointer, test, written = parts
    value: Json = written
    if test in ("equals", "range", "present"):
        try:
            value = loads(written)
        except ValueError:
            value = written
    return {"pointer": pointer, "test": test, "value": value}


@dataclass(frozen=True, slots=True)
class Where:
    """Restricts a rule to some principals and tools. None and empty fields match everything.

    `projects` are real paths; a principal matches if its working directory is inside one of them. `marks` must all be
    held by the conversation, and the call must do one of `flows`. `excepted` are patterns of tools that the rule does
    not apply to.
    """

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    sources: tuple[Source, ...] = ()
    agents: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = ()
    marks: tuple[Mark, ...] = ()
    flows: tuple[Act, ...] = ()
    excepted: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the public shape, without fields that match everything."""
        marks = {"readOnly": self.read_only, "destructive": self.destructive, "openWorld": self.open_world}
        lists = {
            "sources": self.sources,
            "agents": self.agents,
            "projects": self.projects,
            "modes": self.modes,
            "marks": self.marks,
            "flows": self.flows,
            "except": self.excepted,
        }
        return _present(marks) | {key: list(values) for key, values in lists.items() if values}


@dataclass(frozen=True, slots=True)
class Binding:
    """The principal that a rule applies to: kind, source and agent, and the name of a token.

    Sessions have no name here; a rule for one session sets `Rule.session`. A remembered answer has a `token_id`: it
    does not apply to a later token of the same name. A rule that the owner wrote for a name does.
    """

    kind: PrincipalKind
    source: Source
    agent: str | None = None
    name: str | None = None
    token_id: str | None = None

    @classmethod
    def of(cls, principal: Principal) -> "Binding":
        """Return the binding for the principal of a call."""
        name = None if principal.kind == "session" else principal.name
        return cls(principal.kind, principal.source, principal.agent, name, principal.token_id)

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "Binding":
        """Return the binding for a shape made by `to_json`."""
        return cls(shape["kind"], shape["source"], shape.get("agent"), shape.get("name"), shape.get("tokenId"))

    def includes(self, principal: Principal) -> bool:
        """Return whether a rule with this binding applies to the principal."""
        same = (self.kind, self.source, self.agent) == (principal.kind, principal.source, principal.agent)
        return same and self.name in (None, principal.name) and self.token_id in (None, principal.token_id)

    def describe(self) -> str:
        """Return a description of the principal."""
        named = {"owner": f"the {self.name or 'owner'}", "token": f"the token {self.name}", "session": "sessions"}[
            self.kind
        ]
        agent = f" of agent {self.agent}" if self.agent else " without an agent" if self.kind == "session" else ""
        return f"{named}{agent} (source {self.source})"

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {"kind": self.kind, "source": self.source, "agent": self.agent, "name": self.name}
        return _present({**shape, "tokenId": self.token_id})


@dataclass(frozen=True, slots=True)
class Rule:
    """Applies `effect` to the tools that match `pattern`, a glob over `server/tool`.

    `where` and all `conditions` on the arguments must match, and so must `definition_hash`, `principal` and `session`,
    if set. The rule ends at `expires_at`, and after `uses` more calls that it decides.
    """

    id: str
    effect: RuleEffect
    pattern: str
    origin: RuleOrigin
    reason: str | None = None
    created_by: str = "owner"
    created_at: datetime | None = None
    expires_at: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    where: Where = Where()
    definition_hash: str | None = None
    session: str | None = None
    principal: Binding | None = None
    uses: int | None = None

    @property
    def is_conditional(self) -> bool:
        """Whether it depends on the call: its arguments, or the marks of the conversation."""
        return bool(self.conditions or self.where.marks or self.where.flows)

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {"id": self.id, "effect": self.effect, "pattern": self.pattern}
        if self.conditions:
            shape["conditions"] = [condition.to_json() for condition in self.conditions]
        if where := self.where.to_json():
            shape["where"] = where
        shape["origin"] = self.origin.to_json()
        return shape | _present(
            {
                "reason": self.reason,
                "createdBy": self.created_by,
                "createdAt": _moment(self.created_at),
                "expiresAt": _moment(self.expires_at),
                "definitionHash": self.definition_hash,
                "session": self.session,
                "principal": self.principal.to_json() if self.principal is not None else None,
                "uses": self.uses,
            }
        )


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """One step of a decision: whether it matched, its effect, and the reason."""

    step: StepName
    matched: bool
    effect: Effect
    reason: str
    rule: str | None = None
    origin: RuleOrigin | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {"step": self.step, "matched": self.matched, "effect": self.effect, "reason": self.reason}
        if self.rule is not None:
            shape["rule"] = self.rule
        if self.origin is not None:
            shape["origin"] = self.origin.to_json()
        return shape


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one tool for one principal, with all steps; the last matched step decided.

    With `needs_arguments`, the verdict depends on the arguments or the marks of the conversation, and is only valid for
    those it was computed with. Visibility never depends on them. `marks` are those that a rule tested. `spends` is the
    rule that decided, if it is limited to a number of calls.
    """

    verdict: Verdict
    ref: ToolRef
    steps: tuple[DecisionStep, ...]
    rules: tuple[str, ...] = field(default=())
    needs_arguments: bool = False
    marks: HeldMarks = NO_MARKS
    spends: str | None = None
    visible: bool = field(init=False, compare=False, repr=False)
    """Whether the tool is listed. Listing and calling both use this value, so callable ⊆ listed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "visible", self.verdict not in ("hidden", "unknown"))

    @property
    def decided_by(self) -> DecisionStep:
        """The deciding step."""
        return next(step for step in reversed(self.steps) if step.matched)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Tools that are granted together, as patterns, and text for the prompt of agents that have them."""

    id: str
    name: str
    tools: tuple[str, ...]
    description: str = ""
    prompt: str = ""
    preset: bool = False

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "tools": list(self.tools),
            "prompt": self.prompt,
            "preset": self.preset,
        }


@dataclass(frozen=True, slots=True)
class AgentGrants:
    """Grants of an agent: its own permissions (None: the default set), and the tools of its enabled skills.

    Both are patterns over `server/tool`, or names of tools as shown to models.
    """

    permissions: tuple[str, ...] | None = None
    bundles: tuple[str, ...] = ()


def _present(shape: Mapping[str, Json]) -> JsonObject:
    return {key: value for key, value in shape.items() if value is not None}


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds")
