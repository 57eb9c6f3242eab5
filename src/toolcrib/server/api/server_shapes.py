"""The shapes of `/api/servers`: what is asked and answered about server definitions."""

from typing import Literal

from pydantic import Field

from toolcrib.model.json import JsonObject
from toolcrib.model.servers import Scope, ServerState, ServerType, Share
from toolcrib.server.api.shapes import ProblemShape, Shape

NAME_LIMIT = 500
TEXT_LIMIT = 1_048_576


class SourceShape(Shape):
    """A place where a definition stands."""

    client: str
    scope: Scope
    file: str
    line: int | None = None


class ServerShape(Shape):
    """One server, with every place that defines it; secrets in `definition` are masked."""

    name: str
    alias: str = Field(description="The safe, unique name: used in paths, in `server/tool` and in exposed names.")
    type: ServerType | None
    state: ServerState
    enabled: bool
    trusted: bool
    sources: list[SourceShape]
    shadowed_by: str = ""
    same_as: list[str]
    problems: list[ProblemShape]
    tools: int
    sentence: str = Field("", description="What is so, in a sentence.")
    action: str = Field("", description="The one command to run next.")
    latency_ms: float = 0.0
    last_error: str = ""
    exit_code: int = Field(0, description="Of its process, when it last ended.")
    stderr: list[str] = Field([], description="The last lines that its process wrote to standard error.")
    protocol_version: str = ""
    server_title: str = ""
    pid: int = 0
    retry_at: float = Field(0.0, description="When it is tried again, in seconds of the system's clock.")
    definition: JsonObject


class SignInError(Shape):
    """Why a sign-in did not work."""

    code: str
    message: str
    hint: str | None


class SignInShape(Shape):
    """A sign-in: the address for the browser, and where it stands."""

    state: Literal["waiting", "done", "failed"]
    url: str
    redirect_uri: str
    error: SignInError | None = None


class SignInRequest(Shape):
    """Begin a sign-in, again although signed in, or hand in the address that a browser elsewhere ended at."""

    again: bool = False
    answer: str | None = Field(None, max_length=TEXT_LIMIT)


class OriginShape(Shape):
    """Where one value of a definition comes from; the value is masked."""

    key: str
    value: str
    origin: str


class WarningShape(Shape):
    """Something that a definition can do and does not show."""

    code: str
    message: str
    grave: bool


class QuestionShape(Shape):
    """What a person agrees to by trusting a server."""

    name: str
    type: ServerType
    place: str
    command_line: str | None
    program: str | None
    cwd: str | None
    url: str | None
    env: list[str] = Field(description="Names of the variables it gets.")
    headers: list[str] = Field(description="Names of the headers it is sent.")
    warnings: list[WarningShape]
    digest: str


class ServerDetails(ServerShape):
    """One server in full."""

    origins: list[OriginShape]
    question: QuestionShape | None


class EditShape(Shape):
    """What happened to a file; secrets in `diff` are masked."""

    file: str
    changed: bool
    diff: str
    dry_run: bool


class ChangedServer(ServerShape):
    """A server after a change, and the change."""

    change: EditShape


class RemovedServer(Shape):
    """The name of a server that is no longer listed, and the change."""

    name: str
    change: EditShape


class ToolGlobs(Shape):
    """Which of a server's tools are offered."""

    allow: list[str] | None = None
    deny: list[str] | None = None


class AuthFields(Shape):
    """How to sign in."""

    type: Literal["oauth"] = "oauth"
    credential_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    scopes: list[str] | None = None


class Definition(Shape):
    """A definition as it stands in our file; whether its fields fit together is judged like any other file's."""

    type: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    env_file: str | None = None
    cwd: str | None = Field(default=None, description="The directory the server is started in.")
    url: str | None = None
    headers: dict[str, str] | None = None
    enabled: bool | None = None
    timeout: int | None = Field(default=None, ge=0, le=2**53, description="Milliseconds.")
    auth: AuthFields | None = None
    tools: ToolGlobs | None = None
    share: Share | None = None

    def entry(self) -> JsonObject:
        """The entry for the file: what was given, in the order of the fields."""
        fields = set(Definition.model_fields)
        return self.model_dump(by_alias=True, exclude_none=True, include=fields)


class AddRequest(Definition):
    """A new server."""

    name: str = Field(max_length=NAME_LIMIT)
    scope: Literal["user", "project"] = "user"


class ImportRequest(Shape):
    """Which servers of other tools to take over; all if none is named."""

    names: tuple[str, ...] = ()
    dry_run: bool = False


class ExportRequest(ImportRequest):
    """Which of our servers to write into that client's file."""

    client: str
    scope: Literal["user", "project"] = "user"


class MovedShape(Shape):
    """One server of an import or export; `reason` says why it was skipped."""

    name: str
    from_: JsonObject = Field(alias="from")
    problems: list[ProblemShape]
    reason: str = ""


class TransferShape(Shape):
    """What was taken, what was skipped and why."""

    taken: list[MovedShape]
    skipped: list[MovedShape]
    change: EditShape | None


class ExportShape(Shape):
    """A file of a client, with values as they were written."""

    client: str
    text: str
    servers: list[str]
    problems: list[ProblemShape]


class UndoRequest(Shape):
    """Whose last change to take back; without a file, the last one of all."""

    file: str | None = None


class TextRequest(Shape):
    """A text from the clipboard."""

    text: str = Field(max_length=TEXT_LIMIT)


class ProposalShape(Shape):
    """A server that was recognised; `definition` is what the text says, in our own format."""

    name: str
    definition: JsonObject
    question: QuestionShape
    problems: list[ProblemShape]


class RecognisedShape(Shape):
    """What a text holds."""

    servers: list[ProposalShape]
    problems: list[ProblemShape]


class TrustRequest(Shape):
    """A project's directory, or a file of the person. `digests` are those of the questions that were shown."""

    path: str = Field(max_length=4096)
    digests: list[str] | None = None
    dry_run: bool = Field(default=False, description="Only tell what would have to be agreed to.")


class PathRequest(Shape):
    """A project's directory, or a file of the person."""

    path: str = Field(max_length=4096)
