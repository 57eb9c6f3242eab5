"""Writes docs/reference from the code: error codes, settings, commands, events, routes. Run by `make docs`.

The tables of the code are the truth; a test fails when a page differs from what this would write. A throw-away crib is
asked for its routes; nothing here reads the machine's settings or depends on where it runs.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from toolcrib.cli.main import app
from toolcrib.errors import CODES, ToolcribError
from toolcrib.host import Crib
from toolcrib.model.events import HOST_EVENT_KINDS, HostEventKind
from toolcrib.model.sessions import SESSION_EVENT_KINDS, SessionEventKind
from toolcrib.server.api import create_api
from toolcrib.server.login import Logins
from toolcrib.settings import SETTINGS, Environment, Setting, Settings

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "<!-- Made by `make docs` from the code; changes here are lost. -->"

EVENTS: dict[HostEventKind, str] = {
    "server_changed": "A server came, went or changed its state.",
    "catalog_changed": "Tools were added, removed or changed: `version`, `added`, `removed`, `changed`.",
    "approval_required": "A person has to answer.",
    "approval_resolved": "A question to a person was answered, expired or was withdrawn.",
    "session_changed": "A session came, went or changed its state.",
    "agent_changed": "An agent was created, changed or deleted.",
    "config_changed": "A file with servers or settings changed.",
    "notice": "Something the owner should read.",
}

SESSION_EVENTS: dict[SessionEventKind, tuple[str, str]] = {
    "session_status": (
        "`state`, `mode`, `model`, `costUsd`, `inputTokens`, `outputTokens`, `servers[{name, state, tools}]`, "
        "`reason?`",
        "How the session stands: starting, running, waiting (for a person), idle, interrupted, failed or closed.",
    ),
    "user_message": ("`messageId`, `content`, `queued`", "Somebody said something; `queued`: during another answer."),
    "text_delta": ("`messageId`, `text`", "The next piece of what the agent says."),
    "thinking_delta": ("`messageId`, `text`", "The next piece of what it thinks."),
    "text_message": ("`messageId`, `text`", "The whole of what it said; ends the pieces."),
    "tool_call_start": ("`toolCallId`, `toolName`, `server`, `tool`", "The agent begins a call."),
    "tool_call_delta": ("`toolCallId`, `partialJson`", "The next piece of its arguments."),
    "tool_call_end": ("`toolCallId`, `arguments`", "The call is complete."),
    "approval_required": (
        "`approvalId`, `toolCallId`, `server`, `tool`, `arguments`, `reason`, `expiresAt`",
        "A person has to judge the call.",
    ),
    "approval_resolved": ("`approvalId`, `decision`, `by?`, `reason?`", "approved, denied, expired or withdrawn."),
    "question_prompt": ("`questionId`, `questions[]`", "The agent asks the person."),
    "question_answered": ("`questionId`, `answers`", "The answers by question; none if nobody answered."),
    "tool_result": (
        "`toolCallId`, `isError`, `content[]`, `structuredContent?`, `durationMs`",
        "What the call gave back.",
    ),
    "error": ("`code`, `message`, `hint?`", "Something failed."),
    "done": ("`reason`, `costUsd?`, `turns?`", "The answer has ended: completed, interrupted, failed or limit."),
}


def cell(text: object) -> str:
    """Text that stays within a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def page(title: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", NOTE, *parts]) + "\n"


def errors() -> str:
    """Every code with class, status, exit code, meaning and next step."""
    classes: list[type[ToolcribError]] = list(dict.fromkeys(code.raised_as for code in CODES.values()))
    return page(
        "Error codes",
        "A failure has a `code` that never changes its meaning, a message that names the thing, and usually a hint. "
        "REST answers `application/problem+json` with `code`, `title`, `detail`, `hint`; the command line prints "
        "message and hint and ends with the exit code of the class.",
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
    """The default in words; the home's depends on the platform."""
    if setting.name == "home":
        return "the platform's folder for user data"
    value = setting.show(getattr(Settings(home=Path()), setting.name))
    return "unset" if value is None else f"`{value}`"


def settings() -> str:
    """Every setting with its variable, flag, default and meaning."""
    return page(
        "Settings",
        "Flags win over variables of the environment, these over `toolcrib.toml` in the home, that over the defaults. "
        "`toolcrib settings` prints each value and where it comes from.",
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
    """The kinds of events of the host and of sessions."""
    return page(
        "Events",
        "`GET /api/events` is a stream of server-sent events: `id` is the number, `event` the kind, `data` JSON with "
        "`seq`, `at` and `kind` beside the fields of the kind. `Last-Event-ID` or `?after=SEQ` resumes without gap or "
        "repeat; what is no longer kept answers 410 `feed.gone`. Ignore kinds you do not know. A kind whose part this "
        "version does not have yet never occurs.",
        table(["kind", "meaning"], [[f"`{kind}`", EVENTS[kind]] for kind in HOST_EVENT_KINDS]),
        "## Sessions",
        "`GET /api/sessions/{id}/events` is the stream of one session, of the same form; each event also has "
        "`sessionId` and, inside a sub-agent, `parentToolCallId`. An event is durable before it is sent. Of a call the "
        "start comes first, its approval after that, its result after the answer; `done` is the last of a turn.",
        table(
            ["kind", "fields", "meaning"],
            [[f"`{kind}`", *SESSION_EVENTS[kind]] for kind in SESSION_EVENT_KINDS],
        ),
    )


COMMON = ("--home", "--json")


def command(path: str, one: TyperCommand | TyperGroup) -> Iterator[str]:
    """The sections of a command and of those below it. Options that all commands have are told once, by the page."""
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
    """Every command with its arguments and options."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    return page(
        "Commands",
        "Every command takes `--home DIR` (the home to use) and `--json` (machine-readable on standard output, talk on "
        "standard error). Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 unavailable.",
        *command("toolcrib", root),
    )


async def openapi() -> dict[str, Any]:
    """The description that a crib gives at `/api/openapi.json`."""
    with tempfile.TemporaryDirectory() as folder:
        async with Crib(Settings(home=Path(folder)), environment=Environment()) as crib:
            return create_api(crib, Logins("127.0.0.1:4242")).openapi()


def parameters(operation: dict[str, Any]) -> str:
    """What goes into the query, and the fields of the body."""
    query = [f"`{each['name']}`" for each in operation.get("parameters", []) if each["in"] == "query"]
    return ", ".join(query)


def routes() -> str:
    """Every route: those of REST from their description, the others by hand."""
    paths: dict[str, dict[str, dict[str, Any]]] = anyio.run(openapi)["paths"]
    return page(
        "Routes",
        "All but `/healthz` and `/login` need the token: `Authorization: Bearer …` with what is in the home's file "
        "`token`; the console uses a cookie. Host and Origin are checked everywhere. JSON is camelCase; failures are "
        "[problems with a code](errors.md). Shapes and fields are in `/api/openapi.json`.",
        table(
            ["route", "does"],
            [
                [
                    "`POST /mcp`",
                    "MCP over Streamable HTTP, spec 2025-11-25 and 2026-07-28; also `GET`, `DELETE` (2025).",
                ],
                ["`GET /healthz`", "Says that the crib is there."],
                ["`GET /`", "The console."],
                ["`GET /login?code=…`", "Lets a browser in, once."],
            ],
        ),
        table(
            ["route", "does", "query"],
            [
                [f"`{method.upper()} {path}`", operation.get("description", ""), parameters(operation)]
                for path, methods in paths.items()
                for method, operation in methods.items()
            ],
        ),
    )


REFERENCE: dict[str, Callable[[], str]] = {
    "errors": errors,
    "settings": settings,
    "cli": commands,
    "routes": routes,
    "events": events,
}


def main() -> int:
    """Write every page."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, make in REFERENCE.items():
        (PAGES / f"{name}.md").write_text(make(), encoding="utf-8")
        print(f"docs/reference/{name}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
