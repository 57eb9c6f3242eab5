"""Rules, decisions and their reasons.

A rule is a person's word on some tools. A decision remembers every step that led to it, in order, so that a person can
be told why and what would change it. A bundle is a named set of tools that can be granted as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode, Source
from toolcrib.model.tools import ToolRef

Verdict = Literal["allow", "ask", "deny", "hidden", "unknown"]
"""What happens on a call: it runs, a person is asked, it is refused, or the tool does not exist for this asker."""

StepName = Literal[
    "registered", "source", "permissions", "scheduler", "deny", "managed", "remembered", "ask", "allow", "mode",
    "by_hand", "creator",
]  # fmt: skip
"""The steps of a decision. `managed` is an `ask` of the managed file, `remembered` an answer that a person gave for
longer than one call, `creator` the limit that a session has from the one that started it."""
Effect = Literal["include", "exclude", "allow", "ask", "deny", "none"]
RuleEffect = Literal["allow", "ask", "deny"]
OriginKind = Literal["default", "managed", "user", "project", "agent", "skill", "session", "remembered"]
ConditionTest = Literal["equals", "glob", "regex", "range"]

RULE_EFFECTS: tuple[RuleEffect, ...] = get_args(RuleEffect)
CONDITION_TESTS: tuple[ConditionTest, ...] = get_args(ConditionTest)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a rule stands: which kind of place, and the file and line if it has them."""

    kind: OriginKind
    file: str | None = None
    line: int | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
        return _present({"kind": self.kind, "file": self.file, "line": self.line})


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of one argument, named by a JSON pointer.

    `value` is any JSON for `equals`, a pattern for `glob` and `regex` (both match the whole text), and an object with
    `min`, `max` or both for `range` (both ends belong to it). An argument that is absent fits nothing.
    """

    pointer: str
    test: ConditionTest
    value: Json

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"pointer": self.pointer, "test": self.test, "value": self.value}


@dataclass(frozen=True, slots=True)
class Where:
    """For whom and for which tools a rule counts; what is None or empty does not matter.

    `projects` are real paths of directories: an asker whose working directory lies in one of them fits.
    """

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    sources: tuple[Source, ...] = ()
    agents: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = ()

    def to_json(self) -> JsonObject:
        """The public shape; what does not matter is left out."""
        marks = {"readOnly": self.read_only, "destructive": self.destructive, "openWorld": self.open_world}
        askers = {"sources": self.sources, "agents": self.agents, "projects": self.projects, "modes": self.modes}
        return _present(marks) | {key: list(values) for key, values in askers.items() if values}


@dataclass(frozen=True, slots=True)
class Rule:
    """A person's word on some tools: `effect` for what `pattern` (a glob over `server/tool`) names.

    It counts only where all `conditions` on the arguments hold and `where` fits; with a `definition_hash` only for the
    tool defined so, with a `session` only in that session, with `expires_at` only before that moment.
    """

    id: str
    effect: RuleEffect
    pattern: str
    origin: Origin
    reason: str | None = None
    created_by: str = "owner"
    created_at: datetime | None = None
    expires_at: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    where: Where = Where()
    definition_hash: str | None = None
    session: str | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
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
            }
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a decision: whether it applied, what it did, and why, in words."""

    step: StepName
    matched: bool
    effect: Effect
    reason: str
    rule: str | None = None
    origin: Origin | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
        shape: JsonObject = {"step": self.step, "matched": self.matched, "effect": self.effect, "reason": self.reason}
        if self.rule is not None:
            shape["rule"] = self.rule
        if self.origin is not None:
            shape["origin"] = self.origin.to_json()
        return shape


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one tool for one principal, with all steps taken; the last matched step decided.

    `needs_arguments` says that the verdict on a call may be another one, depending on its arguments: then it holds for
    the arguments it was made with and no others. Whether the tool is visible never depends on them.
    """

    verdict: Verdict
    ref: ToolRef
    steps: tuple[Step, ...]
    rules: tuple[str, ...] = field(default=())
    needs_arguments: bool = False

    @property
    def visible(self) -> bool:
        """Whether the tool is listed: callable ⊆ listed, since both ask this one value."""
        return self.verdict not in ("hidden", "unknown")

    @property
    def decided_by(self) -> Step:
        """The step that settled it."""
        return next(step for step in reversed(self.steps) if step.matched)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Tools that are granted together, as patterns, and what is added to the prompt of whoever has them."""

    id: str
    name: str
    tools: tuple[str, ...]
    description: str = ""
    prompt: str = ""
    preset: bool = False

    def to_json(self) -> JsonObject:
        """The public shape."""
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
    """What an agent was given: its own permissions (None: the default set), and the tools of its enabled skills.

    Both are patterns over `server/tool`, or names that stand for tools.
    """

    permissions: tuple[str, ...] | None = None
    bundles: tuple[str, ...] = ()


def _present(shape: Mapping[str, Json]) -> JsonObject:
    return {key: value for key, value in shape.items() if value is not None}


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds")
