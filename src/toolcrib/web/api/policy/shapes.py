"""The shapes for permissions: rules, explanations, approvals, bundles, projects, tokens and definitions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from toolcrib.gate.pins.definition_changes import ChangeKind, DifferenceKind
from toolcrib.gate.policy.explain import ChangeKind as RepairKind
from toolcrib.gate.policy.reach import Access
from toolcrib.gate.policy.rule_parser import MOST_USES
from toolcrib.gate.rule_findings import FindingSeverity
from toolcrib.host.replay import Trial
from toolcrib.model.approvals import ApprovalStatus, Scope, Verb
from toolcrib.model.json import JsonObject
from toolcrib.model.marks import Act, Flow, Mark
from toolcrib.model.pins import PinKind
from toolcrib.model.policy import ConditionTest, Effect, OriginKind, RuleEffect, StepName, Verdict
from toolcrib.model.principals import Mode, PrincipalKind, Source
from toolcrib.model.tokens import Level
from toolcrib.web.api.shapes import ProblemShape, Shape

MOST_RECORDS = 100_000
_Patterns = Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=1000)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class RuleOriginShape(Shape):
    """Where a rule is defined."""

    kind: OriginKind
    file: str = ""
    line: int = 0


class ConditionShape(Shape):
    """A test of one argument."""

    pointer: str = Field(description="A JSON pointer, such as `/repo`.")
    test: ConditionTest
    value: Any = Field(
        description="Any JSON for `equals`, a string for `glob` and `regex`, `{min, max}` for `range`, a file or "
        "directory for `path`, the first words for `command`, true or false for `present`."
    )


class WhereShape(Shape):
    """The principals and tools that a rule applies to; absent fields match anything."""

    read_only: bool = False
    destructive: bool = False
    open_world: bool = False
    sources: Sequence[Source] = ()
    agents: Sequence[str] = ()
    projects: Sequence[str] = Field(default=(), description="Absolute paths of directories.")
    modes: Sequence[Mode] = ()
    marks: Sequence[Mark] = Field(default=(), description="All of these must be marks of the conversation.")
    flows: Sequence[Act] = Field(default=(), description="The call must do one of these.")
    except_: Sequence[str] = Field(
        default=(), alias="except", description="Patterns of tools that the rule does not apply to."
    )


class BindingShape(Shape):
    """The principal that a rule applies to. Absent fields match anything, but an absent agent matches only no agent."""

    kind: PrincipalKind
    source: Source
    agent: str = ""
    name: str = Field("", description="The name of a token.")
    token_id: str = Field("", description="The id of a token; without it, every token of that name.")


class RuleChanges(Shape):
    """The changes to a rule; `null` removes a field."""

    effect: RuleEffect | None = None
    pattern: str | None = Field(None, description="`server/tool` with `*` for any, or the name of a known tool.")
    conditions: list[ConditionShape] | None = None
    where: WhereShape | None = None
    reason: str | None = None
    expires_at: datetime | None = None
    definition_hash: str | None = Field(None, description="Match only this definition of the tool.")
    session: str | None = Field(None, description="Match only in this session.")
    principal: BindingShape | None = Field(None, description="Match only this principal.")
    uses: int | None = Field(None, ge=0, le=MOST_USES, description="The number of calls that it decides.")

    def sent_fields(self) -> JsonObject:
        """Return the fields that were sent, for validation."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class RuleRequest(RuleChanges):
    """A rule to add."""

    effect: RuleEffect | None = Field(...)
    pattern: str | None = Field(..., description="`server/tool` with `*` for any, or the name of a known tool.")


class RuleShape(Shape):
    """One rule."""

    id: str
    effect: RuleEffect
    pattern: str
    conditions: Sequence[ConditionShape] = ()
    where: WhereShape = WhereShape()
    origin: RuleOriginShape
    reason: str = ""
    created_by: str
    created_at: str = ""
    expires_at: str = ""
    definition_hash: str = ""
    session: str = ""
    problems: Sequence[ProblemShape] = ()
    principal: BindingShape | None = None
    uses: int = Field(0, description="The number of calls that it still decides, if it is limited.")


class MarkingCallShape(Shape):
    """A call that set a mark."""

    audit_id: int
    ref: str
    at: str


class MarkShape(Shape):
    """A mark of a conversation, with the first calls that set it."""

    mark: Mark
    calls: list[MarkingCallShape]


class MarkedConversationShape(Shape):
    """A marked conversation: a session, or a caller outside of sessions."""

    conversation: str
    marks: list[MarkShape]


class FlowsShape(Shape):
    """The flows of one tool, or of all that match an entry of a file."""

    pattern: str
    flows: list[Flow]


class ToolFlowsShape(Shape):
    """The flows of all tools that have any, and the entries of the files that set some of them."""

    entries: list[FlowsShape]
    tools: list[FlowsShape]


class RulePresetShape(Shape):
    """A set of rules that is switched on and off as a whole. `suggestedFor` names callers that it would protect."""

    id: str
    name: str
    description: str
    on: bool
    rules: list[RuleShape]
    suggestedFor: list[str] | None = None


class RuleFindingShape(Shape):
    """A problem of a rule, with a narrower proposal if possible."""

    rule: str
    code: str
    severity: FindingSeverity = Field(description="`note`: the rule works as written, but may not mean what it says.")
    message: str
    fix: str
    proposal: RuleShape | None = None


class ReachGroupShape(Shape):
    """Tools with the same access. `tools` has the first names, `count` the number of all."""

    access: Access = Field(description="`may`: some calls run without approval, depending on their arguments.")
    verdicts: list[Verdict]
    reason: str
    rule: str = ""
    count: int
    tools: list[str]


class SubjectReachShape(Shape):
    """What one principal can do with the tools that match a pattern."""

    who: str
    kind: PrincipalKind
    source: Source
    mode: Mode
    agent: str = ""
    counts: dict[Access, int] = Field(description="The number of tools by access.")
    groups: list[ReachGroupShape]


class StepShape(Shape):
    """One step of a decision."""

    step: StepName
    matched: bool
    effect: Effect
    reason: str
    rule: str = ""
    origin: RuleOriginShape = RuleOriginShape(kind="default")


class RepairShape(Shape):
    """One possible change."""

    kind: RepairKind
    change: str
    rule: str = ""


class FlipShape(Shape):
    """Changes that together flip a verdict, and the resulting verdict."""

    changes: list[RepairShape]
    verdict: Verdict


class RecordedShape(Shape):
    """The recorded decision of a call; `uncertain` if the record does not hold all arguments."""

    audit_id: int
    at: str
    decision: str
    rules: list[str]
    uncertain: bool


class ExplanationShape(Shape):
    """Why a tool is visible, needs approval or is refused."""

    verdict: Verdict
    ref: str
    principal: JsonObject
    steps: list[StepShape]
    decided_by: StepShape
    flip: FlipShape | None = None
    nearest: Sequence[str] = ()
    recorded: RecordedShape | None = None
    marks: Sequence[MarkShape] = Field((), description="The marks of the caller's conversation.")


class SimulateRequest(Shape):
    """Rules to simulate: some added, some removed, and a replacement for `toolcrib.toml`."""

    add: list[str | RuleRequest] = Field(
        [], max_length=1000, description="Rules to add; short forms such as `deny github/*` are accepted."
    )
    remove: list[str] = Field([], max_length=1000, description="Ids of rules.")
    file: str | None = Field(None, max_length=1_048_576, description="The text of a file with `[[rules]]`.")
    since: datetime | None = None
    until: datetime | None = None
    limit: int = Field(
        10_000, ge=1, le=MOST_RECORDS, description="The maximum number of records to compare, newest first."
    )
    session: str | None = Field(None, max_length=200, description="Only the calls of this session.")

    @property
    def trial(self) -> Trial:
        """The request as a `Trial`."""
        add = [each if isinstance(each, str) else each.sent_fields() for each in self.add]
        return Trial(add, self.remove, self.file, self.since, self.until, self.limit, session=self.session)


class SimulatedShape(Shape):
    """A recorded call that would be decided differently."""

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
    """The result of a simulation; `skipped` calls are of tools that no longer exist."""

    compared: int
    skipped: int
    differences: list[SimulatedShape]


class UsedToolShape(Shape):
    """A tool, and the number of its recorded calls."""

    tool: str
    calls: int


class PermissionSuggestionShape(Shape):
    """The smallest tool permissions that cover what an agent used."""

    agent: str
    version: int = Field(description="The version of the agent that `current` belongs to.")
    tool_permissions: list[str]
    current: list[str] | None = Field(description="The permissions now; `null` is the default set.")
    used: list[UsedToolShape]
    lost: list[str] = Field(description="The first of the tools that the agent would no longer see.")
    lost_count: int
    simulation: SimulationShape


class RemarkShape(Shape):
    """A remark on a value that a reviewer should know."""

    pointer: str
    message: str


class ShownArgumentShape(Shape):
    """One argument for display; the console collapses a long one."""

    name: str
    text: str
    characters: int
    collapsed: bool
    digest: str


class ShownShape(Shape):
    """The full arguments for display, with hidden characters made visible."""

    text: str
    hidden: int
    characters: int
    remarks: list[RemarkShape]
    arguments: list[ShownArgumentShape]


class PrefixShape(Shape):
    """A broader rule that can be chosen instead of the exact one, by the answer's `prefix`."""

    prefix: str
    sentence: str
    conditions: Sequence[ConditionShape] = ()


class ProposedShape(Shape):
    """The rule that an answer creates, as data and as a sentence."""

    rule: JsonObject
    sentence: str
    prefixes: Sequence[PrefixShape] = ()


class RememberShape(Shape):
    """The rules that answers of one scope create, by decision."""

    approve: ProposedShape
    deny: ProposedShape


class RememberAsShape(Shape):
    """The rules that answers beyond a single call create, by scope; empty if only `once` is possible."""

    session: RememberShape | None = None
    always: RememberShape | None = None


class ApprovalLinkShape(Shape):
    """A one-time link that answers an approval."""

    approval_id: str
    url: str
    expires_at: str


class ApprovalShape(Shape):
    """An approval for one call; `rule` is the rule that its answer created."""

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
    remember_as: RememberAsShape | None = None
    once_only: str = Field("", description="Why only this call can be approved.")
    marks: Sequence[MarkShape] = Field((), description="The marks of the caller's conversation.")


class AnswerRequest(Shape):
    """The answer to an approval. `arguments` replace those of the call."""

    decision: Verb
    scope: Scope = "once"
    prefix: str | None = Field(None, max_length=5000, description="One of the prefixes that `rememberAs` proposes.")
    reason: str | None = Field(None, max_length=2000, description="Shown to the model if the call is denied.")
    arguments: JsonObject | None = None
    conditions: list[ConditionShape] | None = Field(
        None, description="Edited conditions of the rule; each proposed argument keeps one."
    )
    uses: int | None = Field(None, ge=1, le=MOST_USES, description="The rule decides this many further calls.")
    expires_at: AwareDatetime | None = Field(None, description="When the rule ends.")

    @property
    def limits(self) -> JsonObject:
        """The limits of the rule that were sent, as they are recorded."""
        sent = {"conditions", "uses", "expires_at"}
        return self.model_dump(mode="json", by_alias=True, include=sent, exclude_none=True)

    @property
    def edited(self) -> list[JsonObject] | None:
        """The edited conditions."""
        return self.limits.get("conditions")


class BundleFields(Shape):
    """The fields of a bundle."""

    name: _Name
    tools: _Patterns
    description: str = Field("", max_length=2000)
    prompt: str = Field("", max_length=20_000, description="Added to the prompt of agents that have the bundle.")


class BundleRequest(BundleFields):
    """A bundle to create."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")


class BundleShape(Shape):
    """Tools that are granted together; a `preset` comes with Toolcrib and cannot be changed."""

    id: str
    name: str
    description: str
    tools: list[str]
    prompt: str
    preset: bool


class RemovedShape(Shape):
    """The id of a removed object."""

    id: str


class ProjectFields(Shape):
    """The settings of a project."""

    agent_id: _Name | None = None
    bundles: list[_Name] = Field([], max_length=100)


class ProjectRequest(ProjectFields):
    """A project to configure."""

    path: str = Field(min_length=1, max_length=4096)


class ProjectShape(Shape):
    """A project; `trusted` is whether the owner trusts the servers that its files define."""

    path: str
    trusted: bool
    agent_id: str = ""
    bundles: list[str]


class TokenRequest(Shape):
    """A token to create."""

    name: str = Field(min_length=1, max_length=200)
    agent: _Name | None = None
    source: Source = "ide"
    mode: Mode | None = Field(None, description="`acceptEdits` for source `ide` by default, otherwise `default`.")
    may_approve: bool = Field(default=False, description="Whether it may approve its own calls, once.")
    may_remember: bool = Field(default=False, description="Whether its approvals may create rules.")


class TokenShape(Shape):
    """A named token, without its secret. A later token of the same name has another `id`."""

    name: str
    id: str
    source: Source
    mode: Mode
    may_approve: bool
    may_remember: bool = False
    created_at: str
    agent: str = ""
    level: Level | None = None
    revoked_at: str = ""


class NewToken(TokenShape):
    """A new token; its secret cannot be retrieved again."""

    secret: str


class DifferenceShape(Shape):
    """One difference between two definitions of a tool."""

    kind: DifferenceKind
    name: str
    before: Any
    after: Any


class ChangeShape(Shape):
    """A definition that is held back until the owner accepts it, identified by `hash`.

    `what` is the kind of definition. For instructions, `ref` is the server itself.
    """

    ref: str
    server: str
    what: PinKind
    tool: str
    hash: str
    since: str
    rejected_by: str = ""
    kind: ChangeKind
    differences: list[DifferenceShape]
    problems: list[ProblemShape]


class JudgeRequest(Shape):
    """The definition to accept or reject; without a hash, the held one or else the current one.

    `what` is the kind of definition. For instructions, the path has `instructions` in place of a tool.
    """

    hash: str | None = Field(None, max_length=64)
    what: PinKind = "tool"


class JudgedShape(Shape):
    """A definition and the decision on it."""

    ref: str
    what: PinKind = "tool"
    hash: str
    verdict: str
