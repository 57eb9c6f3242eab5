"""The shapes of REST answers and requests, in camelCase: what product and clients agreed on.

Values are made by the `to_json` of the nouns; these models check them on the way out and describe them.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from toolcrib.model.json import JsonObject


class Shape(BaseModel):
    """A shape with camelCase names and no others."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class ProblemDetails(Shape):
    """A failure, as RFC 9457 has it, with a code for programs and a hint for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str = Field(default="", description="What to do next; absent where there is nothing to say.")
    errors: list[dict[Literal["path", "message"], str]] = Field(
        default=[], description="The wrong fields, each with its place; absent where it is not about fields."
    )


class ProblemShape(Shape):
    """Something a person should mend."""

    code: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0


class MarksShape(Shape):
    """What a tool's owner says about it."""

    read_only: bool
    destructive: bool
    privileged: bool
    scheduler_blocked: bool


class ToolShape(Shape):
    """One tool, as the asker sees it."""

    ref: str = Field(description="`server/tool`")
    server: str
    name: str
    exposed_name: str = Field(description="The name on the MCP endpoint, or in the form that was asked for.")
    title: str = ""
    description: str
    input_schema: JsonObject
    marks: MarksShape
    problems: list[ProblemShape]


class CallRequest(Shape):
    """What a tool is called with."""

    arguments: JsonObject = {}


class CallAnswer(Shape):
    """What a call gave back; a failure of the tool is an answer with `isError`."""

    is_error: bool
    content: list[JsonObject]
    structured_content: Any = None
    duration_ms: float
    audit_id: int


class SettingShape(Shape):
    """One setting, its value and where that comes from."""

    name: str
    value: Any
    origin: str
    help: str


class LoginAnswer(Shape):
    """A link that opens the console once."""

    url: str


AuditPhase = Literal["intent", "outcome"]


class AuditRecordShape(Shape):
    """One record of the audit chain, as it was written; of a damaged one only number and hash can be told."""

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
    is_error: bool = False
    duration_ms: float = 0.0
    prev: str = ""
    hash: str


class AgeRequest(Shape):
    """What is older than so many days."""

    older_than_days: float = Field(ge=0, le=36_500)


class SegmentShape(Shape):
    """Records that left the database for a file: from `first` to `last`, `hash` being that of the last."""

    first: int
    last: int
    prev: str
    hash: str
    file: str
    sha256: str
    sealed_at: str
    erased_at: str = ""


class FindingShape(Shape):
    """Something that is wrong with the chain."""

    code: str
    kind: str
    message: str
    record: int = 0


class VerificationShape(Shape):
    """What checking the whole chain gave."""

    ok: bool
    records: int
    findings: list[FindingShape]
