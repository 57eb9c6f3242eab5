"""The failures Toolcrib reports on purpose.

The class says who acts, `code` says what happened, `hint` says what to do next. Nothing branches on the message.

    ToolcribError
    ├── ConfigError      the owner mends a file or a setting
    ├── InvalidRequest   the caller sends something else
    ├── Unauthenticated  the caller shows a credential
    ├── NotFound         the caller names something that exists
    ├── Denied           a person changes a rule, or the caller does without
    ├── Conflict         the caller reads again, then retries
    └── Unavailable      somebody starts, frees or repairs something

Every edge translates these once: `server.problems` (problem+json), `server.mcp` (JSON-RPC errors and error results),
`cli.output` (exit codes). `CODES` is the list of all codes; the reference page is generated from it and a test holds
code, table and page together.
"""

from dataclasses import dataclass
from typing import ClassVar


class ToolcribError(Exception):
    """A failure with a stable code, a message for people and, where there is one, the next step."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self._hint = hint

    @property
    def hint(self) -> str | None:
        """The hint given, else the one of the table."""
        return self._hint or CODES[self.code].hint

    @property
    def status(self) -> int:
        """The HTTP status of this code."""
        return CODES[self.code].status


class ConfigError(ToolcribError):
    """A file or setting of the owner is wrong."""


class InvalidRequest(ToolcribError):
    """The request itself is wrong."""

    exit_code = 2


class Unauthenticated(ToolcribError):
    """No credential, or a wrong one."""

    exit_code = 4


class NotFound(ToolcribError):
    """What was named does not exist, or not for this asker."""

    exit_code = 3


class Denied(ToolcribError):
    """A rule, a mode or a person refused."""

    exit_code = 4


class Conflict(ToolcribError):
    """Somebody else was first."""


class Unavailable(ToolcribError):
    """Something needed is not there right now."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Code:
    """One row of the table: the class that carries the code, its HTTP status, its meaning and the usual next step."""

    raised_as: type[ToolcribError]
    status: int
    meaning: str
    hint: str | None = None


CODES: dict[str, Code] = {
    "cli.usage": Code(InvalidRequest, 400, "The command line cannot be read.", "Run the command with `--help`."),
    "settings.invalid": Code(ConfigError, 422, "A setting has a value of the wrong kind.", "Run `toolcrib settings` to see each value and where it comes from."),
    "settings.unknown": Code(ConfigError, 422, "A key in `toolcrib.toml` is not a setting.", "Run `toolcrib settings` to see all settings."),
    "home.unsafe": Code(ConfigError, 503, "The home belongs to somebody else or is not a directory.", "Choose another home with `--home` or `TOOLCRIB_HOME`."),
    "home.token": Code(ConfigError, 503, "The token file of the home is damaged.", "Remove the file; the next start makes a new token."),
    "home.busy": Code(Unavailable, 503, "Another process holds this home and cannot be joined.", "Stop that process, or choose another home with `--home`."),
    "bind.refused": Code(ConfigError, 503, "The address may not be listened on without authentication.", "Use 127.0.0.1."),
    "bind.occupied": Code(Unavailable, 503, "The port is in use by another program.", "Choose another port with `--port` or `TOOLCRIB_PORT`."),
    "crib.running": Code(Unavailable, 503, "A crib already runs on this home.", "Use the running one, or stop it first."),
    "crib.unreachable": Code(Unavailable, 503, "The running crib does not answer.", "Start it again with `toolcrib serve`."),
    "crib.closed": Code(Unavailable, 503, "The crib is stopping.", "Start it again with `toolcrib serve`."),
    "crib.busy": Code(Unavailable, 503, "The crib has as many connections as it takes.", "Close some, or try again in a moment."),
    "database.unavailable": Code(Unavailable, 503, "The database cannot be opened or written.", "Check the path or address, its permissions and free space."),
    "database.newer": Code(ConfigError, 503, "The database was written by a newer Toolcrib.", "Upgrade Toolcrib, or choose another home."),
    "file.unsafe": Code(ConfigError, 503, "A file of the crib is a link, is not a plain file or belongs to somebody else.", "Move it away, then start again."),
    "request.malformed": Code(InvalidRequest, 400, "The request is not what this route reads.", "Send UTF-8 JSON with `Content-Type: application/json`."),
    "request.invalid": Code(InvalidRequest, 422, "A field of the request has a wrong value.", "See `errors` for each field."),
    "request.too_large": Code(InvalidRequest, 413, "The request is larger than the limit.", "Send less, or raise the limit in the settings."),
    "request.too_slow": Code(InvalidRequest, 408, "The request did not arrive in time.", "Send it again."),
    "request.target_too_long": Code(InvalidRequest, 414, "The address of the request is too long.", "Send long values in the body."),
    "request.headers_too_large": Code(InvalidRequest, 431, "The request has too many or too large headers.", "Send fewer and shorter headers."),
    "request.media_type": Code(InvalidRequest, 415, "The body is not JSON.", "Send `Content-Type: application/json`."),
    "request.stale": Code(Conflict, 412, "What the request is about was changed since it was read.", "Read it again, then repeat the change."),
    "auth.required": Code(Unauthenticated, 401, "A token is needed.", "Send `Authorization: Bearer …` with the token from the home's `token` file."),
    "auth.invalid": Code(Unauthenticated, 401, "The token is not valid.", "Read the token from the home's `token` file again."),
    "auth.throttled": Code(Unavailable, 429, "Too many wrong tokens.", "Wait a minute."),
    "auth.login_used": Code(Unauthenticated, 401, "The login link was used or is too old.", "Run `toolcrib serve` again: it prints a new link."),
    "host.refused": Code(Denied, 403, "The Host header does not name this crib.", "Use the address that `toolcrib serve` printed."),
    "origin.refused": Code(Denied, 403, "The request comes from another web origin.", "Open the console at the address that `toolcrib serve` printed."),
    "route.unknown": Code(NotFound, 404, "There is no such route.", "See `/api/openapi.json`."),
    "route.method": Code(InvalidRequest, 405, "The route does not take this method.", "See `/api/openapi.json`."),
    "internal": Code(Unavailable, 500, "Something unexpected failed; it was logged.", "Look into the log in the home's `logs` folder."),
    "feed.gone": Code(NotFound, 410, "The events asked for are no longer kept.", "Read the state again, then follow from its number."),
    "tool.unknown": Code(NotFound, 404, "There is no such tool, or not for this asker.", "Run `toolcrib tools list`."),
    "tool.definition": Code(ConfigError, 422, "A Python tool is defined wrongly.", "Mend the function that the message names."),
    "tool.server_exists": Code(Conflict, 409, "A server of this name is registered already.", "Choose another name."),
    "tool.module": Code(ConfigError, 422, "A module with tools could not be loaded.", "Mend the module; the others work."),
    "tool.requires": Code(Unavailable, 503, "A service that the tool requires is not there.", "Provide the service, then register the tools again."),
    "tool.arguments_invalid": Code(InvalidRequest, 422, "The arguments do not fit the tool's schema.", "Correct the named fields and call again."),
    "tool.timeout": Code(Unavailable, 504, "The tool did not answer in time.", "Call again with less to do, or raise the tool's time-out."),
    "tool.failed": Code(Unavailable, 502, "The tool raised an exception.", "Read the message; the full trace is in the log."),
    "tool.result_invalid": Code(Unavailable, 502, "The tool returned something that is not JSON or too large.", "Return JSON, and less of it."),
    "tool.elsewhere": Code(InvalidRequest, 422, "The tool is run by a coding agent itself, so only its sessions can call it.", "Start a session with `toolcrib chat`."),
    "session.unknown": Code(NotFound, 404, "There is no such session.", "Run `toolcrib sessions list`."),
    "session.cwd": Code(InvalidRequest, 422, "A session needs a directory that exists, by its full path.", "Name another one."),
    "session.message": Code(InvalidRequest, 422, "The message cannot be sent.", "Send one that is neither empty nor longer than a million characters."),
    "session.too_many": Code(Unavailable, 503, "As many sessions or messages are at work as may be.", "Wait until one has ended, or raise `max_sessions`."),
    "session.elsewhere": Code(Conflict, 409, "Another crib on the same database has this session.", "Speak to it there, or close it first."),
    "session.limit": Code(Denied, 429, "The session has used what it was given.", "Start another one, or give it more."),
    "runner.missing": Code(Unavailable, 503, "The runtime of the session is not installed.", "pip install 'toolcrib[claude]'"),
    "runner.start": Code(Unavailable, 503, "The runtime of the session could not be started.", "Read the reason; its last words are in it."),
    "runner.died": Code(Unavailable, 502, "The runtime of the session ended in the middle of a turn.", "Send the message again: the session goes on where it was."),
    "runner.failed": Code(Unavailable, 502, "The runtime of the session failed.", "Read the reason, then send the message again."),
    "runner.limit": Code(Denied, 429, "The answer reached a limit of the session.", "Send another message to go on, or raise the limit."),
    "runner.login": Code(Unavailable, 503, "Claude Code is not signed in.", "Run `claude` in a terminal and sign in with `/login`, or set ANTHROPIC_API_KEY and start the crib again."),
    "runner.key": Code(Unavailable, 503, "The API does not accept the key or the sign-in of Claude Code.", "Run `claude` in a terminal and sign in with `/login`, or set ANTHROPIC_API_KEY and start the crib again."),
    "runner.credit": Code(Unavailable, 503, "The account of the API has no credit left.", "Add credit in the console of the API, then send the message again."),
    "runner.rate": Code(Unavailable, 429, "The API takes no more requests for now.", "Wait until the limit of the account is renewed, then send the message again."),
    "runner.overloaded": Code(Unavailable, 503, "The API is overloaded or has a failure of its own.", "Send the message again in a moment."),
    "runner.unreachable": Code(Unavailable, 503, "The API cannot be reached.", "Check the network, the proxy and ANTHROPIC_BASE_URL, then send the message again."),
    "runner.model": Code(NotFound, 404, "The model does not exist, or not for this account.", "Choose another model for the session."),
    "runner.invalid": Code(ConfigError, 422, "A runtime in the settings file cannot be used.", "Mend its table `[runners.NAME]` in `toolcrib.toml`."),
    "runner.not_listening": Code(Unavailable, 503, "The runtime reaches tools over the network, and this crib does not listen.", "Run `toolcrib serve`, or use the runtime `claude`."),
    "runner.cannot_resume": Code(Unavailable, 503, "The runtime cannot go on with a conversation that it has ended.", "Start a new session."),
    "runner.unfit": Code(Unavailable, 503, "The program does not speak as a runtime of sessions has to.", "Install a newer version of it."),
    "runner.unknown": Code(NotFound, 404, "There is no such runtime for agents.", "Name one that is there."),
    "schedule.unknown": Code(NotFound, 404, "There is no such schedule.", "Run `toolcrib schedule list`."),
    "schedule.cadence": Code(InvalidRequest, 422, "The time of a schedule cannot be followed.", "Give five cron fields and a time zone, an interval of a minute or more, or a moment."),
    "schedule.running": Code(Conflict, 409, "The schedule is running already.", "Wait for its end, or interrupt its session."),
    "schedule.agent": Code(ConfigError, 422, "The agent of a schedule is not there.", "Choose another agent."),
    "schedule.tool": Code(ConfigError, 422, "A tool that a schedule needs could not be used by its run.", "Grant it, or take it off the schedule."),
    "schedule.server": Code(ConfigError, 422, "The server of a tool that a schedule needs is not there.", "Check the server."),
    "question.unknown": Code(NotFound, 404, "There is no such question of an agent.", "Run `toolcrib approvals list`."),
    "question.answered": Code(Conflict, 409, "The agent's question was answered or given up before.", "Nothing more is to be done."),
    "question.answer": Code(InvalidRequest, 422, "The answer does not fit what the agent asked.", "Give one answer to every question, by its text."),
    "policy.denied": Code(Denied, 403, "A rule, the mode or the schedule refuses this call.", "Ask the owner; `toolcrib why` explains it."),
    "approval.required": Code(Denied, 403, "A person has to approve this call, and nobody can be asked.", "Call it by hand, or in a mode that does not ask."),
    "approval.denied": Code(Denied, 403, "A person refused this call, or nobody approved it in time.", "Do without it, or ask the person."),
    "approval.unknown": Code(NotFound, 404, "There is no such question, or not for this asker.", "Run `toolcrib approvals list`."),
    "approval.decided": Code(Conflict, 409, "The question was answered, ran out or was withdrawn before.", "Nothing more is to be done; a new call asks anew."),
    "approval.not_a_person": Code(Denied, 403, "Only a person may say yes or no here, not a program that acts for one.", "Answer in the console, or with `toolcrib approvals` or `toolcrib tools`."),
    "approval.mismatch": Code(Denied, 403, "The approval that was brought is for another call, or there is none.", "Make the very call that was asked about, or ask anew."),
    "approval.used": Code(Denied, 403, "The approval was used before, or not fetched in time.", "Ask anew."),
    "approval.scope": Code(InvalidRequest, 422, "The answer cannot hold for a session, since the question comes from none.", "Answer `once` or `always`."),
    "approval.too_many": Code(Denied, 429, "Too many questions wait for an answer.", "Answer the open ones, then call again."),
    "pin.unknown": Code(NotFound, 404, "No definition of this tool is known.", "Run `toolcrib tools changes`."),
    "tool.changed": Code(Denied, 403, "The definition of the tool changed, and nobody has accepted that yet.", "Look at the difference with `toolcrib tools changes`, then accept or reject it."),
    "tool.hidden_characters": Code(ConfigError, 422, "What a tool says of itself has characters that nobody sees.", "Look at the definition before you allow the tool."),
    "tool.instructs": Code(ConfigError, 422, "What a tool says of itself tells the model what to do beyond calling it.", "Look at the definition before you allow the tool."),
    "tool.names_other_tool": Code(ConfigError, 422, "What a tool says of itself speaks of another server's tool.", "Look at the definition before you allow the tool."),
    "tool.names_credentials": Code(ConfigError, 422, "What a tool says of itself speaks of secrets or of the files that hold them.", "Look at the definition before you allow the tool."),
    "rule.invalid": Code(InvalidRequest, 422, "A rule cannot be used as it is written.", "Mend what the message names."),
    "rule.unknown": Code(NotFound, 404, "There is no such rule.", "Run `toolcrib rules list`."),
    "demo.place": Code(Conflict, 409, "The directory for the demonstration has something in it.", "Name an empty or a new one, or none."),
    "rule.exists": Code(Conflict, 409, "A rule of this id is there already.", "Remove that one first."),
    "rule.in_file": Code(Conflict, 409, "The rule stands in a file, so it is changed there.", "Edit the file and line that are named."),
    "bundle.unknown": Code(NotFound, 404, "There is no such bundle.", "Look at `/api/bundles`."),
    "bundle.exists": Code(Conflict, 409, "A bundle of this id is there already.", "Choose another id, or change that bundle."),
    "bundle.preset": Code(Conflict, 409, "A bundle that comes with Toolcrib is not changed.", "Make one of your own under another id."),
    "project.unknown": Code(NotFound, 404, "Nothing is set for this directory.", "Look at `/api/projects`."),
    "limit.invalid": Code(ConfigError, 422, "A limit cannot be used as it is written.", "Mend the line that is named."),
    "limit.reached": Code(Denied, 429, "A session has used a tool as often or as dearly as it may.", "Do without it, or raise the limit."),
    "token.unknown": Code(NotFound, 404, "There is no such token.", "Run `toolcrib tokens list`."),
    "token.exists": Code(Conflict, 409, "A token of this name is in use.", "Choose another name, or revoke that token first."),
    "token.name": Code(InvalidRequest, 422, "A token cannot have this name.", "Use 1 to 100 letters, digits, `_`, `.` or `-`, and not `owner`."),
    "audit.unavailable": Code(Unavailable, 503, "The call could not be recorded, so it was not made.", "Free disk space or repair the database, then call again."),
    "audit.unknown": Code(NotFound, 404, "There is no such record.", "Run `toolcrib audit`."),
    "audit.shared": Code(Conflict, 409, "Records stay in a database that other cribs may use: they would miss them.", "Use the home's own database to have old records sealed."),
    "audit.broken": Code(Conflict, 409, "The audit chain was changed, cut or reordered.", "Compare with a backup; the first bad record is named."),
    "config.unreadable": Code(ConfigError, 422, "A configuration file cannot be read.", "Mend its permissions or its link."),
    "config.not_a_file": Code(ConfigError, 422, "A directory, pipe or device stands where a configuration file should.", "Remove it or put a file there."),
    "config.too_large": Code(ConfigError, 422, "A configuration file is too large to be one.", "Remove what does not belong there."),
    "config.encoding": Code(ConfigError, 422, "A configuration file is not UTF-8.", "Save it as UTF-8."),
    "config.empty": Code(ConfigError, 422, "A configuration file is empty.", "Remove it, or add servers."),
    "config.syntax": Code(ConfigError, 422, "A configuration file is not in its format.", "Mend the line that is named."),
    "config.dialect": Code(ConfigError, 422, "The tool a file belongs to cannot read it itself.", "Remove what the message names."),
    "config.duplicate_key": Code(ConfigError, 422, "A key is written twice; the later one counts.", "Remove one of them."),
    "config.layout": Code(ConfigError, 422, "The servers of a file do not stand where its tool looks for them.", "Move them under the key that is named."),
    "config.note": Code(ConfigError, 422, "Something in a file was read in a way its writer may not expect.", "Write it plainly."),
    "config.link": Code(Denied, 403, "A link leads to a file that is not the owner's, or out of the project.", "Edit the real file by hand."),
    "config.changed": Code(Conflict, 409, "A file was changed by another program in the meantime.", "Look at it again, then repeat the change."),
    "config.locked": Code(Unavailable, 503, "Another process is writing in the same directory.", "Try again."),
    "config.not_writable": Code(ConfigError, 422, "A file cannot be changed; nothing was.", "Mend its permissions, or change it by hand."),
    "config.edit": Code(ConfigError, 422, "A file cannot be changed without touching other parts of it; nothing was.", "Mend or change it by hand."),
    "config.unsupported": Code(InvalidRequest, 422, "The tool's format has no way to say this.", "Leave out `--in-client`: Toolcrib then keeps it in its own file."),
    "config.nothing_to_undo": Code(NotFound, 404, "There is no change to undo.", "Only changes made by Toolcrib can be taken back."),
    "server.invalid": Code(InvalidRequest, 422, "A server's definition cannot be used.", "Mend what the message names."),
    "server.exists": Code(Conflict, 409, "A server of this name is in the file already.", "Choose another name, or remove the other one first."),
    "server.unknown": Code(NotFound, 404, "There is no such server.", "Run `toolcrib mcp list`."),
    "server.foreign": Code(Conflict, 409, "A server stands in another tool's file, so it is not replaced here.", "Take it over first with `toolcrib mcp import`, or edit that file."),
    "server.name_invalid": Code(InvalidRequest, 422, "A server's name is empty, too long or has other characters.", "Use up to 100 letters, digits, `_`, `.` and `-`."),
    "server.built_in": Code(ConfigError, 422, "An entry is a part of its tool, not a server to connect to."),
    "server.type_missing": Code(ConfigError, 422, "A URL without type; how it is taken depends on the tool.", "Add a type."),
    "server.field_ignored": Code(ConfigError, 422, "A field counts here and not in the tool itself, or the other way round."),
    "server.field_unknown": Code(ConfigError, 422, "A field is not understood; it is kept.", "Check its spelling."),
    "server.value_type": Code(ConfigError, 422, "A value is not of the expected kind and was taken as far as it goes.", "Write it as the message says."),
    "server.switch_ignored": Code(ConfigError, 422, "A server is switched off in a way its own tool ignores.", "Switch it off in the tool's own way as well."),
    "server.switched_off": Code(ConfigError, 422, "A server is switched off by a setting elsewhere.", "Change the setting that is named."),
    "server.auto_approve": Code(ConfigError, 422, "A tool's own approval list is not applied.", "Use `toolcrib rules allow`."),
    "server.helper": Code(ConfigError, 422, "A program that prints headers is never run.", "Write the headers, or use a variable."),
    "server.variable_missing": Code(ConfigError, 422, "A variable that a definition needs is not set.", "Set it and start Toolcrib again."),
    "server.secret_missing": Code(ConfigError, 422, "A value that a definition needs could not be had.", "Mend the command or file that is named."),
    "server.own_crib": Code(ConfigError, 422, "A server is this crib itself, so it is not connected to."),
    "server.not_exportable": Code(ConfigError, 422, "Something of a definition has no place in the other tool's format.", "Add it there by hand."),
    "tool.upstream": Code(ConfigError, 422, "A server defines a tool in a way that cannot be passed on as it is.", "Tell the makers of the server."),
    "server.offer": Code(Unavailable, 502, "What a server offers could be read only in part.", "Tell the makers of the server."),
    "server.untrusted": Code(Denied, 403, "Nobody agreed to start this server yet.", "Look at it, then run `toolcrib mcp trust`."),
    "server.failed": Code(Unavailable, 502, "A server could not be connected to.", "Read the reason; `toolcrib mcp get` shows the whole definition."),
    "server.not_checked": Code(Unavailable, 503, "A server was not asked yet what it offers.", "Run `toolcrib mcp test` with its name."),
    "server.disabled": Code(Conflict, 409, "A server is switched off.", "Run `toolcrib mcp enable` with its name first."),
    "server.shadowed": Code(Conflict, 409, "Another definition of the same name counts.", "Run `toolcrib mcp get` with its name to see which."),
    "oauth.none": Code(NotFound, 404, "Nobody is signing in to this server.", "Run `toolcrib mcp auth` with its name."),
    "oauth.signed_in": Code(Conflict, 409, "The owner is signed in to this server.", "Run `toolcrib mcp reauth` to do it again."),
    "url.refused": Code(InvalidRequest, 422, "An address is not one that may be used: its scheme, its form or its host.", "Use an https address; plain http is for servers on this machine."),
    "address.refused": Code(Denied, 403, "A name leads into this machine or network, where it may not be followed.", "Name the server in a definition of your own if it is meant."),
    "oauth.required": Code(Unavailable, 503, "A server wants its owner to sign in.", "Run `toolcrib mcp auth` with the server's name."),
    "oauth.timeout": Code(Unavailable, 504, "Nobody finished the sign-in in time.", "Start it again, then follow the address to its end."),
    "oauth.failed": Code(Unavailable, 502, "A sign-in was refused or went wrong.", "Read the reason, then start it again."),
    "oauth.storage": Code(ConfigError, 503, "The stored sign-ins cannot be read or written.", "Mend or remove the file that is named; servers then ask for a new sign-in."),
    "server.command_not_found": Code(ConfigError, 422, "The command of a server was not found.", "Install it, or write its full path in the definition."),
    "server.command_unusable": Code(ConfigError, 422, "The command of a server cannot be run.", "Mend the file or the definition as the message says."),
    "server.cwd_unusable": Code(ConfigError, 422, "The working directory of a server cannot be entered.", "Make the directory, or correct `cwd` in the definition."),
    "server.no_room": Code(Unavailable, 503, "The system has no room for one more process.", "End what is not needed, or raise the limit of open files and processes."),
    "server.ended": Code(Unavailable, 502, "A server ended.", "Read what it wrote to standard error."),
    "server.stuck": Code(Unavailable, 504, "A server does not read what is sent to it.", "It is started again; if it stays so, tell its makers."),
    "server.flood": Code(Unavailable, 502, "A server wrote too much that is no message.", "Make it log to standard error, not to standard output."),
    "server.reply_invalid": Code(Unavailable, 502, "A server gave a reply that is too large or cannot be read.", "Ask for less; if it stays so, tell its makers."),
    "server.timeout": Code(Unavailable, 504, "A server did not answer in time.", "Try again, or raise its time-out."),
    "server.unreachable": Code(Unavailable, 502, "No connection to a server could be made.", "Check its address, and that it runs."),
    "server.http_status": Code(Unavailable, 502, "A server refused a request with an HTTP status.", "Check its address and headers; try again later if it is busy."),
    "server.session_lost": Code(Unavailable, 502, "A server does not know our session any more.", "Try again: a new session is opened."),
    "server.protocol": Code(Unavailable, 502, "A server does not speak a known version of MCP.", "Check that the command starts an MCP server on standard input and output."),
    "secret.command_failed": Code(Unavailable, 503, "A command that prints a secret failed.", "Run it by hand to see why."),
    "agent.unknown": Code(NotFound, 404, "There is no such agent.", "Run `toolcrib agents list`."),
    "agent.exists": Code(Conflict, 409, "An agent of this id is there already.", "Choose another id, or change the other one."),
    "agent.invalid": Code(InvalidRequest, 422, "An agent or an entry of its brain has fields that cannot be used.", "Mend the named fields."),
    "agent.skill_unknown": Code(NotFound, 404, "The agent has no such skill.", "Run `toolcrib agents show` with its id."),
    "agent.entry_unknown": Code(NotFound, 404, "The agent's brain has no such entry.", "Look at the agent's brain again."),
    "agent.entry_exists": Code(Conflict, 409, "The agent's brain has an entry of this id already.", "Leave the id out: one is made."),
    "agent.revision_unknown": Code(NotFound, 404, "The agent never had this version, or was deleted by it.", "Look at its revisions."),
    "agent.unreadable": Code(ConfigError, 422, "A file or a part of it holds no agent that can be read.", "Mend what the message names; the rest was taken."),
    "agent.note": Code(ConfigError, 422, "Something of an agent was taken or written in another way.", "Look at the agent."),
    "library.invalid": Code(InvalidRequest, 422, "An entry of the library cannot be written, or looked for, like that.", "Mend what the message names."),
    "library.unknown": Code(NotFound, 404, "The library has no such entry.", "List it with `crib_library_list`."),
    "credits.exhausted": Code(Denied, 429, "An agent has used up its budget.", "A person grants more: `crib_grant_credits`, or `crib_credit_config`."),
    "credits.invalid": Code(InvalidRequest, 422, "An amount of credits cannot be used.", "Give numbers that are not negative."),
    "credits.own": Code(Denied, 403, "An agent does not raise its own budget.", "Ask the owner for more: `crib_ask_owner`."),
    "notify.invalid": Code(InvalidRequest, 422, "A notice or a channel for notices cannot be used like that.", "Mend what the message names."),
    "notify.unknown": Code(NotFound, 404, "There is no such channel for notices.", "List them with `crib_configure_notifications`."),
    "notify.failed": Code(Unavailable, 502, "A notice could not be delivered.", "Read the reason; the notice stands in the console all the same."),
    "notify.refused": Code(Denied, 403, "A person did not agree to a new channel for notices.", "Do without it."),
    "crew.no_agent": Code(InvalidRequest, 422, "The tool is for agents, and nobody called it as one.", "Call it as an agent: in its session, at its address or with its token."),
    "crew.no_session": Code(InvalidRequest, 422, "The tool is for sessions, and the call comes from none.", "Call it in a session."),
    "crew.to_self": Code(InvalidRequest, 422, "An agent does not send messages to itself.", "Choose another agent: `crib_list_agents`."),
    "crew.too_deep": Code(Denied, 403, "Too many agents have handed the work on already.", "Do it yourself, or say that it cannot be done."),
    "crew.duplicate": Code(Conflict, 409, "The same message was sent a moment ago.", "Its answer came, or will come, with that call."),
    "crew.limit": Code(Denied, 429, "A session has sent as much to other agents as it may.", "Go on with what they answered."),
    "crew.thread": Code(NotFound, 404, "There is no such thread for this sender and this agent.", "Leave the thread out: a new one begins."),
    "crew.busy": Code(Conflict, 409, "The other agent still works on what it was asked before.", "Wait for that answer, or begin another thread."),
    "crew.no_answer": Code(Unavailable, 502, "Another agent gave no answer.", "Look at its session, or do without it."),
    "question.timeout": Code(Unavailable, 504, "No person answered in time.", "Go on with what is safe without an answer, or ask again later."),
    "session.extend": Code(Conflict, 409, "A turn cannot be given more time.", "Come to an end, and go on in another turn."),
    "schedule.limit": Code(Denied, 429, "An agent has as many schedules as it may.", "Delete one first."),
    "schedule.own": Code(Denied, 403, "An agent schedules itself, and changes schedules of its own, and no others.", "Leave the agent out, or ask the owner."),
    "code.outside": Code(Denied, 403, "A directory is neither the caller's nor in a project.", "Leave the directory out, or name one of `crib_list_projects`."),
    "code.no_directory": Code(NotFound, 404, "There is no such directory.", "Name one that exists, or leave it out."),
    "code.failed": Code(Unavailable, 503, "Source code could not be read.", "Reinstall with `pip install 'toolcrib[code]'`, then try again."),
    "github.invalid": Code(InvalidRequest, 422, "Something cannot be a name on GitHub.", "Write repositories as `owner/name`."),
    "github.owner": Code(Denied, 403, "Nothing may be written to what belongs to this owner.", "Do without it, or ask the owner of the crib to add it to `github_organisations`."),
    "github.quota": Code(Denied, 429, "A session that no person leads has written to GitHub as often as it may.", "Go on without it, and tell the owner what is left: `crib_notify_owner`."),
    "github.token": Code(ConfigError, 502, "GitHub does not accept the token.", "Ask the owner to set a valid `TOOLCRIB_GITHUB_TOKEN` and start the crib again."),
    "github.forbidden": Code(Denied, 403, "The token may not do this on GitHub.", "Do without it, or ask the owner for a token that may."),
    "github.limited": Code(Unavailable, 429, "GitHub takes no more requests for a while.", "Come back at the time that is named."),
    "github.unknown": Code(NotFound, 404, "GitHub does not have what was named, or hides it from the token.", "Check the name; look with `crib_github_repo_info`, `crib_github_list_prs` or `crib_github_list_issues`."),
    "github.refused": Code(InvalidRequest, 422, "GitHub refused a request as it was.", "Change what the message names."),
    "github.failed": Code(Unavailable, 502, "GitHub cannot be reached, or its answer cannot be used.", "Try again in a minute; if it stays so, check `github_url`."),
    "plugin.unknown": Code(NotFound, 404, "No plugin of this name is installed.", "Run `toolcrib plugins list`."),
    "plugin.not_granted": Code(NotFound, 404, "Nothing was granted to this plugin.", "Run `toolcrib plugins grant` with its name."),
    "plugin.manifest": Code(ConfigError, 422, "The manifest of a plugin is missing or cannot be used, so it is not loaded.", "Tell whoever made the plugin."),
    "plugin.changed": Code(Conflict, 409, "A plugin is not what was shown any more.", "Look at it again, then grant that."),
    "plugin.failed": Code(ConfigError, 422, "A plugin was granted and could not be loaded; the others work.", "Read the reason; the trace is in the log."),
    "work.unknown": Code(NotFound, 404, "There is no such work task, or not for this asker.", "List them with `crib_list_work_tasks`."),
    "work.not_a_repository": Code(InvalidRequest, 422, "The directory is not in a git repository, so no branch can be made of it.", "Name a directory of a git repository with at least one commit."),
    "work.elsewhere": Code(Denied, 403, "A program gives work only in the repository it works in.", "Leave the project out, or ask the owner."),
    "work.git": Code(Unavailable, 503, "git is not there, or failed.", "Read what it said; run the command by hand to see more."),
    "work.limit": Code(Denied, 429, "As many work tasks are running as may be.", "Wait until one has ended."),
    "work.running": Code(Conflict, 409, "The work task is running.", "Wait for its end."),
    "script.invalid": Code(ConfigError, 422, "A script of the scripted model cannot be used as it is written.", "Mend what the message names."),
    "client.unknown": Code(NotFound, 404, "No tool of this name can be connected.", "Run `toolcrib connect` to see all; `toolcrib mcp export` writes for any other."),
    "client.missing": Code(NotFound, 404, "The tool to connect was not found on this machine.", "Start it once, or add `--anyway`."),
    "client.not_connected": Code(NotFound, 404, "The tool is not connected to this crib.", "Run `toolcrib connect` to see which are."),
    "client.declined": Code(Denied, 403, "A person did not agree to a change of a tool's file.", "Nothing was changed."),
    "trust.unreadable": Code(ConfigError, 503, "The records of trust cannot be read, so nothing is trusted.", "Mend or remove the file that is named."),
}  # fmt: skip
