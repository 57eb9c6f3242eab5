"""The shapes of what is about permissions: rules and reasons, questions, bundles, projects, tokens, definitions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from toolcrib.host.replay import Trial
from toolcrib.model.approvals import ApprovalStatus, Scope, Verb
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import ConditionTest, Effect, OriginKind, RuleEffect, StepName, Verdict
from toolcrib.model.principals import Mode, Source
from toolcrib.policy.changes import ChangeKind, DifferenceKind
from toolcrib.policy.explain import ChangeKind as RepairKind
from toolcrib.server.api.shapes import Shape

MOST_RECORDS = 100_000
_Patterns = Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=1000)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class OriginShape(Shape):
    """Where a rule stands."""

    kind: OriginKind
    file: str = ""
    line: int = 0


class ConditionShape(Shape):
    """A test of one argument."""

    pointer: str = Field(description="A JSON pointer, such as `/repo`.")
    test: ConditionTest
    value: Any = Field(description="Any JSON for `equals`, a text for `glob` and `regex`, `{min, max}` for `range`.")


class WhereShape(Shape):
    """For whom and for which tools a rule counts; what is absent does not matter."""

    read_only: bool = False
    destructive: bool = False
    open_world: bool = False
    sources: Sequence[Source] = ()
    agents: Sequence[str] = ()
    projects: Sequence[str] = Field(default=(), description="Absolute paths of directories.")
    modes: Sequence[Mode] = ()


class RuleChanges(Shape):
    """What is to be changed of a rule; `null` takes a part off."""

    effect: RuleEffect | None = None
    pattern: str | None = Field(None, description="`server/tool` with `*` for any, or the name of a known tool.")
    conditions: list[ConditionShape] | None = None
    where: WhereShape | None = None
    reason: str | None = None
    expires_at: datetime | None = None
    definition_hash: str | None = Field(None, description="Count only for the tool that is defined so.")
    session: str | None = Field(None, description="Count only in this session.")

    def written(self) -> JsonObject:
        """As the person wrote it, for `policy` to check."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class RuleRequest(RuleChanges):
    """A rule to be added."""

    effect: RuleEffect | None = Field(...)
    pattern: str | None = Field(..., description="`server/tool` with `*` for any, or the name of a known tool.")


class RuleShape(Shape):
    """One rule."""

    id: str
    effect: RuleEffect
    pattern: str
    conditions: Sequence[ConditionShape] = ()
    where: WhereShape = WhereShape()
    origin: OriginShape
    reason: str = ""
    created_by: str
    created_at: str = ""
    expires_at: str = ""
    definition_hash: str = ""
    session: str = ""


class StepShape(Shape):
    """One step of a decision."""

    step: StepName
    matched: bool
    effect: Effect
    reason: str
    rule: str = ""
    origin: OriginShape = OriginShape(kind="default")


class RepairShape(Shape):
    """One thing that could be changed."""

    kind: RepairKind
    change: str
    rule: str = ""


class FlipShape(Shape):
    """Changes that together flip a verdict, and the verdict after them."""

    changes: list[RepairShape]
    verdict: Verdict


class RecordedShape(Shape):
    """What was decided when a call was recorded; `uncertain` if the record does not hold all arguments."""

    audit_id: int
    at: str
    decision: str
    rules: list[str]
    uncertain: bool


class ExplanationShape(Shape):
    """Why a tool is seen, asked for or refused."""

    verdict: Verdict
    ref: str
    principal: JsonObject
    steps: list[StepShape]
    decided_by: StepShape
    flip: FlipShape | None = None
    nearest: Sequence[str] = ()
    recorded: RecordedShape | None = None


class SimulateRequest(Shape):
    """Rules that are tried: some added, some taken away, and a file in place of `toolcrib.toml`."""

    add: list[str | RuleRequest] = Field([], max_length=1000, description="Rules, also in short: `deny github/*`.")
    remove: list[str] = Field([], max_length=1000, description="Ids of rules.")
    file: str | None = Field(None, max_length=1_048_576, description="The text of a file with `[[rules]]`.")
    since: datetime | None = None
    until: datetime | None = None
    limit: int = Field(10_000, ge=1, le=MOST_RECORDS, description="So many records are looked at, the newest first.")

    @property
    def trial(self) -> Trial:
        """The same as a value."""
        add = [each if isinstance(each, str) else each.written() for each in self.add]
        return Trial(add, self.remove, self.file, self.since, self.until, self.limit)


class SimulatedShape(Shape):
    """A recorded call that would be decided otherwise."""

    audit_id: int
    at: str
    ref: str
    principal: JsonObject
    recorded: str
    before: Verdict
    after: Verdict
    decided_by: StepShape
    uncertain: bool


class SimulationShape(Shape):
    """What a simulation found; `skipped` calls are of tools that are gone."""

    compared: int
    skipped: int
    differences: list[SimulatedShape]


class RemarkShape(Shape):
    """What a person should know of a value before judging it."""

    pointer: str
    message: str


class ShownShape(Shape):
    """Arguments to look at: the whole of them, with nothing that could hide."""

    text: str
    hidden: int
    characters: int
    remarks: list[RemarkShape]


class ApprovalShape(Shape):
    """A question to a person about one call; `rule` is what an answer for longer than that wrote."""

    id: str
    kind: Literal["approval"]
    status: ApprovalStatus
    session_id: str = ""
    door: str
    principal: JsonObject
    server: str
    tool: str
    arguments: Any
    shown: ShownShape
    definition_hash: str
    why: str
    created_at: str
    expires_at: str
    tool_call_id: str = ""
    edited_arguments: Any = None
    scope: Scope = "once"
    decided_at: str = ""
    decided_by: str = ""
    reason: str = ""
    rule: RuleShape | None = None


class AnswerRequest(Shape):
    """The answer to a question. `arguments` are those to call the tool with instead."""

    decision: Verb
    scope: Scope = "once"
    reason: str | None = Field(None, max_length=2000, description="Told to the model where the answer is no.")
    arguments: JsonObject | None = None


class BundleFields(Shape):
    """What a bundle is."""

    name: _Name
    tools: _Patterns
    description: str = Field("", max_length=2000)
    prompt: str = Field("", max_length=20_000, description="Added to the prompt of whoever has the bundle.")


class BundleRequest(BundleFields):
    """A bundle to be made."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")


class BundleShape(Shape):
    """Tools that are granted together; a `preset` comes with Toolcrib and is not changed."""

    id: str
    name: str
    description: str
    tools: list[str]
    prompt: str
    preset: bool


class RemovedShape(Shape):
    """What is gone."""

    id: str


class ProjectFields(Shape):
    """What is set for a directory."""

    agent_id: _Name | None = None
    bundles: list[_Name] = Field([], max_length=100)


class ProjectRequest(ProjectFields):
    """A directory for which something is set."""

    path: str = Field(min_length=1, max_length=4096)


class ProjectShape(Shape):
    """A directory; `trusted` says whether its owner agreed to the servers that its files define."""

    path: str
    trusted: bool
    agent_id: str = ""
    bundles: list[str]


class TokenRequest(Shape):
    """A token to be made."""

    name: str = Field(min_length=1, max_length=200)
    agent: _Name | None = None
    source: Source = "ide"
    mode: Mode | None = Field(None, description="`acceptEdits` for source `ide`, else `default`, where absent.")
    may_approve: bool = False


class TokenShape(Shape):
    """A named token, without its secret."""

    name: str
    source: Source
    mode: Mode
    may_approve: bool
    created_at: str
    agent: str = ""
    revoked_at: str = ""


class NewToken(TokenShape):
    """A token that was just made; nobody can be told the secret again."""

    secret: str


class DifferenceShape(Shape):
    """One thing in which two definitions of a tool differ."""

    kind: DifferenceKind
    name: str
    before: Any
    after: Any


class ChangeShape(Shape):
    """A definition that is held back until a person accepts it; `hash` names it."""

    ref: str
    server: str
    tool: str
    hash: str
    since: str
    rejected_by: str = ""
    kind: ChangeKind
    differences: list[DifferenceShape]


class JudgeRequest(Shape):
    """Which definition was looked at; without a hash, the one that is held or else counts now."""

    hash: str | None = Field(None, max_length=64)


class JudgedShape(Shape):
    """A definition and a person's word on it."""

    ref: str
    hash: str
    verdict: str
