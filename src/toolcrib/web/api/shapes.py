"""The shapes of REST requests and responses, in camelCase.

The values come from the `to_json` of the domain objects; these models validate and document them.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from toolcrib.model.json import JsonObject


class Shape(BaseModel):
    """A shape with camelCase names that forbids unknown fields."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class ProblemDetails(Shape):
    """An error in RFC 9457 format, with a code for programs and a hint for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str = Field(default="", description="The next step, if there is one.")
    errors: list[dict[Literal["path", "message"], str]] = Field(default=[], description="The invalid fields, if any.")


class ProblemShape(Shape):
    """A problem that the user should fix."""

    code: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    place: str = Field(default="", description="The path of the text in a definition; only in findings of the lint.")
    start: int = Field(default=0, description="The first character of the finding in that text.")
    end: int = Field(default=0, description="The end of the finding in that text.")
    severity: Literal["hold", "warn"] = Field(default="hold", description="`hold` keeps new text back.")


class MarksShape(Shape):
    """The marks that a tool's owner sets."""

    read_only: bool
    destructive: bool
    privileged: bool
    scheduler_blocked: bool


class ListedShape(Shape):
    """The texts of a tool as MCP clients and sessions list them."""

    description: str
    input_schema: JsonObject


class ToolShape(Shape):
    """One tool, as the principal sees it."""

    ref: str = Field(description="`server/tool`")
    server: str
    name: str
    exposed_name: str = Field(description="The exposed name, by default that of the MCP endpoint.")
    title: str = ""
    description: str
    input_schema: JsonObject
    marks: MarksShape
    problems: list[ProblemShape]
    purpose: str = Field(default="", description="With `q`: the description in one line.")
    signature: str = Field(default="", description="With `q`: the arguments as a Python signature.")
    score: float = Field(default=0.0, description="With `q`: 1 is an exact name, lower is less certain.")
    listed: ListedShape | None = Field(default=None, description="Of one tool: its shortened form, if it has one.")


class FoundToolsShape(Shape):
    """The tools that match a query, best first."""

    tools: list[ToolShape]
    hint: str = Field(default="", description="If nothing matches: the servers, and how to ask.")


class ToolCostShape(Shape):
    """The estimated tokens of one definition, and its calls."""

    ref: str
    tokens: int
    calls: int
    saved: int = Field(description="Tokens that its shortened description saves.")


class ServerCostShape(Shape):
    """The sums of one server: `used` is the number of tools with calls."""

    server: str
    tools: int
    tokens: int
    used: int
    calls: int


class CostSuggestionShape(Shape):
    """A change that saves tokens."""

    kind: str = Field(description="`search`: use search mode; `hide`: hide unused tools; `shorten`: shorten texts.")
    saves: int = Field(description="Estimated tokens.")
    message: str
    server: str = ""
    tools: list[str] = []


class CostShape(Shape):
    """What the principal's tools cost a client that lists all of them."""

    estimate: bool = Field(description="Always true: token counts are estimates.")
    method: str
    days: int = Field(description="The days whose calls are counted.")
    tokens: int
    search_tokens: int = Field(description="What search mode costs instead.")
    servers: list[ServerCostShape]
    tools: list[ToolCostShape]
    suggestions: list[CostSuggestionShape]


class CallRequest(Shape):
    """The arguments of a tool call."""

    arguments: JsonObject = {}


class CallAnswer(Shape):
    """The result of a call; a failure of the tool is a result with `isError`."""

    is_error: bool
    content: list[JsonObject]
    structured_content: Any = None
    duration_ms: float
    audit_id: int


class SettingShape(Shape):
    """One setting, its value and its origin."""

    name: str
    value: Any
    origin: str
    help: str


class LoginAnswer(Shape):
    """A link that opens the console once."""

    url: str


AuditPhase = Literal["intent", "outcome", "checkpoint"]


class AuditRecordShape(Shape):
    """One record of the audit chain, as written; a damaged one has only its number and hash."""

    model_config = ConfigDict(extra="allow")

    id: int
    at: str = ""
    phase: AuditPhase = "intent"
    door: str = ""
    principal: JsonObject = {}
    server: str = ""
    tool: str = ""
    definition_hash: str | None = None
    arguments_digest: str = ""
    arguments: Any = None
    decision: str = ""
    rules: list[str] = []
    rules_version: str = ""
    approval_id: str = ""
    marks: dict[str, list[int]] = Field({}, description="The marks that a rule tested, with the calls that set them.")
    set_marks: list[str] = Field([], description="The marks that the call set.")
    is_error: bool = False
    duration_ms: float = 0.0
    prev: str = ""
    hash: str


class AgeRequest(Shape):
    """A minimum age in days."""

    older_than_days: float = Field(ge=0, le=36_500)


class SegmentShape(Shape):
    """Records in a sealed file, from `first` to `last`; `hash` is that of the last."""

    first: int
    last: int
    prev: str
    hash: str
    file: str
    sha256: str
    sealed_at: str
    erased_at: str = ""


class ChainFindingShape(Shape):
    """A problem of the chain."""

    code: str
    kind: str
    message: str
    record: int = 0


class VerificationShape(Shape):
    """The result of verifying the whole chain."""

    ok: bool
    records: int
    findings: list[ChainFindingShape]
    signed: bool
    anchors: int
    note: str = ""


class AnchorShape(Shape):
    """The end of the chain at a moment, to be kept elsewhere."""

    toolcrib_anchor: int
    crib: str
    number: int
    hash: str
    records: int
    at: str
    signature: str = ""


class AnchorRequest(Shape):
    """Where to write an anchor: an absolute path, a URL, or `git:` and an absolute path; nowhere if absent."""

    to: str | None = Field(None, max_length=4096)


class VerifyRequest(Shape):
    """Anchors to verify the chain against, and places to read more of them from."""

    anchors: list[JsonObject] = Field(default_factory=list[JsonObject], max_length=100_000)
    sources: list[str] = Field(default_factory=list[str], max_length=100)
