"""`toolcrib mcp search` and `toolcrib mcp add registry:NAME`: servers from the MCP registry.

Must never add a server without showing what will run, who published it, and its sandbox.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import ask_line, can_ask, confirm
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.mcp.show import question_lines
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from toolcrib.model.json import JsonObject

PREFIX = "registry:"


@dataclass(frozen=True, slots=True)
class RegistryChoice:
    """What the user typed for `mcp add registry:NAME`. `pairs` are `NAME=VALUE` for inputs of the server."""

    name: str
    option: str | None
    local_name: str | None
    pairs: "Sequence[str]"
    scope: str
    disabled: bool
    yes: bool


def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="Words to search for.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="The most matches.")] = 20,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search the MCP registry. `registry_url` in the settings says which, or names a snapshot file."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.registry.search(" ".join(words), limit))
    if invocation.as_json:
        output.document(found)
    elif not found:
        output.note("No servers found.")
    else:
        output.table(("name", "version", "runs as", "publisher", "description"), [_row(each) for each in found])
        output.note(f"\nAdd one with `toolcrib mcp add {PREFIX}NAME`.")


def _row(server: "JsonObject") -> tuple[str, str, str, str, str]:
    options = ", ".join(str(option["id"]) for option in server["options"])
    marked = "" if server["status"] == "active" else f"({server['status']}) "
    return server["name"], server["version"], options, server["publisher"], marked + server["description"]


def add_published(invocation: Invocation, choice: RegistryChoice) -> None:
    """Show what a published server would run, and add it after confirmation."""
    body = _body(choice)
    plan = ask_crib(invocation, lambda client: client.registry.plan(body))
    if plan["missing"] and can_ask() and not choice.yes:
        body["values"] = {**body["values"], **_ask_missing(plan)}
        plan = ask_crib(invocation, lambda client: client.registry.plan(body))
    for line in plan_lines(plan):
        output.note(line)
    if not choice.yes:
        if not can_ask():
            message = "Adding a published server requires confirmation, but there is no terminal. Nothing was added."
            raise InvalidRequest("cli.usage", message, "Review the output above, then add `--yes`.")
        if not confirm("Add this server?"):
            raise typer.Exit(1)
    final: JsonObject = {**body, "digest": plan["digest"], "scope": choice.scope}
    final["disabled"] = choice.disabled
    done = ask_crib(invocation, lambda client: client.registry.install(final))
    if invocation.as_json:
        output.document(done)
    else:
        name = plan["name"]
        output.line(f'Added "{name}" to {done["server"]["change"]["file"]}.')
        output.note(f"Run `toolcrib mcp test {name}` to start it and to see findings in its tools.")
    output.warn_all(done["server"]["problems"])


def plan_lines(plan: "JsonObject") -> "list[str]":
    """Return what to review before a published server is added, without truncation."""
    server, option = plan["server"], plan["option"]
    package = " ".join(part for part in (option["kind"], option["identifier"], option["version"]) if part)
    status = None if server["status"] == "active" else f"{server['status']} by its publisher"
    facts = [
        ("published", f"{server['name']} {server['version']}"),
        ("publisher", server["publisher"]),
        ("source", server.get("repository") or server.get("website") or "not published"),
        ("registry", plan["registry"]),
        ("package", package),
        ("sha256", option.get("sha256")),
        ("status", status),
        ("sandbox", plan["sandbox"]["profile"] if option["kind"] != "remote" else None),
        ("not set", ", ".join(plan["missing"]) or None),
    ]
    lines = [f"  {name + ':':<12} {value}".replace("\n", "\\n") for name, value in facts if value]
    findings = [f"  finding: {each['message']}" for each in plan["findings"]]
    shown = [line for line in question_lines(plan["question"]) if not line.startswith("  defined by:")]
    return [*lines, *shown, *findings]


def _body(choice: RegistryChoice) -> "JsonObject":
    name, at, version = choice.name.partition("@")
    body: JsonObject = {"name": name, "values": _values(choice.pairs)}
    body |= {"version": version} if at else {}
    body |= {"option": choice.option} if choice.option else {}
    return body | ({"localName": choice.local_name} if choice.local_name else {})


def _values(pairs: "Iterable[str]") -> "dict[str, list[str]]":
    values: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest("cli.usage", f"{pair!r} is not NAME=VALUE.")
        values.setdefault(name, []).append(value)
    return values


def _ask_missing(plan: "JsonObject") -> "dict[str, list[str]]":
    """Prompt for required values; an empty answer leaves a reference to an environment variable."""
    known = {each["name"]: each for each in plan["option"]["inputs"]}
    answers: dict[str, list[str]] = {}
    for name in plan["missing"]:
        about = known[name]["description"]
        answer = ask_line(f"{name}{f' ({about})' if about else ''}, empty for an environment variable")
        if answer:
            answers[name] = [answer]
    return answers
