"""Checks that query a crib: servers, tools, rules, the audit log, tokens, connected apps.

The reason of a failed server is found by its error code, or else in the output of its program. The crib's own message
is kept as evidence.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import anyio

from toolcrib.doctor.finding import Finding, Severity, counted, of_problem
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.version import __version__
from toolcrib.web.api_client.api_client import ApiClient

Asking = Callable[[ApiClient], AsyncIterator[Finding]]

SERVERS_SECONDS: Final = 90.0
_ASK_APPS: Final = "toolcrib rules ask '*' --source ide --not-read-only"
_REASON_BY_CODE: Final = {
    "server.command_not_found": "command not found",
    "server.token_refused": "the server rejected the credentials",
    "server.variable_missing": "a required value is missing",
    "server.secret_missing": "a required value is missing",
    "server.timeout": "the server did not answer in time",
}
_NETWORK_FAILURES: Final = frozenset({"server.unreachable", "server.http_status"})
_REASONS_IN_OUTPUT: Final = (
    (re.compile(r"ENOENT|No such file", re.IGNORECASE), "command not found"),
    (
        re.compile(r"E404|404 Not Found|not in this registry|not found in the package registry|No solution found"),
        "package not found in the registry",
    ),
    (
        re.compile(r"EBADENGINE|Unsupported engine|requires? node|ERR_REQUIRE_ESM|node: bad option", re.IGNORECASE),
        "it requires another version of Node.js",
    ),
    (re.compile(r"certificate|SSL|TLS", re.IGNORECASE), "the certificate of the server is not accepted"),
    (re.compile(r"\b401\b|\b403\b|[Uu]nauthor|sign in|API key"), "the server rejected the credentials"),
    (
        re.compile(r"KeyError|(?:is|not) (?:required|set)|[Mm]issing .*(?:key|token|variable)"),
        "a required value is missing",
    ),
    (re.compile(r"timed? ?out", re.IGNORECASE), "the server did not answer in time"),
)
"""What programs and libraries write, which have no codes of ours."""


async def ask(client: ApiClient) -> list[Finding]:
    """Run every check that needs a crib and return the findings."""
    return [finding for name, asking in ASKED.items() for finding in await _run_check(name, asking, client)]


async def _run_check(name: str, asking: Asking, client: ApiClient) -> list[Finding]:
    found: list[Finding] = []
    try:
        found += [finding async for finding in asking(client)]
    except ToolcribError as error:
        found.append(Finding(name, "error", error.message, error.code, error.hint))
    return found


async def check_servers(client: ApiClient) -> AsyncIterator[Finding]:
    """Check that every enabled server connects."""
    servers: list[JsonObject] = []
    with anyio.move_on_after(SERVERS_SECONDS) as limit:
        servers = await client.test_servers()
    if limit.cancelled_caught:
        message = f"Not all servers answered within {SERVERS_SECONDS:.0f} seconds."
        yield Finding("servers", "warning", message, fix="toolcrib mcp test")
        servers = await client.servers()
    for server in servers:
        if server["state"] in ("failed", "needs_auth"):
            yield _failing(server)
    connected = sum(server["state"] == "connected" for server in servers)
    yield Finding("servers", "ok", f"Connected: {connected} of {counted(len(servers), 'server')}.")


def _failing(server: JsonObject) -> Finding:
    name, action = server["name"], server.get("action") or None
    if server["state"] == "needs_auth":
        message = f'Server "{name}" requires sign-in (HTTP 401).'
        return Finding("servers", "warning", message, server["sentence"], action)
    error, stderr = server.get("lastError", ""), server.get("stderr", [])[-5:]
    reason = _reason(server.get("lastErrorCode", ""), error, stderr)
    message = f'Server "{name}" did not start' + (f": {reason}." if reason else ".")
    repeated = "" if error in server["sentence"] else error
    evidence = " ".join(part for part in (server["sentence"], repeated, *stderr) if part)
    return Finding("servers", "error", message, evidence[:1000], action)


def _reason(code: str, error: str, stderr: Sequence[str]) -> str | None:
    """Return why a server failed. An unreachable one has no output, but the error of the network library."""
    if code in _REASON_BY_CODE:
        return _REASON_BY_CODE[code]
    output = error if code in _NETWORK_FAILURES else " ".join(stderr)
    return next((words for pattern, words in _REASONS_IN_OUTPUT if pattern.search(output)), None)


async def check_tools(client: ApiClient) -> AsyncIterator[Finding]:
    """Check that every tool module and every tool definition loads."""
    modules = {"tool.module", "tool.definition", "tool.server_exists", "plugin.failed", "plugin.manifest"}
    wrong = [each for each in await client.tool_problems() if each["code"] in modules]
    for problem in wrong:
        yield _of_shape("tools", "error", problem)
    if not wrong:
        yield Finding("tools", "ok", "All tool modules are loaded.")


async def check_rules(client: ApiClient) -> AsyncIterator[Finding]:
    """Check that every rule is in force, can apply, and is not too broad."""
    wrong = await client.permissions.problems()
    for problem in wrong:
        yield _of_shape("rules", "error", problem)
    wide = [found for found in await client.permissions.check() if found["severity"] == "warning"]
    for found in wide:
        yield Finding("rules", "warning", found["message"], found["code"], found["fix"])
    for preset in await client.permissions.presets():
        if exposed := preset.get("suggestedFor"):
            message = (
                f"Able to read untrusted text and private data and to send data out or destroy things, all without "
                f"approval: {', '.join(exposed)}."
            )
            yield Finding("rules", "note", message, "preset.suggested", f"toolcrib rules preset {preset['id']}")
    if not wrong and not wide:
        yield Finding("rules", "ok", "All rules are valid.")


async def check_record(client: ApiClient) -> AsyncIterator[Finding]:
    """Check that the audit log is intact."""
    report = await client.verify_audit()
    for found in report["findings"]:
        yield Finding("audit", "error", found["message"], f"record {found.get('record', '?')}", "toolcrib audit verify")
    if report["ok"]:
        yield Finding("audit", "ok", f"The audit log is intact ({report['records']} records).")


async def check_tokens(client: ApiClient) -> AsyncIterator[Finding]:
    """Check that every live token belongs to an existing agent or app and has an access level."""
    agents = {agent["id"] for agent in await client.agents()}
    live = [token for token in await client.permissions.tokens() if "revokedAt" not in token]
    used = {
        _token_of(each, found): f"toolcrib connect {each['client']}{_as_agent(found)} --level ask"
        for each in await client.connections.list()
        for found in each["connections"]
    }
    for token in live:
        name = token["name"]
        if token.get("agent") is not None and token["agent"] not in agents:
            message = f"The token {name!r} is bound to the agent {token['agent']!r}, which was deleted."
            yield Finding("tokens", "warning", message, token["createdAt"], f"toolcrib tokens revoke {name}")
        elif token["source"] == "ide" and token["mode"] == "acceptEdits" and "level" not in token:
            message = f"The token {name!r} runs every tool without asking, and this was never confirmed."
            fix = used.get(name, f"toolcrib tokens revoke {name}")
            yield Finding("tokens", "warning", message, token["createdAt"], fix)
        elif name.startswith("connect-") and name not in used:
            message = f"The token {name!r} was created for an app whose file no longer contains it."
            yield Finding("tokens", "note", message, token["createdAt"], f"toolcrib tokens revoke {name}")
    yield Finding("tokens", "ok", f"In use: {counted(len(live), 'token')}.")


def _as_agent(connection: JsonObject) -> str:
    return f" --agent {connection['agent']}" if connection["agent"] is not None else ""


def _token_of(client: JsonObject, connection: JsonObject) -> str:
    agent = f"-{connection['agent']}" if connection["agent"] is not None else ""
    return f"connect-{client['client']}{agent}"


async def check_connections(client: ApiClient) -> AsyncIterator[Finding]:
    """Check that every connected app reaches this crib, and that a rule covers those without a token."""
    connected = 0
    is_decided = any(map(_covers_apps, await client.permissions.rules()))
    for each in await client.connections.list():
        for found in each["connections"]:
            agent = _as_agent(found)
            connected += not found["stale"]
            if not (found["hasToken"] or is_decided):
                message = f"{each['title']} runs every tool it sees without asking, and this was never confirmed."
                yield Finding("connections", "warning", message, found["file"], _ASK_APPS)
            for reason in found["stale"]:
                message = f"{each['title']} cannot reach this crib: {reason}."
                where = f"{found['file']}:{found['line']}" if found["line"] else found["file"]
                yield Finding("connections", "warning", message, where, f"toolcrib connect {each['client']}{agent}")
    yield Finding("connections", "ok", f"Connected: {counted(connected, 'app')}.")


def _covers_apps(rule: JsonObject) -> bool:
    """Return whether a rule covers all tools for apps."""
    return rule["pattern"] == "*" and "ide" in rule.get("where", {}).get("sources", ())


def _of_shape(check: str, severity: Severity, shape: JsonObject) -> Finding:
    details = (shape.get(part) for part in ("hint", "file", "line"))
    return of_problem(check, severity, Problem(shape["code"], shape["message"], *details))


def of_version(running: str) -> Finding | None:
    """Return a warning if the running crib has another version than this command."""
    if running == __version__:
        return None
    message = f"The running crib is Toolcrib {running}, but this command is {__version__}."
    return Finding("holder", "warning", message, fix="Stop it and run `toolcrib serve` again.")


ASKED: Mapping[str, Asking] = {
    "servers": check_servers,
    "tools": check_tools,
    "rules": check_rules,
    "audit": check_record,
    "tokens": check_tokens,
    "connections": check_connections,
}
