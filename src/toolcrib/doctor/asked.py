"""Checks that ask a crib: servers that do not start, tools, rules, the record, tokens, tools that are connected.

Above: the command line gives a client of the crib that runs, or of one of its own. Below: `client`. What a server said
when it failed is looked through for the usual reasons; the sentence of the crib stays as it is.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import anyio

from toolcrib.client import Client
from toolcrib.doctor.finding import Finding, Severity, counted, of_problem
from toolcrib.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.version import __version__

Asking = Callable[[Client], AsyncIterator[Finding]]

SERVERS_SECONDS: Final = 90.0
_REASONS: Final = (
    (re.compile(r"command_not_found|ENOENT|not on the PATH|No such file", re.IGNORECASE), "its command is not there"),
    (
        re.compile(r"E404|404 Not Found|not in this registry|not found in the package registry|No solution found"),
        "its package is not in the registry",
    ),
    (
        re.compile(r"EBADENGINE|Unsupported engine|requires? node|ERR_REQUIRE_ESM|node: bad option", re.IGNORECASE),
        "it needs another version of Node.js",
    ),
    (re.compile(r"certificate|SSL|TLS", re.IGNORECASE), "the certificate of its address is not accepted"),
    (re.compile(r"\b401\b|\b403\b|[Uu]nauthor|sign in|API key"), "it does not accept who asks"),
    (re.compile(r"KeyError|(?:is|not) (?:required|set)|[Mm]issing .*(?:key|token|variable)"), "a value is missing"),
    (re.compile(r"timed? ?out|did not answer|in time", re.IGNORECASE), "it does not answer in time"),
)


async def ask(client: Client) -> list[Finding]:
    """Everything that is to be said with a crib at hand."""
    return [finding for name, asking in ASKED.items() for finding in await _asked(name, asking, client)]


async def _asked(name: str, asking: Asking, client: Client) -> list[Finding]:
    found: list[Finding] = []
    try:
        found += [finding async for finding in asking(client)]
    except ToolcribError as error:
        found.append(Finding(name, "error", error.message, error.code, error.hint))
    return found


async def check_servers(client: Client) -> AsyncIterator[Finding]:
    """Every server that may be used answers."""
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
        message = f'Server "{name}" wants its owner to sign in (HTTP 401).'
        return Finding("servers", "warning", message, server["sentence"], action)
    said = " ".join([server["sentence"], server.get("lastError", ""), *server.get("stderr", [])[-5:]])
    reason = next((words for pattern, words in _REASONS if pattern.search(said)), None)
    message = f'Server "{name}" does not start' + (f": {reason}." if reason else ".")
    return Finding("servers", "error", message, said.strip()[:1000], action)


async def check_tools(client: Client) -> AsyncIterator[Finding]:
    """Every module of the owner's folder, and every definition, can be used."""
    modules = {"tool.module", "tool.definition", "tool.server_exists", "plugin.failed", "plugin.manifest"}
    wrong = [each for each in await client.tool_problems() if each["code"] in modules]
    for problem in wrong:
        yield _of_shape("tools", "error", problem)
    if not wrong:
        yield Finding("tools", "ok", "Every module with tools is loaded.")


async def check_rules(client: Client) -> AsyncIterator[Finding]:
    """Every rule that somebody wrote is in force."""
    wrong = await client.permissions.problems()
    for problem in wrong:
        yield _of_shape("rules", "error", problem)
    if not wrong:
        yield Finding("rules", "ok", "Every rule can be used.")


async def check_record(client: Client) -> AsyncIterator[Finding]:
    """The record of calls is whole."""
    report = await client.verify_audit()
    for found in report["findings"]:
        yield Finding("audit", "error", found["message"], f"record {found.get('record', '?')}", "toolcrib audit verify")
    if report["ok"]:
        yield Finding("audit", "ok", f"The record of {report['records']} entries is whole.")


async def check_tokens(client: Client) -> AsyncIterator[Finding]:
    """Every token that was handed out still stands for somebody."""
    agents = {agent["id"] for agent in await client.agents()}
    live = [token for token in await client.permissions.tokens() if "revokedAt" not in token]
    used = {_token_of(each, found) for each in await client.connections.list() for found in each["connections"]}
    for token in live:
        name = token["name"]
        if token.get("agent") is not None and token["agent"] not in agents:
            message = f"The token {name!r} is bound to the agent {token['agent']!r}, which is gone."
            yield Finding("tokens", "warning", message, token["createdAt"], f"toolcrib tokens revoke {name}")
        elif name.startswith("connect-") and name not in used:
            message = f"The token {name!r} was made for a tool whose file does not have it any more."
            yield Finding("tokens", "note", message, token["createdAt"], f"toolcrib tokens revoke {name}")
    yield Finding("tokens", "ok", f"In use: {counted(len(live), 'token')}.")


def _token_of(client: JsonObject, connection: JsonObject) -> str:
    agent = f"-{connection['agent']}" if connection["agent"] is not None else ""
    return f"connect-{client['client']}{agent}"


async def check_connections(client: Client) -> AsyncIterator[Finding]:
    """Every tool that was connected reaches this crib."""
    connected = 0
    for each in await client.connections.list():
        for found in each["connections"]:
            agent = f" --agent {found['agent']}" if found["agent"] is not None else ""
            connected += not found["stale"]
            for reason in found["stale"]:
                message = f"{each['title']} does not reach this crib: {reason}."
                where = f"{found['file']}:{found['line']}" if found["line"] else found["file"]
                yield Finding("connections", "warning", message, where, f"toolcrib connect {each['client']}{agent}")
    yield Finding("connections", "ok", f"Connected: {counted(connected, 'tool')}.")


def _of_shape(check: str, severity: Severity, shape: JsonObject) -> Finding:
    said = (shape.get(part) for part in ("hint", "file", "line"))
    return of_problem(check, severity, Problem(shape["code"], shape["message"], *said))


def of_version(running: str) -> Finding | None:
    """That the crib that runs is of another version than this command."""
    if running == __version__:
        return None
    message = f"The crib that runs is Toolcrib {running}, this command is {__version__}."
    return Finding("holder", "warning", message, fix="Stop it and run `toolcrib serve` again.")


ASKED: Mapping[str, Asking] = {
    "servers": check_servers,
    "tools": check_tools,
    "rules": check_rules,
    "audit": check_record,
    "tokens": check_tokens,
    "connections": check_connections,
}
