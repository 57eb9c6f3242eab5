"""Decisions and their reasons.

A decision remembers every step that led to it, in order, so that a person can be told why and what would change it.
"""

from dataclasses import dataclass, field
from typing import Literal

from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

Verdict = Literal["allow", "ask", "deny", "hidden", "unknown"]
"""What happens on a call: it runs, a person is asked, it is refused, or the tool does not exist for this asker."""

StepName = Literal["registered", "source", "permissions", "scheduler", "deny", "ask", "allow", "mode", "by_hand"]
Effect = Literal["include", "exclude", "allow", "ask", "deny", "none"]
RuleEffect = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a rule stands: which kind of place, and the file and line if it has them."""

    kind: Literal["default", "managed", "user", "project", "agent", "skill", "session", "remembered"]
    file: str | None = None
    line: int | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
        shape: JsonObject = {"kind": self.kind}
        if self.file is not None:
            shape["file"] = self.file
        if self.line is not None:
            shape["line"] = self.line
        return shape


@dataclass(frozen=True, slots=True)
class Rule:
    """A person's word on some tools: `effect` for what `pattern` (a glob over `server/tool`) names."""

    id: str
    effect: RuleEffect
    pattern: str
    origin: Origin
    reason: str | None = None


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
    """The verdict on one tool for one principal, with all steps taken; the last matched step decided."""

    verdict: Verdict
    ref: ToolRef
    steps: tuple[Step, ...]
    rules: tuple[str, ...] = field(default=())

    @property
    def visible(self) -> bool:
        """Whether the tool is listed: callable ⊆ listed, since both ask this one value."""
        return self.verdict not in ("hidden", "unknown")

    @property
    def decided_by(self) -> Step:
        """The step that settled it."""
        return next(step for step in reversed(self.steps) if step.matched)
