"""Generates docs/reference from the code: error codes, settings, commands, events, routes. Run by `make docs`.

Also writes the table of apps in docs/connect.md.

A test fails when a committed page differs from the generated one. The routes come from a temporary crib. Must never
read the settings of the machine.
"""

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from toolcrib.base.settings import SETTINGS, Environment, Setting, Settings
from toolcrib.cli.main import command_tree
from toolcrib.host import Crib
from toolcrib.model.errors import CODES, ToolcribError
from toolcrib.model.events import HOST_EVENT_KINDS, HostEventKind
from toolcrib.model.sessions import SESSION_EVENT_KINDS, SessionEventKind
from toolcrib.servers.apps.connectable import CONNECTABLE
from toolcrib.servers.export import takes_http
from toolcrib.servers.places import TABLE, Machine, directory_of
from toolcrib.servers.readers.apps import CLIENTS, FORMATS
from toolcrib.servers.readers.citations import CITATIONS
from toolcrib.web.api.routes import create_api
from toolcrib.web.login import Logins

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
CONNECT_PAGE = PAGES.parent / "connect.md"
APPS_BEGIN = "<!-- Generated from the code by `make docs`: apps. -->"
APPS_END = "<!-- End of the generated part. -->"
NOTE = "<!-- Generated from the code by `make docs`. Do not edit. -->"

EVENTS: dict[HostEventKind, str] = {
    "server_changed": "A server was added, removed or changed its state.",
    "catalog_changed": "Tools were added, removed or changed: `version`, `added`, `removed`, `changed`.",
    "approval_required": "An approval or question is waiting for a person.",
    "approval_resolved": "An approval or question was answered, expired or was withdrawn.",
    "session_changed": "A session was created, deleted or changed its state.",
    "agent_changed": "An agent was created, changed or deleted.",
    "config_changed": "A configuration or settings file changed.",
    "notice": "A message for the owner.",
}

SESSION_EVENTS: dict[SessionEventKind, tuple[str, str]] = {
    "session_status": (
        "`state`, `mode`, `model`, `costUsd`, `inputTokens`, `outputTokens`, `servers[{name, state, tools}]`, "
        "`reason?`",
        "State of the session: starting, running, waiting (for a person), idle, interrupted, failed or closed.",
    ),
    "user_message": ("`messageId`, `content`, `queued`", "A message to the agent. `queued`: sent during an answer."),
    "text_delta": ("`messageId`, `text`", "The next part of the agent's message."),
    "thinking_delta": ("`messageId`, `text`", "The next part of the agent's thinking."),
    "text_message": ("`messageId`, `text`", "The complete message; ends its deltas."),
    "tool_call_start": ("`toolCallId`, `toolName`, `server`, `tool`", "The agent starts a tool call."),
    "tool_call_delta": ("`toolCallId`, `partialJson`", "The next part of the arguments."),
    "tool_call_end": ("`toolCallId`, `arguments`", "The arguments are complete."),
    "approval_required": (
        "`approvalId`, `toolCallId`, `server`, `tool`, `arguments`, `reason`, `expiresAt`",
        "The call requires approval.",
    ),
    "approval_resolved": (
        "`approvalId`, `decision`, `by?`, `reason?`",
        "The approval was approved, denied, expired or withdrawn.",
    ),
    "question_prompt": ("`questionId`, `questions[]`", "The agent asks a person."),
    "question_answered": ("`questionId`, `answers`", "The answers by question; empty if unanswered."),
    "tool_result": (
        "`toolCallId`, `isError`, `content[]`, `structuredContent?`, `durationMs`",
        "The result of the call.",
    ),
    "error": ("`code`, `message`, `hint?`", "An error occurred."),
    "done": ("`reason`, `costUsd?`, `turns?`", "The turn ended: completed, interrupted, failed or limit."),
}


def cell(text: object) -> str:
    """Return text escaped for a table cell."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def page(title: str, *parts: str) -> str:
    """Return a page."""
    return "\n\n".join([f"# {title}", NOTE, *parts]) + "\n"


def errors() -> str:
    """Return the page of error codes."""
    classes: list[type[ToolcribError]] = list(dict.fromkeys(code.raised_as for code in CODES.values()))
    return page(
        "Error codes",
        "Every error has a stable `code`, a message and usually a hint with the next step. The REST API returns "
        "`application/problem+json` with `code`, `title`, `detail` and `hint`. The command line prints the message and "
        "the hint, and exits with the exit code of the class.",
        table(
            ["class", "exit code", "meaning"],
            [[f"`{each.__name__}`", each.exit_code, each.__doc__] for each in classes],
        ),
        table(
            ["code", "class", "status", "meaning", "what to do"],
            [
                [f"`{name}`", f"`{code.raised_as.__name__}`", code.status, code.meaning, code.hint or ""]
                for name, code in CODES.items()
            ],
        ),
    )


def default_of(setting: Setting) -> str:
    """Return the default as text; that of the home depends on the platform."""
    if setting.name == "home":
        return "the platform's user data directory"
    value = setting.show(getattr(Settings(home=Path()), setting.name))
    return "unset" if value is None else f"`{value}`"


def settings() -> str:
    """Return the page of settings."""
    return page(
        "Settings",
        "Flags take precedence over environment variables, then `toolcrib.toml` in the home, then the defaults. "
        "`toolcrib settings` prints each value and its origin.",
        table(
            ["key in `toolcrib.toml`", "variable", "flag", "default", "value", "meaning"],
            [
                [
                    f"`{each.name}`" if each.in_file else "",
                    f"`{each.variable}`",
                    f"`{each.flag}`" if each.flag else "",
                    default_of(each),
                    each.expected,
                    each.help,
                ]
                for each in SETTINGS
            ],
        ),
    )


def events() -> str:
    """Return the page of events."""
    return page(
        "Events",
        "`GET /api/events` streams server-sent events: `id` is the sequence number, `event` the kind, `data` JSON with "
        "`seq`, `at`, `kind` and the fields of the kind. `Last-Event-ID` or `?after=SEQ` resumes without gaps or "
        "repeats. If the events are no longer available, the response is 410 `feed.gone`. Ignore unknown kinds.",
        table(["kind", "meaning"], [[f"`{kind}`", EVENTS[kind]] for kind in HOST_EVENT_KINDS]),
        "## Sessions",
        "`GET /api/sessions/{id}/events` streams the events of one session in the same format. Each event also has "
        "`sessionId` and, inside a sub-agent, `parentToolCallId`. Events are stored before they are sent. The "
        "events of a call come in order: start, approval, result. `done` is the last event of a turn.",
        table(
            ["kind", "fields", "meaning"],
            [[f"`{kind}`", *SESSION_EVENTS[kind]] for kind in SESSION_EVENT_KINDS],
        ),
    )


COMMON = ("--home", "--json")


def command(path: str, one: TyperCommand | TyperGroup) -> Iterator[str]:
    """Yield the sections of a command and its subcommands, without the options that all commands share."""
    context = typer.Context(one, info_name=path)
    records = [each.get_help_record(context) for each in one.params if each.opts[0] not in COMMON]
    yield f"## `{path}`"
    yield one.help or ""
    yield f"```\n{path} {' '.join(one.collect_usage_pieces(context))}\n```"
    if rows := [(f"`{name}`", text) for name, text in filter(None, records)]:
        yield table(["argument or option", "meaning"], rows)
    for name, below in one.commands.items() if isinstance(one, TyperGroup) else ():
        assert isinstance(below, TyperCommand | TyperGroup)
        yield from command(f"{path} {name}", below)


def commands() -> str:
    """Return the page of commands."""
    root = get_command(command_tree())
    assert isinstance(root, TyperGroup)
    return page(
        "Commands",
        "Every command accepts `--home DIR` (the home to use) and `--json` (JSON on standard output, messages on "
        "standard error). Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 unavailable.",
        *command("toolcrib", root),
    )


async def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a crib."""
    with tempfile.TemporaryDirectory() as folder:
        async with Crib(Settings(home=Path(folder)), environment=Environment()) as crib:
            return create_api(crib, Logins("127.0.0.1:4242")).openapi()


def parameters(operation: dict[str, Any]) -> str:
    """Return the query parameters of an operation."""
    query = [f"`{each['name']}`" for each in operation.get("parameters", []) if each["in"] == "query"]
    return ", ".join(query)


def routes() -> str:
    """Return the page of routes: REST from OpenAPI, the others listed here."""
    paths: dict[str, dict[str, dict[str, Any]]] = anyio.run(openapi)["paths"]
    return page(
        "Routes",
        "All routes except `/healthz` and `/login` require the token from the home's `token` file, as "
        "`Authorization: Bearer …`; the console uses a cookie. Host and Origin are checked on all routes. JSON is "
        "camelCase; errors are [problems with a code](errors.md). All schemas are in `/api/openapi.json`.",
        table(
            ["route", "description"],
            [
                [
                    "`POST /mcp`",
                    "MCP over Streamable HTTP, versions 2025-11-25 and 2026-07-28; also `GET` and `DELETE` (2025).",
                ],
                ["`GET /healthz`", "Health check."],
                ["`GET /metrics`", "[Metrics](../telemetry.md) for Prometheus, for the owner."],
                ["`GET /`", "The console."],
                ["`GET /login?code=…`", "Sign in a browser, once."],
            ],
        ),
        table(
            ["route", "description", "query parameters"],
            [
                [f"`{method.upper()} {path}`", operation.get("description", ""), parameters(operation)]
                for path, methods in paths.items()
                for method, operation in methods.items()
            ],
        ),
    )


def apps() -> str:
    """Return the table of apps: their files, and whether they are written."""
    connected = {row.name: row for row in CONNECTABLE}
    listed = [client for client in CITATIONS if client != "kilo-legacy"]
    order = sorted(listed, key=lambda name: (name not in connected, CLIENTS[name].title.lower()))
    return table(
        ["app", "name", "files read", "servers under", "`connect`", "`export`"],
        [
            [
                f"[{CLIENTS[name].title}]({CITATIONS[name]})",
                f"`{name}`",
                ", ".join(f"`{path}`" for path in app_files(name)),
                f"`{'.'.join(CLIENTS[name].roots[0])}`",
                "" if name not in connected else "HTTP" if takes_http(name) else "stdio",
                "yes" if CLIENTS[name].writable else "",
            ]
            for name in order
        ],
    )


def app_files(client: str) -> list[str]:
    """Return the files of an app on Linux, those of plugins and extensions included."""
    rows = [row for row in TABLE if FORMATS[row.format].client == client and "linux" in row.systems]
    extra = {
        "claude-code": ["{claude}/plugins/installed_plugins.json"],
        "gemini": ["~/.gemini/extensions/*/gemini-extension.json"],
        "qwen": ["~/.qwen/extensions/*/qwen-extension.json"],
    }
    return list(
        dict.fromkeys(_PLACES.sub(_place, path) for path in [*(row.path for row in rows), *extra.get(client, [])])
    )


_PLACES = re.compile(r"^\{[a-z-]+\}")


def _place(word: re.Match[str]) -> str:
    """Return the value of a word in braces when no variable moves it."""
    root = directory_of(word[0], Machine(Path("~"), Path("~/.local/share/toolcrib"), {}))
    return str(root) if root is not None else "$OPENCODE_CONFIG"


def connect_page(text: str) -> str:
    """Return docs/connect.md with the current table of apps."""
    before, after = text.split(APPS_BEGIN)[0], text.split(APPS_END)[1]
    return f"{before}{APPS_BEGIN}\n\n{apps()}\n\n{APPS_END}{after}"


REFERENCE: dict[str, Callable[[], str]] = {
    "errors": errors,
    "settings": settings,
    "cli": commands,
    "routes": routes,
    "events": events,
}


def main() -> int:
    """Write all pages."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, make in REFERENCE.items():
        (PAGES / f"{name}.md").write_text(make(), encoding="utf-8")
        print(f"docs/reference/{name}.md")
    CONNECT_PAGE.write_text(connect_page(CONNECT_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("docs/connect.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
