"""`toolcrib rules`: what is allowed, asked and denied, every change of that, and what a change would have done.

Above: `main`. Below: `client`, through `crib`. It must never judge a rule itself: the crib does.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin, common
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.client import Client
    from toolcrib.model.json import Json, JsonObject

app = typer.Typer(name="rules", rich_markup_mode=None)

PatternArgument = Annotated[
    str, typer.Argument(metavar="PATTERN", help="SERVER/TOOL with * for any, or a known name.", show_default=False)
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The rule.", show_default=False)]
_EFFECTS = {
    "allow": "Let tools run without asking; it never lets anybody see one.",
    "ask": "Have a person asked before tools run.",
    "deny": "Refuse tools; without --if they are not even listed. This always wins.",
}
_TESTS = ("equals", "glob", "regex", "range")


@app.callback()
def rules(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List, add, remove and try permission rules."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_rules(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List all rules: those of files first, then those that were added or answered."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "Client") -> "tuple[list[JsonObject], list[JsonObject]]":
        return await client.permissions.rules(), await client.permissions.problems()

    found, problems = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(found)
    elif found:
        output.table(
            ("id", "effect", "pattern", "only if", "origin", "until", "reason"), [_row(rule) for rule in found]
        )
    else:
        output.note("There are no rules: the modes decide.")
    output.warn_all(problems)


def add(
    ctx: typer.Context,
    pattern: PatternArgument,
    conditions: Annotated[
        list[str] | None,
        typer.Option("--if", metavar="TEST", help="'POINTER equals|glob|regex|range VALUE' on an argument."),
    ] = None,
    agents: Annotated[list[str] | None, typer.Option("--agent", metavar="A", help="Only for this agent.")] = None,
    sources: Annotated[list[str] | None, typer.Option("--source", metavar="S", help="Only from this source.")] = None,
    modes: Annotated[list[str] | None, typer.Option("--mode", metavar="M", help="Only in this mode.")] = None,
    projects: Annotated[
        list[Path] | None, typer.Option("--project", metavar="DIR", help="Only in this directory.")
    ] = None,
    read_only: Annotated[
        bool | None, typer.Option("--read-only/--not-read-only", help="Only tools so marked.", show_default=False)
    ] = None,
    destructive: Annotated[
        bool | None, typer.Option("--destructive/--not-destructive", help="Likewise.", show_default=False)
    ] = None,
    open_world: Annotated[
        bool | None, typer.Option("--open-world/--not-open-world", help="Likewise.", show_default=False)
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Told wherever it decides.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", metavar="TIME", help="Its end (ISO 8601).")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a rule whose effect is the name of the command."""
    invocation = begin(ctx, home, as_json)
    where = {
        "readOnly": read_only,
        "destructive": destructive,
        "openWorld": open_world,
        "agents": agents,
        "sources": sources,
        "modes": modes,
        "projects": [str(path.expanduser().absolute()) for path in projects or ()],
    }
    body: JsonObject = {
        "effect": ctx.info_name,
        "pattern": pattern,
        "conditions": [parse_condition(text) for text in conditions or ()],
        "where": {key: value for key, value in where.items() if value not in (None, [])},
        "reason": reason,
        "expiresAt": expires,
    }
    given = {key: value for key, value in body.items() if value not in (None, [], {})}
    rule = ask_crib(invocation, lambda client: client.permissions.add_rule(given))
    if invocation.as_json:
        output.document(rule)
    else:
        output.line(f"Added rule {rule['id']}: {describe_rule(rule)}.")


for _effect, _help in _EFFECTS.items():
    app.command(_effect, help=_help)(add)


@app.command("remove")
def remove(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Remove a rule that stands in no file."""
    invocation = begin(ctx, home, as_json)
    rule = ask_crib(invocation, lambda client: client.permissions.remove_rule(id))
    if invocation.as_json:
        output.document(rule)
    else:
        output.line(f"Removed rule {rule['id']}: {describe_rule(rule)}.")


@app.command("simulate")
def simulate(
    ctx: typer.Context,
    added: Annotated[
        list[str] | None, typer.Option("--add", metavar="RULE", help="A rule to try, such as 'deny github/*'.")
    ] = None,
    removed: Annotated[list[str] | None, typer.Option("--remove", metavar="ID", help="A rule to do without.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A file to try in place of toolcrib.toml.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Calls from then on (ISO 8601).")] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Look at so many records.")
    ] = 10_000,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the audit log under other rules, and list what would have been decided differently."""
    if not (added or removed or file):
        raise InvalidRequest("cli.usage", "Nothing is to be tried.", "Give --add, --remove or --file.")
    invocation = begin(ctx, home, as_json)
    body: JsonObject = {"add": added or [], "remove": removed or [], "limit": limit}
    if file is not None:
        body["file"] = _text(file)
    if since is not None:
        body["since"] = since
    found = ask_crib(invocation, lambda client: client.permissions.simulate(body))
    if invocation.as_json:
        output.document(found)
    else:
        _show_simulation(found)


def parse_condition(text: str) -> "JsonObject":
    """The condition that `POINTER TEST VALUE` means; a value that is not JSON is a text."""
    import json

    parts = text.strip().split(None, 2)
    if len(parts) != 3 or parts[1] not in _TESTS:
        example = "Write '/path glob /etc/*', '/amount range {\"max\": 10}' or '/force equals true'."
        raise InvalidRequest("cli.usage", f"{text!r} is not POINTER TEST VALUE.", example)
    pointer, test, written = parts
    value: Json = written
    if test in ("equals", "range"):
        try:
            value = json.loads(written)
        except ValueError:
            value = written
    return {"pointer": pointer, "test": test, "value": value}


def describe_rule(rule: "JsonObject") -> str:
    """A rule in a few words."""
    scope = describe_scope(rule)
    return f"{rule['effect']} {rule['pattern']}" + (f" if {scope}" if scope else "")


def describe_scope(rule: "JsonObject") -> str:
    """When and for whom a rule counts, in a few words; nothing where it always does."""
    parts = [f"{each['pointer']} {each['test']} {output.compact(each['value'])}" for each in rule.get("conditions", ())]
    words = {"readOnly": "read-only", "destructive": "destructive", "openWorld": "open-world"}
    where: JsonObject = rule.get("where", {})
    parts += [word if where[mark] else f"not {word}" for mark, word in words.items() if mark in where]
    for key in ("sources", "agents", "projects", "modes"):
        if key in where:
            parts.append(f"{key.removesuffix('s')} {' or '.join(where[key])}")
    if "session" in rule:
        parts.append(f"session {rule['session']}")
    if "definitionHash" in rule:
        parts.append(f"defined as {rule['definitionHash'][:8]}")
    return ", ".join(parts)


def describe_origin(origin: "JsonObject") -> str:
    """Where a rule stands."""
    if "file" not in origin:
        return str(origin["kind"])
    return f"{origin['file']}:{origin['line']}" if "line" in origin else str(origin["file"])


def _row(rule: "JsonObject") -> tuple[str, ...]:
    return (
        rule["id"],
        rule["effect"],
        rule["pattern"],
        describe_scope(rule),
        describe_origin(rule["origin"]),
        rule.get("expiresAt", ""),
        rule.get("reason", ""),
    )


def _show_simulation(found: "JsonObject") -> None:
    differences: Sequence[JsonObject] = found["differences"]
    if differences:
        rows = [
            (
                str(each["auditId"]),
                each["at"],
                each["ref"],
                "/".join(each["principal"][part] for part in ("name", "source", "agent") if part in each["principal"]),
                f"{each['before']} → {each['after']}",
                "perhaps" if each["uncertain"] else "",
                each["decidedBy"]["reason"],
            )
            for each in differences
        ]
        output.table(("record", "at", "tool", "asker", "change", "certain", "because"), rows)
    skipped = f" {found['skipped']} could not be compared." if found["skipped"] else ""
    output.note(f"{len(differences)} of {found['compared']} calls would be decided differently.{skipped}")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest("cli.usage", f"{file} cannot be read: {reason}.") from error
