"""`toolcrib rules`: list, change and simulate permission rules.

Must never evaluate a rule itself: the crib does.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output, rules_marks, rules_reach, rules_suggest
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, JsonOption, begin, common
from toolcrib.model.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.cli.options import Invocation
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="rules", rich_markup_mode=None, cls=CommandGroup)

PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN", help="SERVER/TOOL, where * matches anything, or a known name.", show_default=False
    ),
]
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The id of the rule.", show_default=False, autocompletion=names_of("rule"))
]
ReadOnlyOption = Annotated[
    bool | None,
    typer.Option("--read-only/--not-read-only", help="Only tools with or without this mark.", show_default=False),
]
AgentsOption = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="A", help="Only for this agent.", autocompletion=names_of("agent")),
]
ProjectsOption = Annotated[list[Path] | None, typer.Option("--project", metavar="DIR", help="Only in this directory.")]
ExceptOption = Annotated[
    list[str] | None,
    typer.Option("--except", metavar="PATTERN", help="Not for these tools. Repeatable.", show_default=False),
]
OpenWorldOption = Annotated[
    bool | None,
    typer.Option("--open-world/--not-open-world", help="Only tools with or without this mark.", show_default=False),
]
ExpiresOption = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="When the rule expires (ISO 8601).")
]
UsesOption = Annotated[
    int | None, typer.Option("--uses", metavar="N", min=1, help="Only for the next N calls that it decides.")
]
MarkOption = Annotated[
    list[str] | None,
    typer.Option("--mark", metavar="M", help="Only after the conversation has read this: untrusted or private."),
]
FlowOption = Annotated[
    list[str] | None, typer.Option("--flow", metavar="F", help="Only calls that do this: sends or destroys.")
]
_EFFECTS = {
    "allow": "Run matching tools without asking. Does not make hidden tools visible.",
    "ask": "Require approval before matching tools run.",
    "deny": "Deny matching tools. Without --if, they are also hidden. Overrides all other rules.",
}
_UNMATCHED = "rule.matches_nothing"


@app.callback()
def rules(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List, add, remove and simulate permission rules."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_rules(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List all rules, those from files first."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "tuple[list[JsonObject], list[JsonObject]]":
        found = await client.permissions.rules()
        checked = await client.permissions.check() if found else []
        unmatched = [each for each in checked if each["code"] == _UNMATCHED and each["severity"] == "warning"]
        problems = [{**each, "hint": each["fix"]} for each in unmatched]
        return found, [*await client.permissions.problems(), *problems]

    found, problems = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(found)
    elif found:
        output.table(
            ("id", "effect", "pattern", "only if", "origin", "until", "reason"), [_row(rule) for rule in found]
        )
    else:
        output.note("No rules found. Modes decide all calls.")
    output.warn_all(problems)


def add(
    ctx: typer.Context,
    pattern: PatternArgument,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--if",
            metavar="TEST",
            help="A condition 'POINTER TEST VALUE'; TEST is equals, range, path, command, present, glob or regex.",
        ),
    ] = None,
    agents: AgentsOption = None,
    sources: Annotated[list[str] | None, typer.Option("--source", metavar="S", help="Only from this source.")] = None,
    modes: Annotated[list[str] | None, typer.Option("--mode", metavar="M", help="Only in this mode.")] = None,
    projects: ProjectsOption = None,
    read_only: ReadOnlyOption = None,
    destructive: Annotated[
        bool | None,
        typer.Option(
            "--destructive/--not-destructive", help="Only tools with or without this mark.", show_default=False
        ),
    ] = None,
    open_world: OpenWorldOption = None,
    marks: MarkOption = None,
    flows: FlowOption = None,
    excepted: ExceptOption = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="The reason, shown with each decision.")
    ] = None,
    expires: ExpiresOption = None,
    uses: UsesOption = None,
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
        "marks": marks,
        "flows": flows,
        "except": excepted,
        "projects": [str(path.expanduser().absolute()) for path in projects or ()],
    }
    body: JsonObject = {
        "effect": ctx.info_name,
        "pattern": pattern,
        "conditions": [parse_condition(text) for text in conditions or ()],
        "where": {key: value for key, value in where.items() if value not in (None, [])},
        "reason": reason,
        "expiresAt": expires,
        "uses": uses,
    }
    _add(invocation, {key: value for key, value in body.items() if value not in (None, [], {})})


def _add(invocation: "Invocation", given: "JsonObject") -> None:
    """Add a rule, and warn if it is broader than it looks."""

    async def work(client: "ApiClient") -> "tuple[JsonObject, list[JsonObject]]":
        added = await client.permissions.add_rule(given)
        found = await client.permissions.check() if "conditions" in given else []
        return added, [each for each in found if each["rule"] == added["id"] and each["code"] != _UNMATCHED]

    rule, findings = ask_crib(invocation, work)
    invocation.confirm(rule, f"Added rule {rule['id']}: {describe_rule(rule)}.")
    output.warn_all(rule.get("problems", []))
    output.warn_all([{"message": each["message"], "hint": each["fix"]} for each in findings])


for _effect, _help in _EFFECTS.items():
    app.command(_effect, help=_help)(add)


@app.command("remove")
def remove(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Remove a rule that is not in a file."""
    invocation = begin(ctx, home, as_json)
    rule = ask_crib(invocation, lambda client: client.permissions.remove_rule(id))
    invocation.confirm(rule, f"Removed rule {rule['id']}: {describe_rule(rule)}.")


@app.command("check")
def check(
    ctx: typer.Context,
    pattern: Annotated[
        str | None,
        typer.Option("--reach", metavar="PATTERN", help="Show who can call these tools without being asked instead."),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="S", help="With --reach: the source of agents' sessions.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="M", help="With --reach: the mode of agents' sessions.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find rules that are too broad, never decide or conflict; exit with 1 if there are warnings."""
    invocation = begin(ctx, home, as_json)
    if pattern is not None:
        rules_reach.show(invocation, pattern, source, mode)
        return
    if source is not None or mode is not None:
        raise InvalidRequest("cli.usage", "--source and --mode belong to --reach.", "Add --reach PATTERN.")

    async def work(client: "ApiClient") -> "tuple[list[JsonObject], list[JsonObject]]":
        return await client.permissions.check(), await client.permissions.problems()

    findings, problems = ask_crib(invocation, work)
    warnings = [each for each in findings if each["severity"] == "warning"]
    if invocation.as_json:
        shapes = ({"rule": "", "severity": "warning", "fix": each.get("hint", ""), **each} for each in problems)
        output.document([*findings, *shapes])
    for each in () if invocation.as_json else findings:
        output.line(f"{each['code']}: {output.one_line(each['message'], 2000)}")
        output.line(f"  fix: {output.one_line(each['fix'], 4000)}")
    output.warn_all(problems)
    if warnings or problems:
        raise typer.Exit(1)
    if not invocation.as_json:
        output.note("No rule is too broad, and every rule can apply.")


@app.command("narrow")
def narrow(ctx: typer.Context, id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Replace a rule with the narrower one that `rules check` proposes."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "JsonObject":
        about = [each for each in await client.permissions.check() if each["rule"] == id]
        found = next((each for each in about if "proposal" in each), about[0] if about else None)
        if not about and all(each["id"] != id for each in await client.permissions.rules()):
            raise NotFound("rule.unknown", f"Rule {id!r} not found.", "Run `toolcrib rules list`.")
        if found is None or "proposal" not in found:
            hint = "Run `toolcrib rules check`." if found is None else found["fix"]
            raise InvalidRequest("cli.usage", f"No narrower rule is proposed for {id!r}.", hint)
        proposal = found["proposal"]
        changed = {key: proposal.get(key) for key in ("conditions", "where", "principal")}
        return await client.permissions.change_rule(id, changed)

    rule = ask_crib(invocation, work)
    invocation.confirm(rule, f"Rule {rule['id']} is now: {describe_rule(rule)}.")


@app.command("simulate")
def simulate(
    ctx: typer.Context,
    added: Annotated[
        list[str] | None, typer.Option("--add", metavar="RULE", help="Add a rule, such as 'deny github/*'.")
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--remove", metavar="ID", help="Remove a rule.", autocompletion=names_of("rule"))
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Use this file instead of toolcrib.toml.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="PRESET", help="Add the rules of this preset.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only calls after this time (ISO 8601).")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", help="Only the calls of this session.", autocompletion=names_of("session")
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Maximum number of records.")
    ] = 10_000,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the audit log with other rules and list the decisions that differ."""
    if not (added or removed or file or preset):
        raise InvalidRequest("cli.usage", "Nothing to simulate.", "Use --add, --remove, --file or --preset.")
    invocation = begin(ctx, home, as_json)
    more = rules_marks.rules_of_preset(invocation, preset) if preset is not None else []
    body: JsonObject = {"add": [*(added or []), *more], "remove": removed or [], "limit": limit}
    if file is not None:
        body["file"] = _text(file)
    if since is not None:
        body["since"] = since
    if session is not None:
        body["session"] = session
    found = ask_crib(invocation, lambda client: client.permissions.simulate(body))
    invocation.show(found, _show_simulation)


app.command("suggest")(rules_suggest.suggest)
app.command("preset")(rules_marks.preset)
app.command("marks")(rules_marks.marks)
app.command("flows")(rules_marks.flows)


def parse_condition(text: str) -> "JsonObject":
    """Parse `POINTER TEST VALUE`; a value that is not JSON is a string."""
    from toolcrib.model.policy import CONDITION_EXAMPLE
    from toolcrib.model.policy import parse_condition as parse

    found = parse(text)
    if found is None:
        raise InvalidRequest("cli.usage", f"{text!r} is not POINTER TEST VALUE.", CONDITION_EXAMPLE)
    return found


def describe_rule(rule: "JsonObject") -> str:
    """Return a short description of a rule."""
    scope, end = describe_scope(rule), describe_end(rule)
    return f"{rule['effect']} {rule['pattern']}" + (f" if {scope}" if scope else "") + (f"; ends: {end}" if end else "")


def describe_end(rule: "JsonObject") -> str:
    """Return after how many calls and when a rule ends; empty if never."""
    uses = [f"{rule['uses']} more {'call' if rule['uses'] == 1 else 'calls'}"] if "uses" in rule else []
    return ", ".join([*uses, *([output.when(rule["expiresAt"])] if "expiresAt" in rule else [])])


def describe_scope(rule: "JsonObject") -> str:
    """Return when and for whom a rule applies; empty if always."""
    parts = [f"{each['pointer']} {each['test']} {output.compact(each['value'])}" for each in rule.get("conditions", ())]
    words = {"readOnly": "read-only", "destructive": "destructive", "openWorld": "open-world"}
    where: JsonObject = rule.get("where", {})
    parts += [word if where[mark] else f"not {word}" for mark, word in words.items() if mark in where]
    for key in ("sources", "agents", "projects", "modes", "marks", "flows"):
        if key in where:
            parts.append(f"{key.removesuffix('s')} {(' and ' if key == 'marks' else ' or ').join(where[key])}")
    if "except" in where:
        parts.append(f"not {' or '.join(where['except'])}")
    if bound := rule.get("principal"):
        binding = [bound["kind"], *(f"{key} {bound[key]}" for key in ("name", "agent", "source") if bound.get(key))]
        parts.append(f"principal {' '.join(binding)}")
    if "session" in rule:
        parts.append(f"session {rule['session']}")
    if "definitionHash" in rule:
        parts.append(f"defined as {rule['definitionHash'][:8]}")
    return ", ".join(parts)


def describe_origin(origin: "JsonObject") -> str:
    """Return the location of a rule."""
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
        describe_end(rule),
        rule.get("reason", ""),
    )


def _show_simulation(found: "JsonObject") -> None:
    differences: Sequence[JsonObject] = found["differences"]
    if differences:
        rows = [
            (
                str(each["auditId"]),
                output.when(each["at"]),
                each["ref"],
                "/".join(each["principal"][part] for part in ("name", "source", "agent") if part in each["principal"]),
                f"{each['before']} → {each['after']}",
                "perhaps" if each["uncertain"] else "",
                each["decidedBy"]["reason"],
            )
            for each in differences
        ]
        output.table(("record", "at", "tool", "caller", "change", "certain", "because"), rows)
    skipped = f" {found['skipped']} could not be compared." if found["skipped"] else ""
    output.note(f"{len(differences)} of {found['compared']} calls would be decided differently.{skipped}")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest("cli.usage", f"{file} cannot be read: {reason}.") from error
