"""The shapes of `/api/servers`."""

from typing import Literal

from pydantic import Field

from toolcrib.base.network.host_proxy import MAX_HOSTS
from toolcrib.model.json import JsonObject
from toolcrib.model.sandbox import SandboxNetwork, SandboxProfile
from toolcrib.model.servers import Scope, ServerState, ServerType, Share
from toolcrib.web.api.shapes import ProblemShape, Shape

NAME_LIMIT = 500
TEXT_LIMIT = 1_048_576


class SourceShape(Shape):
    """A place that defines a server."""

    client: str
    scope: Scope
    file: str
    line: int | None = None


class RefusedShape(Shape):
    """Something that the sandbox refused."""

    kind: Literal["read", "write", "network", "host"]
    target: str = Field(description="The path or the host; empty if it is not known.")


class LearnedShape(Shape):
    """What the profile `learn` recorded. Everything in it is the server's own doing."""

    proposal: JsonObject = Field(description="The request that allows what was recorded, except credentials.")
    hosts: list[str] = Field(description="Hosts that it reached through the proxy.")
    direct: list[str] = Field(description="Addresses that it reached without the proxy: a list of hosts stops these.")
    sockets: list[str] = Field(description="Local sockets that it connected to.")
    credentials: list[str] = Field(description="Files that look like credentials; not in the proposal.")
    left_out: int = Field(description="Names that cannot be shown, or did not fit.")
    recorded: int = Field(description="The number of recorded system calls.")


class SandboxShape(Shape):
    """What a stdio server may touch."""

    profile: SandboxProfile
    chosen: bool = Field(description="Whether the owner set it; otherwise it is the default.")
    read: list[str] = Field(description="Paths that the owner also allows to read.")
    write: list[str] = Field(description="Paths that the owner also allows to write.")
    network: SandboxNetwork
    hosts: list[str] = Field(description="The hosts that the server reaches if `network` is `hosts`.")
    refused: list[RefusedShape] = Field([], description="What it refused since the server was last changed.")
    learned: LearnedShape | None = Field(None, description="Only with the profile `learn`.")


class ServerShape(Shape):
    """One server with every place that defines it; secrets in `definition` are masked."""

    name: str
    alias: str = Field(description="The safe, unique name: used in paths, in `server/tool` and in exposed names.")
    type: ServerType | None
    state: ServerState
    label: str = Field(description="The state for people; a failure is `Setup problem` or `Can't reach`.")
    enabled: bool
    trusted: bool
    sources: list[SourceShape]
    shadowed_by: str = ""
    same_as: list[str]
    problems: list[ProblemShape]
    tools: int
    sentence: str = Field("", description="The state in one sentence.")
    action: str = Field("", description="The command to run next.")
    latency_ms: float = 0.0
    last_error: str = ""
    last_error_code: str = ""
    exit_code: int = Field(0, description="The last exit code of its process.")
    stderr: list[str] = Field([], description="The last lines of its standard error.")
    protocol_version: str = ""
    server_title: str = ""
    pid: int = 0
    retry_at: float = Field(0.0, description="The time of the next attempt, as a Unix timestamp.")
    definition: JsonObject
    sandbox: SandboxShape | None = Field(None, description="Absent for a remote or invalid server.")


class SignInError(Shape):
    """Why a sign-in failed."""

    code: str
    message: str
    hint: str | None


class SignInShape(Shape):
    """A sign-in: the URL to open and its state."""

    state: Literal["waiting", "done", "failed"]
    url: str
    redirect_uri: str
    error: SignInError | None = None


class SignInRequest(Shape):
    """A request to start a sign-in, to repeat it, or to complete it with the URL that the browser ended at."""

    again: bool = False
    answer: str | None = Field(None, max_length=TEXT_LIMIT)


class ValueOriginShape(Shape):
    """The origin of one value of a definition; the value is masked."""

    key: str
    value: str
    origin: str


class WarningShape(Shape):
    """Something a definition can do that is not obvious from it."""

    code: str
    message: str
    grave: bool


class RevealedShape(Shape):
    """One thing that a server takes from this machine; a grave one needs separate consent."""

    kind: Literal["variable", "file", "command", "credential"]
    name: str
    field: str = Field(description="The key of the definition that uses it.")
    grave: bool
    inside: bool | None = Field(
        default=None, description="For a project's file: whether the path is inside the project."
    )


class QuestionShape(Shape):
    """What the user agrees to by trusting a server."""

    name: str
    type: ServerType
    place: str
    command_line: str | None
    program: str | None
    cwd: str | None
    url: str | None
    env: list[str] = Field(description="The names of its environment variables.")
    headers: list[str] = Field(description="The names of its headers.")
    warnings: list[WarningShape]
    digest: str
    resolves: list[RevealedShape] = Field(description="All local values that the server receives.")
    needs_second_yes: bool = Field(description="Whether trusting requires `allowSecrets`.")
    auth: JsonObject | None = Field(description="How it signs in, without its secret.")
    sandbox: JsonObject | None = Field(
        description="`profile`, `enforced` on this system, and a `sentence`; null for a remote server."
    )


class ServerDetails(ServerShape):
    """One server in full."""

    origins: list[ValueOriginShape]
    question: QuestionShape | None


class EditShape(Shape):
    """A change to a file; secrets in `diff` are masked."""

    file: str
    changed: bool
    diff: str
    dry_run: bool


class ChangedServer(ServerShape):
    """A server after a change, and the change."""

    change: EditShape


class RemovedServer(Shape):
    """A removed server, its other names, which were removed with it, and the change."""

    name: str
    same_as: list[str]
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


class RegistryOrigin(Shape):
    """The published server that a definition was installed from."""

    name: str = Field(max_length=NAME_LIMIT)
    version: str = Field(max_length=255)


class DefinitionShape(Shape):
    """A definition in our file format; its consistency is validated like that of any other file."""

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
    registry: RegistryOrigin | None = None

    def entry(self) -> JsonObject:
        """Return the entry for the file: the given fields, in the order of the model."""
        fields = set(DefinitionShape.model_fields)
        return self.model_dump(by_alias=True, exclude_none=True, include=fields)


class AddRequest(DefinitionShape):
    """A new server."""

    name: str = Field(max_length=NAME_LIMIT)
    scope: Literal["user", "project"] = "user"


class SandboxRequest(Shape):
    """A change of a server's sandbox; what is absent stays."""

    profile: SandboxProfile | None = None
    read: list[str] = Field([], description="Absolute paths to allow reading, besides those allowed already.")
    write: list[str] = Field([], description="Absolute paths to allow writing, besides those allowed already.")
    network: bool | None = Field(None, description="All of the network or none of it, whatever the list of hosts.")
    hosts: list[str] = Field(
        [],
        max_length=MAX_HOSTS,
        description="Hosts to allow besides those allowed already: `name`, `*.name` or an address, also with `:port`.",
    )
    removed: list[str] = Field([], description="Paths and hosts that are no longer allowed.")
    unconfined: bool = Field(False, description="Confirms that `learn` runs the server without its sandbox.")


class ImportRequest(Shape):
    """Which servers of other apps to import, which trusts them; all if none is named."""

    names: tuple[str, ...] = ()
    dry_run: bool = False
    digests: list[str] | None = Field(
        default=None, description="The digests of the reviewed definitions; others are rejected."
    )


class ExportRequest(Shape):
    """Which of our servers to write into that app's file."""

    names: tuple[str, ...] = ()
    dry_run: bool = False
    client: str
    scope: Literal["user", "project"] = "user"


class MovedShape(Shape):
    """One server of an import or export; `reason` is why it was skipped."""

    name: str
    from_: JsonObject = Field(alias="from")
    problems: list[ProblemShape]
    reason: str = ""
    question: QuestionShape | None = Field(
        default=None, description="The trust question, if the server is not trusted yet."
    )


class TransferShape(Shape):
    """What was taken, what was skipped and why."""

    taken: list[MovedShape]
    skipped: list[MovedShape]
    change: EditShape | None


class ExportShape(Shape):
    """A file of an app, with values as written."""

    client: str
    text: str
    servers: list[str]
    problems: list[ProblemShape]


class UndoRequest(Shape):
    """The file whose last change to undo; if absent, the last change of any file."""

    file: str | None = None


class TextRequest(Shape):
    """Pasted text."""

    text: str = Field(max_length=TEXT_LIMIT)


class ProposalShape(Shape):
    """A recognized server; `definition` is in our own format."""

    name: str
    definition: JsonObject
    question: QuestionShape
    problems: list[ProblemShape]


class RecognisedShape(Shape):
    """The servers recognized in a text."""

    servers: list[ProposalShape]
    problems: list[ProblemShape]


class TrustRequest(Shape):
    """A project directory, or a file of the user. `digests` are those of the definitions that were shown."""

    path: str = Field(max_length=4096)
    digests: list[str] | None = None
    allow_secrets: bool = Field(default=False, description="Confirms the grave entries of `resolves`.")
    dry_run: bool = Field(default=False, description="Return the trust question, without trusting.")


class RecordedCallRequest(Shape):
    """A call whose result is recorded."""

    tool: str = Field(max_length=NAME_LIMIT)
    arguments: JsonObject = Field(default_factory=dict)


class RecordRequest(Shape):
    """What to record of a server besides what it offers."""

    calls: list[RecordedCallRequest] = Field([], max_length=1000)


class PathRequest(Shape):
    """A project directory, or a file of the user."""

    path: str = Field(max_length=4096)
