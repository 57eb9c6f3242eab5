"""Errors that Toolcrib raises on purpose.

The class determines who has to act, `code` identifies the failure, `hint` is the next step. Must never branch on the
message.

    ToolcribError
    ├── ConfigError      the owner fixes a file or a setting
    ├── InvalidRequest   the caller changes the request
    ├── Unauthenticated  the caller sends a credential
    ├── NotFound         the caller names something that exists
    ├── Denied           a person changes a rule, or the caller does without
    ├── Conflict         the caller reads again, then retries
    └── Unavailable      a person starts, frees or repairs something

Each entry point translates errors once: `web.problems` (problem+json), `web.mcp` (JSON-RPC errors and error results),
`cli.output` (exit codes). The reference page is generated from `CODES`; a test compares code, table and page.
"""

from dataclasses import dataclass
from typing import ClassVar


class ToolcribError(Exception):
    """Base class: a stable code, a message for people and, if known, the next step."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self._hint = hint

    @property
    def hint(self) -> str | None:
        """The hint of this error, or the default hint of its code."""
        return self._hint or CODES[self.code].hint

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return CODES[self.code].status


class ConfigError(ToolcribError):
    """A file or setting of the owner is invalid."""


class InvalidRequest(ToolcribError):
    """The request is invalid."""

    exit_code = 2


class Unauthenticated(ToolcribError):
    """The credential is missing or wrong."""

    exit_code = 4


class NotFound(ToolcribError):
    """The named thing does not exist, or is not visible to the caller."""

    exit_code = 3


class Denied(ToolcribError):
    """A rule, a mode or a person denied the request."""

    exit_code = 4


class Conflict(ToolcribError):
    """The state changed since the caller read it, or the name is taken."""


class Unavailable(ToolcribError):
    """A required component is not available right now."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Code:
    """One row of the table: exception class, HTTP status, meaning and default hint."""

    raised_as: type[ToolcribError]
    status: int
    meaning: str
    hint: str | None = None


CODES: dict[str, Code] = {
    "cli.usage": Code(InvalidRequest, 400, "The command line is invalid.", "Run the command with `--help`."),
    "settings.invalid": Code(ConfigError, 422, "A setting has an invalid value.", "Run `toolcrib settings` to see each value and its origin."),
    "settings.unknown": Code(ConfigError, 422, "A key in `toolcrib.toml` is not a setting.", "Run `toolcrib settings` to see all settings."),
    "home.unsafe": Code(ConfigError, 503, "The home belongs to another user or is not a directory.", "Choose another home with `--home` or `TOOLCRIB_HOME`."),
    "home.token": Code(ConfigError, 503, "The token file in the home is damaged.", "Delete the file; the next start creates a new token."),
    "home.busy": Code(Unavailable, 503, "Another process holds this home and does not respond.", "Stop that process, or choose another home with `--home`."),
    "bind.refused": Code(ConfigError, 503, "Listening on an address that other machines can reach is not safe with these settings.", "Use 127.0.0.1, or add `--tls-cert` and `--tls-key`, or `--behind-proxy` with the addresses of your proxy."),
    "node.secret": Code(ConfigError, 503, "The node secret is missing, not private, or differs from that of the cluster.", "Use the same file of at least 32 bytes, with mode 0600, on every node."),
    "node.unknown": Code(NotFound, 404, "No node has this name.", "Run `toolcrib nodes` to list them."),
    "node.refused": Code(Denied, 403, "The request of another node is not signed correctly, or was sent before.", "Use the same node secret file on every node, and keep their clocks within a minute."),
    "node.unreachable": Code(Unavailable, 503, "Another node does not respond.", "Try again in a moment, or see `toolcrib nodes`."),
    "node.lost": Code(Unavailable, 503, "This node lost its lease: it could not reach the database.", "Use another node, or wait until this one reaches the database again."),
    "bind.occupied": Code(Unavailable, 503, "The port is already in use.", "Choose another port with `--port` or `TOOLCRIB_PORT`."),
    "crib.running": Code(Unavailable, 503, "A crib is already running on this home.", "Use the running crib, or stop it first."),
    "crib.unreachable": Code(Unavailable, 503, "The running crib does not respond.", "Restart it with `toolcrib serve`."),
    "crib.closed": Code(Unavailable, 503, "The crib is shutting down.", "Restart it with `toolcrib serve`."),
    "crib.stopped": Code(Denied, 403, "The owner stopped all activity; calls and sessions are suspended.", "Resume with `toolcrib resume-all` or in the console."),
    "crib.stopping": Code(Unavailable, 503, "The crib is shutting down and accepts no new calls.", "Try again in a moment."),
    "crib.busy": Code(Unavailable, 503, "The connection limit of the crib is reached.", "Close some connections, or try again in a moment."),
    "database.unavailable": Code(Unavailable, 503, "The database cannot be opened or written.", "Check its path or URL, its permissions and the free disk space."),
    "database.damaged": Code(Unavailable, 503, "The database file is damaged.", "Run `toolcrib doctor`, or restore a backup with `toolcrib restore FILE`."),
    "backup.exists": Code(Conflict, 409, "The backup file already exists.", "Choose another file name."),
    "backup.invalid": Code(InvalidRequest, 422, "The file is not a complete Toolcrib backup.", "Run `toolcrib restore` to list the available backups."),
    "backup.unsupported": Code(InvalidRequest, 422, "Toolcrib cannot back up this database.", "Use the backup tools of the database."),
    "backup.failed": Code(Unavailable, 503, "The backup could not be written or restored.", "Check the path, its permissions and the free disk space."),
    "database.newer": Code(ConfigError, 503, "The database was written by a newer version of Toolcrib.", "Upgrade Toolcrib, or choose another home."),
    "file.unsafe": Code(ConfigError, 503, "A file of the crib is a link, is not a regular file or belongs to another user.", "Move the file away, then restart."),
    "request.malformed": Code(InvalidRequest, 400, "The request body or parameters cannot be parsed.", "Send UTF-8 JSON with `Content-Type: application/json`."),
    "request.invalid": Code(InvalidRequest, 422, "A field of the request has an invalid value.", "Correct the values that the message names."),
    "request.too_large": Code(InvalidRequest, 413, "The request exceeds the size limit.", "Send less data, or raise the limit in the settings."),
    "request.too_slow": Code(InvalidRequest, 408, "The request did not arrive in time.", "Send it again."),
    "request.target_too_long": Code(InvalidRequest, 414, "The request URL is too long.", "Send long values in the body."),
    "request.headers_too_large": Code(InvalidRequest, 431, "The request headers are too many or too large.", "Send fewer or shorter headers."),
    "request.media_type": Code(InvalidRequest, 415, "The request body is not JSON.", "Send `Content-Type: application/json`."),
    "request.stale": Code(Conflict, 412, "The resource was changed since you read it.", "Read it again, then repeat the change."),
    "auth.required": Code(Unauthenticated, 401, "Authentication required.", "Send `Authorization: Bearer …` with the token from the home's `token` file."),
    "auth.invalid": Code(Unauthenticated, 401, "The token is invalid.", "Read the token from the home's `token` file again. If the file was replaced while the crib was running, restart the crib."),
    "auth.owner_local": Code(Denied, 403, "The owner's token is accepted only from the node's own machine.", "Use a named token: `toolcrib tokens create NAME`."),
    "auth.throttled": Code(Unavailable, 429, "Too many invalid tokens.", "Wait a minute, then try again."),
    "auth.login_used": Code(Unauthenticated, 401, "The login link has already been used or has expired.", "Run `toolcrib open`."),
    "host.refused": Code(Denied, 403, "The Host header does not match this crib.", "Use the address that `toolcrib serve` printed."),
    "origin.refused": Code(Denied, 403, "The request comes from another web origin.", "Open the console at the address that `toolcrib serve` printed."),
    "route.unknown": Code(NotFound, 404, "Route not found.", "See `/api/openapi.json`."),
    "route.method": Code(InvalidRequest, 405, "The route does not support this method.", "See `/api/openapi.json`."),
    "internal": Code(Unavailable, 500, "An unexpected error occurred and was logged.", "See the log in the home's `logs` directory."),
    "feed.gone": Code(NotFound, 410, "The requested events are no longer available.", "Read the current state, then resume from its sequence number."),
    "tool.unknown": Code(NotFound, 404, "The tool does not exist or is not visible to the caller.", "Run `toolcrib tools list`."),
    "tool.definition": Code(ConfigError, 422, "The definition of a Python tool is invalid.", "Fix the function named in the message."),
    "tool.server_exists": Code(Conflict, 409, "A server with this name is already registered.", "Choose another name."),
    "tool.module": Code(ConfigError, 422, "A tool module could not be loaded.", "Fix the module; other modules are not affected."),
    "tool.requires": Code(Unavailable, 503, "A service required by the tool is not available.", "Provide the service, then register the tools again."),
    "tool.arguments_invalid": Code(InvalidRequest, 422, "The arguments do not match the tool's schema.", "Correct the named fields and call again."),
    "tool.timeout": Code(Unavailable, 504, "The tool timed out.", "Call again with less to do, or raise the timeout of the tool."),
    "tool.failed": Code(Unavailable, 502, "The tool raised an exception.", "Read the message; the traceback is in the log."),
    "tool.result_invalid": Code(Unavailable, 502, "The tool returned a result that is too large or not JSON.", "Return JSON, or a smaller result."),
    "tool.elsewhere": Code(InvalidRequest, 422, "The coding agent runs this tool itself, so only its sessions can call it.", "Start a session with `toolcrib chat`."),
    "session.unknown": Code(NotFound, 404, "Session not found.", "Run `toolcrib sessions list`."),
    "session.cwd": Code(InvalidRequest, 422, "The working directory of the session does not exist or is not an absolute path.", "Choose another directory."),
    "session.message": Code(InvalidRequest, 422, "The message cannot be sent.", "Send a message of 1 to 1,000,000 characters."),
    "session.too_many": Code(Unavailable, 503, "Session limit reached.", "Wait until a session has ended, or raise `max_sessions`."),
    "session.elsewhere": Code(Conflict, 409, "Another crib on the same database holds this session.", "Use the session there, or close it there first."),
    "session.revoked": Code(Denied, 403, "The token that started the session was revoked.", "Start a new session."),
    "session.limit": Code(Denied, 429, "The session reached its budget or time limit.", "Start a new session, or raise the limit."),
    "runner.missing": Code(Unavailable, 503, "The runtime of the session is not installed.", "pip install 'toolcrib[claude]'"),
    "runner.start": Code(Unavailable, 503, "The runtime of the session could not be started.", "Read the reason; it includes the last output of the runtime."),
    "runner.died": Code(Unavailable, 502, "The runtime of the session exited in the middle of a turn.", "Send the message again; the session continues where it stopped."),
    "runner.failed": Code(Unavailable, 502, "The runtime of the session failed.", "Read the reason, then send the message again."),
    "runner.limit": Code(Denied, 429, "The answer reached a limit of the session.", "Send another message to continue, or raise the limit."),
    "runner.login": Code(Unavailable, 503, "Claude Code is not signed in.", "Run `claude` in a terminal and sign in with `/login`, or set ANTHROPIC_API_KEY and restart the crib."),
    "runner.key": Code(Unavailable, 503, "The API rejected the key or the sign-in of Claude Code.", "Run `claude` in a terminal and sign in with `/login`, or set ANTHROPIC_API_KEY and restart the crib."),
    "runner.credit": Code(Unavailable, 503, "The API account has no credit left.", "Add credit to the API account, then send the message again."),
    "runner.rate": Code(Unavailable, 429, "The rate limit of the API is reached.", "Wait until the limit resets, then send the message again."),
    "runner.overloaded": Code(Unavailable, 503, "The API is overloaded or failed.", "Send the message again in a moment."),
    "runner.unreachable": Code(Unavailable, 503, "The API cannot be reached.", "Check the network, the proxy and ANTHROPIC_BASE_URL, then send the message again."),
    "runner.model": Code(NotFound, 404, "The model does not exist or is not available to this account.", "Choose another model for the session."),
    "runner.invalid": Code(ConfigError, 422, "A runtime in the settings file is invalid.", "Fix its table `[runners.NAME]` in `toolcrib.toml`."),
    "runner.not_listening": Code(Unavailable, 503, "The runtime connects to tools over the network, but this crib does not listen on a port.", "Run `toolcrib serve`, or use the runtime `claude`."),
    "runner.cannot_resume": Code(Unavailable, 503, "The runtime cannot resume a conversation that has ended.", "Start a new session."),
    "runner.unfit": Code(Unavailable, 503, "The program does not support what a session runtime requires.", "Install a newer version of the program."),
    "runner.unknown": Code(NotFound, 404, "Runtime not found.", "Choose an available runtime."),
    "schedule.unknown": Code(NotFound, 404, "Schedule not found.", "Run `toolcrib schedule list`."),
    "schedule.cadence": Code(InvalidRequest, 422, "The time of the schedule is invalid.", "Use five cron fields and a time zone, an interval of at least one minute, or a date and time."),
    "schedule.running": Code(Conflict, 409, "The schedule is already running.", "Wait until the run has ended, or interrupt its session."),
    "schedule.agent": Code(ConfigError, 422, "The agent of the schedule does not exist.", "Choose another agent."),
    "schedule.creator": Code(Denied, 403, "The token that created the schedule was revoked, so the schedule has no permissions.", "Create a new schedule, or remove this one."),
    "schedule.tool": Code(ConfigError, 422, "A tool required by the schedule is not available to its run.", "Grant the tool, or remove it from the schedule."),
    "schedule.server": Code(ConfigError, 422, "The server of a tool required by the schedule is not available.", "Check the server."),
    "question.unknown": Code(NotFound, 404, "Question not found.", "Run `toolcrib approvals list`."),
    "question.answered": Code(Conflict, 409, "The question was already answered or withdrawn.", "No action is needed."),
    "question.answer": Code(InvalidRequest, 422, "The answer does not match the agent's questions.", "Answer each question by its text."),
    "policy.denied": Code(Denied, 403, "A rule, the mode or the schedule denies this call.", "Run `toolcrib why` for the reason, or ask the owner."),
    "approval.required": Code(Denied, 403, "The call requires approval, and no person is available to approve it.", "Call the tool by hand, or in a mode that does not ask."),
    "approval.denied": Code(Denied, 403, "The call was denied, or not approved in time.", "Continue without this call, or ask the person."),
    "approval.unknown": Code(NotFound, 404, "The approval does not exist or is not visible to the caller.", "Run `toolcrib approvals list`."),
    "approval.decided": Code(Conflict, 409, "The approval was already answered, expired or was withdrawn.", "No action is needed; a new call requests a new approval."),
    "approval.not_a_person": Code(Denied, 403, "Only a person can answer this, not a program.", "Answer in the console, or with `toolcrib approvals` or `toolcrib tools`."),
    "approval.mismatch": Code(Denied, 403, "The approval belongs to another call or does not exist.", "Repeat exactly the approved call, or request a new approval."),
    "approval.used": Code(Denied, 403, "The approval was already used or has expired.", "Request a new approval."),
    "approval.scope": Code(InvalidRequest, 422, "The answer cannot be remembered: there is no session, or the arguments are edited, secret or too long.", "Answer `once`, or `always` outside a session."),
    "approval.prefix": Code(InvalidRequest, 422, "The prefix is not one of the proposed prefixes.", "Choose one of `rememberAs`, or omit it for the exact rule."),
    "approval.unseen": Code(InvalidRequest, 422, "Part of the arguments is collapsed and was not opened.", "Expand all arguments, then approve."),
    "approval.once_only": Code(Denied, 403, "This token can only answer `once`; other scopes create a rule.", "Ask the owner to answer, or create the token with `--may-remember`."),
    "approval.link_invalid": Code(Denied, 403, "The approval link is not valid.", "Open the whole link as it was sent, or answer with `toolcrib approvals`."),
    "approval.link_expired": Code(Denied, 403, "The approval link has expired.", "No action is needed; a new call requests a new approval."),
    "approval.no_address": Code(Conflict, 409, "There are no approval links, because no address is configured for them.", "Set `approval_address` in `toolcrib.toml` and restart the crib."),
    "approval.too_many": Code(Denied, 429, "Too many approvals are pending.", "Answer the pending approvals, then call again."),
    "pin.unknown": Code(NotFound, 404, "No definition of this tool is known.", "Run `toolcrib tools changes`."),
    "tool.changed": Code(Denied, 403, "The definition of the tool changed and has not been accepted yet.", "Review the change with `toolcrib tools changes`, then accept or reject it."),
    "tool.hidden_characters": Code(ConfigError, 422, "The tool's definition contains invisible characters.", "Review the definition before you allow the tool."),
    "tool.instructs": Code(ConfigError, 422, "The tool's definition instructs the model to do more than call the tool.", "Review the definition before you allow the tool."),
    "tool.look_alike": Code(ConfigError, 422, "The tool's name looks like the name of another tool.", "Compare the names letter by letter before you allow the tool."),
    "tool.encoded_text": Code(ConfigError, 422, "The tool's definition contains encoded text.", "Review the definition before you allow the tool."),
    "tool.not_plain": Code(ConfigError, 422, "The text of a new argument is more than a plain description.", "Review the change with `toolcrib tools changes`."),
    "tool.names_other_tool": Code(ConfigError, 422, "The tool's definition mentions a tool of another server.", "Review the definition before you allow the tool."),
    "tool.names_credentials": Code(ConfigError, 422, "The tool's definition mentions secrets or files that contain them.", "Review the definition before you allow the tool."),
    "tool.describes_attack": Code(ConfigError, 422, "The tool's definition describes an attack.", "Review the definition before you allow the tool."),
    "tool.promotes_itself": Code(ConfigError, 422, "The tool's definition asks the model to prefer the tool over others.", "Review the definition before you allow the tool."),
    "rule.invalid": Code(InvalidRequest, 422, "The rule is invalid.", "Fix what the message names."),
    "rule.look_alike": Code(ConfigError, 422, "The rule contains a name that looks like another name.", "Compare the names letter by letter."),
    "rule.too_wide": Code(Conflict, 409, "A remembered answer is wider than the call that was approved.", "Run `toolcrib rules check`, then `toolcrib rules narrow ID`."),
    "rule.path_as_text": Code(Conflict, 409, "The rule compares a path as text, so other spellings of the path bypass it.", "Use the test `path`."),
    "rule.expression": Code(Conflict, 409, "The expression of the rule is invalid.", "Change the expression."),
    "rule.matches_nothing": Code(Conflict, 409, "The pattern of the rule matches no known tool.", "Compare the pattern with `toolcrib tools list`."),
    "rule.never_applies": Code(Conflict, 409, "No tool or no caller meets the rule.", "Change or remove the rule."),
    "rule.shadowed": Code(Conflict, 409, "Other rules always decide before this one.", "Change or remove one of the rules."),
    "rule.conflict": Code(Conflict, 409, "An allow rule and a stricter rule overlap in part.", "Limit one of the rules, or leave them: the stricter rule decides."),
    "rule.unknown": Code(NotFound, 404, "Rule not found.", "Run `toolcrib rules list`."),
    "demo.place": Code(Conflict, 409, "The directory for the demo is not empty.", "Choose an empty or a new directory, or none."),
    "rule.exists": Code(Conflict, 409, "A rule with this id already exists.", "Remove that rule first."),
    "rule.of_level": Code(Conflict, 409, "The rule is the access level of an app.", "Connect the app again with another `--level`, or revoke its token."),
    "rule.in_file": Code(Conflict, 409, "The rule is defined in a file and can only be changed there.", "Edit the named file and line."),
    "bundle.unknown": Code(NotFound, 404, "Bundle not found.", "See `/api/bundles`."),
    "bundle.exists": Code(Conflict, 409, "A bundle with this id already exists.", "Choose another id, or change that bundle."),
    "bundle.preset": Code(Conflict, 409, "Built-in bundles cannot be changed.", "Create your own bundle with another id."),
    "project.unknown": Code(NotFound, 404, "This directory is not configured as a project.", "See `/api/projects`."),
    "flow.invalid": Code(ConfigError, 422, "The flows are invalid.", "Fix the named line."),
    "marks.unknown": Code(NotFound, 404, "The conversation has no marks.", "Run `toolcrib rules marks`."),
    "preset.unknown": Code(NotFound, 404, "Rule preset not found.", "Run `toolcrib rules preset`."),
    "limit.invalid": Code(ConfigError, 422, "The limit is invalid.", "Fix the named line."),
    "limit.reached": Code(Denied, 429, "The session reached a limit for this tool.", "Continue without it, or raise the limit."),
    "token.unknown": Code(NotFound, 404, "Token not found.", "Run `toolcrib tokens list`."),
    "token.exists": Code(Conflict, 409, "A token with this name already exists.", "Choose another name, or revoke that token first."),
    "token.rights": Code(InvalidRequest, 422, "These token permissions cannot be combined.", "Use `--may-approve` together with `--may-remember`."),
    "token.name": Code(InvalidRequest, 422, "The token name is invalid.", "Use 1 to 100 letters, digits, `_`, `.` or `-`, and not `owner`."),
    "audit.unavailable": Code(Unavailable, 503, "The audit record could not be written, so the call was not made.", "Free disk space or repair the database, then call again."),
    "audit.anchor": Code(InvalidRequest, 422, "The anchor or its location is invalid.", "Use the full path of a file outside the home, a webhook URL, or `git:` and a repository."),
    "audit.anchor_failed": Code(Unavailable, 503, "The anchor could not be written.", "Check the location named in the message."),
    "audit.unknown": Code(NotFound, 404, "Audit record not found.", "Run `toolcrib audit`."),
    "audit.broken": Code(Conflict, 409, "The audit chain was changed, truncated or reordered.", "Compare the first bad record, named in the message, with a backup."),
    "config.unreadable": Code(ConfigError, 422, "The configuration file cannot be read.", "Fix its permissions or its link."),
    "config.not_a_file": Code(ConfigError, 422, "The configuration file is a directory, pipe or device.", "Replace it with a regular file, or remove it."),
    "config.too_large": Code(ConfigError, 422, "The configuration file is too large.", "Remove content that does not belong in the file."),
    "config.too_many": Code(ConfigError, 422, "More files match a pattern than are read.", "Remove files that are not needed."),
    "server.token_refused": Code(ConfigError, 422, "The server rejected the token in its definition.", "Replace the token in `headers`, then run `toolcrib mcp test` again."),
    "server.misplaced": Code(ConfigError, 422, "The server is defined where its app does not look for it.", "Move it to where the app reads servers."),
    "config.encoding": Code(ConfigError, 422, "The configuration file is not UTF-8.", "Save it as UTF-8."),
    "config.empty": Code(ConfigError, 422, "The configuration file is empty.", "Remove it, or add servers."),
    "config.syntax": Code(ConfigError, 422, "The configuration file has a syntax error.", "Fix the named line."),
    "config.dialect": Code(ConfigError, 422, "The app cannot read its own file.", "Remove what the message names."),
    "config.duplicate_key": Code(ConfigError, 422, "A key appears twice; the last one is used.", "Remove one of them."),
    "config.layout": Code(ConfigError, 422, "The file does not list servers where its app looks for them.", "Move them to the place that the app reads."),
    "config.note": Code(ConfigError, 422, "Toolcrib may interpret part of the file differently than intended.", "Rewrite the part named in the message."),
    "config.link": Code(Denied, 403, "A link points to a file outside the project or owned by another user.", "Edit the target file by hand."),
    "config.changed": Code(Conflict, 409, "Another program changed the file in the meantime.", "Review the file, then repeat the change."),
    "config.locked": Code(Unavailable, 503, "Another process is writing to the same directory.", "Try again."),
    "config.not_writable": Code(ConfigError, 422, "The file cannot be written; nothing was changed.", "Fix its permissions, or edit it by hand."),
    "config.edit": Code(ConfigError, 422, "The file cannot be edited without affecting other parts of it; nothing was changed.", "Edit it by hand."),
    "config.unsupported": Code(InvalidRequest, 422, "The app's file format does not support this.", "Omit `--in-client` to store it in Toolcrib's own file."),
    "config.nothing_to_undo": Code(NotFound, 404, "There is no change to undo.", "Only changes made by Toolcrib can be undone."),
    "server.invalid": Code(InvalidRequest, 422, "The server definition is invalid.", "Fix what the message names."),
    "server.exists": Code(Conflict, 409, "A server with this name already exists in the file.", "Choose another name, or remove the other server first."),
    "server.unknown": Code(NotFound, 404, "Server not found.", "Run `toolcrib mcp list`."),
    "server.foreign": Code(Conflict, 409, "The server is defined in an app's file, so it cannot be replaced here.", "Import it first with `toolcrib mcp import`, or edit that file."),
    "server.name_invalid": Code(InvalidRequest, 422, "The server name is empty, too long or contains invalid characters.", "Use up to 100 letters, digits, `_`, `.` and `-`."),
    "server.built_in": Code(ConfigError, 422, "The entry is built into its app and is not a server to connect to."),
    "server.type_missing": Code(ConfigError, 422, "A URL has no `type`; apps interpret that differently.", "Add a `type`."),
    "server.field_ignored": Code(ConfigError, 422, "Toolcrib and the app treat this field differently."),
    "server.field_unknown": Code(ConfigError, 422, "The field is unknown; it is kept unchanged.", "Check its spelling."),
    "server.value_type": Code(ConfigError, 422, "A value has the wrong type and was converted as far as possible.", "Change it as the message describes."),
    "server.switch_ignored": Code(ConfigError, 422, "The server is disabled in a way that its app ignores.", "Disable it in the app as well."),
    "server.switched_off": Code(ConfigError, 422, "The server is disabled by a setting elsewhere.", "Change the named setting."),
    "server.auto_approve": Code(ConfigError, 422, "The app's own approval list is not applied.", "Use `toolcrib rules allow`."),
    "server.helper": Code(ConfigError, 422, "Toolcrib never runs programs that print headers.", "Write the headers, or use a variable."),
    "server.variable_missing": Code(ConfigError, 422, "A variable used in the definition is not set.", "Set the variable and restart Toolcrib."),
    "server.secret_missing": Code(ConfigError, 422, "A required value could not be resolved.", "Fix the named command or file."),
    "server.own_crib": Code(ConfigError, 422, "The server is this crib itself, so Toolcrib does not connect to it."),
    "server.not_exportable": Code(ConfigError, 422, "Part of the definition is not supported by the other app's format.", "Add it there by hand."),
    "tool.upstream": Code(ConfigError, 422, "The server's tool definition cannot be passed on unchanged.", "Report this to the developers of the server."),
    "server.look_alike": Code(ConfigError, 422, "The server's name looks like the name of another server.", "Compare the names letter by letter before you trust the server."),
    "server.offer": Code(Unavailable, 502, "The server's tools, prompts or resources could only be read in part.", "Report this to the developers of the server."),
    "server.untrusted": Code(Denied, 403, "The server is not trusted yet.", "Review it, then run `toolcrib mcp trust`."),
    "server.reveals_secrets": Code(Denied, 403, "A project's server uses credentials or files that have not been approved for it.", "Review them, then approve with `toolcrib mcp trust --allow-secrets`."),
    "server.failed": Code(Unavailable, 502, "The connection to the server failed.", "Read the reason; `toolcrib mcp get` shows the full definition."),
    "server.not_checked": Code(Unavailable, 503, "The server has not been checked yet.", "Run `toolcrib mcp test` with its name."),
    "server.disabled": Code(Conflict, 409, "The server is disabled.", "Run `toolcrib mcp enable` with its name first."),
    "server.shadowed": Code(Conflict, 409, "The server is shadowed by another definition with the same name.", "Run `toolcrib mcp get` with its name to see which one is used."),
    "oauth.none": Code(NotFound, 404, "No sign-in to this server is in progress.", "Run `toolcrib mcp auth` with its name."),
    "oauth.signed_in": Code(Conflict, 409, "Already signed in to this server.", "Run `toolcrib mcp reauth` to sign in again."),
    "url.refused": Code(InvalidRequest, 422, "The URL is not allowed: its scheme, format or host.", "Use an https URL; plain http is only for servers on this machine."),
    "address.refused": Code(Denied, 403, "The host name resolves to an address on this machine or network that is not allowed.", "If this is intended, add the server to your own configuration."),
    "oauth.required": Code(Unavailable, 503, "The server requires sign-in.", "Run `toolcrib mcp auth` with the server's name."),
    "oauth.timeout": Code(Unavailable, 504, "The sign-in timed out.", "Start it again, and complete it in the browser."),
    "oauth.failed": Code(Unavailable, 502, "The sign-in was denied or failed.", "Read the reason, then start it again."),
    "oauth.storage": Code(ConfigError, 503, "The stored sign-ins cannot be read or written.", "Fix or delete the named file; servers then require a new sign-in."),
    "secret.unknown": Code(NotFound, 404, "There is no secret of this name.", "List them with `toolcrib mcp secrets --stored`."),
    "secret.invalid": Code(InvalidRequest, 422, "The name or the value of the secret is not valid."),
    "secret.in_use": Code(Conflict, 409, "A definition refers to the secret.", "Change the definition first."),
    "secret.storage": Code(ConfigError, 503, "The stored secrets cannot be read or written.", "Unlock the system's keyring, or restore the files in `secrets` of the crib's home."),
    "secret.nothing_moved": Code(NotFound, 404, "There is no move of secrets to undo."),
    "server.command_not_found": Code(ConfigError, 422, "The server's command was not found.", "Install it, or use its full path in the definition."),
    "server.command_unusable": Code(ConfigError, 422, "The server's command cannot be run.", "Fix the file or the definition as the message describes."),
    "server.cwd_unusable": Code(ConfigError, 422, "The server's working directory cannot be entered.", "Create the directory, or correct `cwd` in the definition."),
    "server.no_room": Code(Unavailable, 503, "The process limit is reached.", "Close processes you do not need, or raise the limits for open files and processes."),
    "sandbox.unsupported": Code(ConfigError, 422, "The sandbox of the server cannot be enforced on this system.", "Run `toolcrib doctor` to see what is missing."),
    "sandbox.refused": Code(Denied, 403, "The sandbox refused the server a file, a host or the network.", "If the server needs it, allow it with `toolcrib mcp sandbox`."),
    "sandbox.invalid": Code(InvalidRequest, 422, "The sandbox cannot be set like this.", "Choose the profile off, learn, project or strict, absolute paths, and names or addresses of hosts."),
    "sandbox.recording": Code(Conflict, 409, "The server runs without a sandbox while what it uses is recorded.", "Apply the proposal, or choose another profile."),
    "sandbox.not_recorded": Code(Conflict, 409, "There is no record of what the server uses.", "Record it with `toolcrib mcp sandbox NAME --learn`."),
    "sandbox.unconfirmed": Code(Conflict, 409, "To record what it uses, the server has to run without its sandbox.", "Confirm it with `--yes`, or `unconfined` over REST."),
    "recording.unknown": Code(NotFound, 404, "The session was not recorded.", "Record sessions with `--record` or `record_sessions`."),
    "recording.invalid": Code(InvalidRequest, 422, "The file is not a recording.", "Export it with `toolcrib sessions export --recording` or `toolcrib mcp record`."),
    "replay.miss": Code(InvalidRequest, 422, "The replay asked for something that was not recorded.", "Compare it with the nearest recording, named in the message; record the session again."),
    "replay.unsupported": Code(InvalidRequest, 422, "The session's runtime cannot be replayed.", "Record a session of Claude Code."),
    "replay.until": Code(InvalidRequest, 422, "The recording cannot be cut at this event.", "Export the recording again."),
    "registry.unknown": Code(NotFound, 404, "The registry has no server of this name and version.", "Search with `toolcrib mcp search`."),
    "registry.unavailable": Code(Unavailable, 502, "The registry did not return a usable answer.", "Check `registry_url` in `toolcrib settings`, or try again later."),
    "registry.snapshot": Code(ConfigError, 422, "The registry's snapshot file cannot be read.", "Correct `registry_url`, or save the snapshot again."),
    "registry.option": Code(InvalidRequest, 422, "The server cannot be run in this way.", "Choose another of its options."),
    "registry.value": Code(InvalidRequest, 422, "A value for the published server is not possible.", "Correct the value."),
    "app.closed": Code(NotFound, 404, "The app of a tool is no longer open.", "Call the tool again."),
    "app.invalid": Code(InvalidRequest, 422, "The UI resource of a tool is not a page.", "Report it to the author of the server."),
    "registry.refused": Code(InvalidRequest, 422, "The published definition is invalid, or would take values of yours.", "Report it to the registry; add the server by hand if you trust it."),
    "registry.bundle": Code(InvalidRequest, 422, "The bundle of the server is damaged, too large or unsafe.", "Report it to the publisher of the server."),
    "server.cancelled": Code(Unavailable, 503, "The attempt to connect the server was cancelled.", "Check it again."),
    "server.ended": Code(Unavailable, 502, "The server exited.", "Read its standard error output."),
    "server.stuck": Code(Unavailable, 504, "The server does not read its input.", "Toolcrib restarts it; if this persists, report it to the developers of the server."),
    "server.flood": Code(Unavailable, 502, "The server wrote too much output that is not MCP.", "Make it log to standard error, not to standard output."),
    "server.message_limit": Code(Unavailable, 502, "The server sent too many messages before its response.", "Request less; if this persists, report it to the developers of the server."),
    "server.reply_invalid": Code(Unavailable, 502, "The server's response is too large or cannot be parsed.", "Request less; if this persists, report it to the developers of the server."),
    "server.timeout": Code(Unavailable, 504, "The server timed out.", "Try again, or raise its timeout."),
    "server.unreachable": Code(Unavailable, 502, "The server cannot be reached.", "Check its address, and that it is running."),
    "server.http_status": Code(Unavailable, 502, "The server returned an HTTP error.", "Check its address and headers; if it is busy, try again later."),
    "server.session_lost": Code(Unavailable, 502, "The MCP session with the server was lost.", "Try again; a new session is opened."),
    "server.protocol": Code(Unavailable, 502, "The server does not support a known version of MCP.", "Check that the command starts an MCP server on standard input and output."),
    "secret.command_failed": Code(Unavailable, 503, "A command that prints a secret failed.", "Run it by hand to see why."),
    "agent.unknown": Code(NotFound, 404, "Agent not found.", "Run `toolcrib agents list`."),
    "agent.exists": Code(Conflict, 409, "An agent with this id already exists.", "Choose another id, or edit the existing agent."),
    "agent.invalid": Code(InvalidRequest, 422, "The agent or brain entry has invalid fields.", "Fix the named fields."),
    "agent.category_unknown": Code(NotFound, 404, "The agent has no such category of skills.", "Run `toolcrib agents show` with its id."),
    "agent.category_last": Code(Conflict, 409, "An agent needs at least one category of skills.", "Add another one first."),
    "agent.skill_unknown": Code(NotFound, 404, "The agent has no such skill.", "Run `toolcrib agents show` with its id."),
    "agent.entry_unknown": Code(NotFound, 404, "Brain entry not found.", "List the agent's brain entries."),
    "agent.entry_pinned": Code(Denied, 403, "Pinned entries are part of the agent's prompt, so only the owner can pin, change or delete them.", "Create an entry without pinning it, or ask the owner."),
    "agent.entry_exists": Code(Conflict, 409, "A brain entry with this id already exists.", "Omit the id to generate one."),
    "agent.revision_unknown": Code(NotFound, 404, "Agent revision not found.", "List the agent's revisions."),
    "agent.unreadable": Code(ConfigError, 422, "The file, or part of it, does not contain a valid agent.", "Fix what the message names; the rest was imported."),
    "agent.note": Code(ConfigError, 422, "Part of the agent was imported or exported in a different form.", "Review the agent."),
    "library.invalid": Code(InvalidRequest, 422, "The library entry or query is invalid.", "Fix what the message names."),
    "library.unknown": Code(NotFound, 404, "Library entry not found.", "List entries with `crib_library_list`."),
    "credits.exhausted": Code(Denied, 429, "The agent's budget is used up.", "Ask the owner to grant more with `crib_grant_credits` or `crib_credit_config`."),
    "credits.invalid": Code(InvalidRequest, 422, "The amount of credits is invalid.", "Use numbers that are not negative."),
    "credits.own": Code(Denied, 403, "An agent cannot raise its own budget.", "Ask the owner with `crib_ask_owner`."),
    "notify.invalid": Code(InvalidRequest, 422, "The notification or its channel is invalid.", "Fix what the message names."),
    "notify.unknown": Code(NotFound, 404, "Notification channel not found.", "List channels with `crib_configure_notifications`."),
    "notify.failed": Code(Unavailable, 502, "The notification could not be delivered.", "Read the reason; the notification is also in the console."),
    "notify.no_push": Code(Conflict, 409, "Push messages are not available on this crib.", "Start every node with the same `--node-secret-file`."),
    "notify.refused": Code(Denied, 403, "A person denied the new notification channel.", "Continue without it."),
    "crew.no_agent": Code(InvalidRequest, 422, "The tool can only be called by an agent.", "Call it as an agent: in its session, at its MCP address or with its token."),
    "crew.no_session": Code(InvalidRequest, 422, "The tool can only be called in a session.", "Call it in a session."),
    "crew.to_self": Code(InvalidRequest, 422, "An agent cannot send messages to itself.", "Choose another agent from `crib_list_agents`."),
    "crew.too_deep": Code(Denied, 403, "The chain of agents delegating to each other is too long.", "Do the work yourself, or report that it cannot be done."),
    "crew.duplicate": Code(Conflict, 409, "The same message was sent a moment ago.", "Use the answer to the first call."),
    "crew.limit": Code(Denied, 429, "The session reached its limit of messages to other agents.", "Continue with the answers you have."),
    "crew.thread": Code(NotFound, 404, "No such thread exists between this sender and this agent.", "Omit the thread to start a new one."),
    "crew.busy": Code(Conflict, 409, "The other agent is still working on an earlier message.", "Wait for that answer, or start another thread."),
    "crew.no_answer": Code(Unavailable, 502, "The other agent did not answer.", "Check its session, or continue without the answer."),
    "question.timeout": Code(Unavailable, 504, "The question was not answered in time.", "Continue with what is safe without an answer, or ask again later."),
    "session.extend": Code(Conflict, 409, "The turn cannot be extended.", "Finish this turn, and continue in another one."),
    "schedule.limit": Code(Denied, 429, "The agent reached its limit of schedules.", "Delete a schedule first."),
    "schedule.own": Code(Denied, 403, "An agent can only create and change its own schedules.", "Omit the agent, or ask the owner."),
    "code.outside": Code(Denied, 403, "The directory is outside the caller's directory and all projects.", "Omit the directory, or use one from `crib_list_projects`."),
    "code.no_directory": Code(NotFound, 404, "Directory not found.", "Use an existing directory, or omit it."),
    "code.missing": Code(Unavailable, 503, "Code mode is not installed.", "pip install 'toolcrib[monty]'"),
    "code.failed": Code(Unavailable, 503, "The source code could not be read.", "Reinstall with `pip install 'toolcrib[code]'`, then try again."),
    "github.invalid": Code(InvalidRequest, 422, "The GitHub name is invalid.", "Write repositories as `owner/name`."),
    "github.owner": Code(Denied, 403, "Writing to this owner's repositories is not allowed.", "Continue without it, or ask the owner of the crib to add the name to `github_organisations`."),
    "github.quota": Code(Denied, 429, "The unattended session reached its limit of GitHub changes.", "Continue without it, and report what is left with `crib_notify_owner`."),
    "github.token": Code(ConfigError, 502, "GitHub rejected the token.", "Ask the owner to set a valid `TOOLCRIB_GITHUB_TOKEN` and restart the crib."),
    "github.forbidden": Code(Denied, 403, "The token does not have permission to do this on GitHub.", "Continue without it, or ask the owner for a token with this permission."),
    "github.limited": Code(Unavailable, 429, "The GitHub rate limit is reached.", "Try again at the time in the message."),
    "github.unknown": Code(NotFound, 404, "Not found on GitHub, or not visible to the token.", "Check the name with `crib_github_repo_info`, `crib_github_list_prs` or `crib_github_list_issues`."),
    "github.refused": Code(InvalidRequest, 422, "GitHub rejected the request as invalid.", "Change what the message names."),
    "github.failed": Code(Unavailable, 502, "GitHub cannot be reached or returned an unusable response.", "Try again in a minute; if this persists, check `github_url`."),
    "plugin.unknown": Code(NotFound, 404, "Plugin not found.", "Run `toolcrib plugins list`."),
    "plugin.not_granted": Code(NotFound, 404, "The plugin has no grant.", "Run `toolcrib plugins grant` with its name."),
    "plugin.manifest": Code(ConfigError, 422, "The plugin's manifest is missing or invalid, so the plugin is not loaded.", "Report this to the developers of the plugin."),
    "plugin.changed": Code(Conflict, 409, "The plugin changed after you reviewed it.", "Review it again, then grant it."),
    "plugin.failed": Code(ConfigError, 422, "The plugin is granted but could not be loaded; other plugins are not affected.", "Read the reason; the traceback is in the log."),
    "work.unknown": Code(NotFound, 404, "The work task does not exist or is not visible to the caller.", "List work tasks with `crib_list_work_tasks`."),
    "work.not_a_repository": Code(InvalidRequest, 422, "The directory is not in a git repository, so no branch can be created.", "Use a directory in a git repository with at least one commit."),
    "work.elsewhere": Code(Denied, 403, "Agents can only create work tasks in their own repository.", "Omit the project, or ask the owner."),
    "work.git": Code(Unavailable, 503, "git is not installed, or failed.", "Read its output, or run the command by hand."),
    "work.limit": Code(Denied, 429, "Work task limit reached.", "Wait until a task has ended."),
    "work.running": Code(Conflict, 409, "The work task is still running.", "Wait until it has ended."),
    "script.invalid": Code(ConfigError, 422, "The script of the scripted model is invalid.", "Fix what the message names."),
    "client.unknown": Code(NotFound, 404, "Toolcrib cannot connect an app with this name.", "Run `toolcrib connect` to list apps; `toolcrib mcp export` supports other apps."),
    "client.missing": Code(NotFound, 404, "The app was not found on this machine.", "Start the app once, or add `--anyway`."),
    "client.not_connected": Code(NotFound, 404, "The app is not connected to this crib.", "Run `toolcrib connect` to see which apps are connected."),
    "client.declined": Code(Denied, 403, "The change to the app's file was declined.", "Nothing was changed."),
    "trust.unreadable": Code(ConfigError, 503, "The trust records cannot be read, so no server is trusted.", "Fix or delete the named file."),
}  # fmt: skip
