"""`toolcrib tools`: list, show and call tools.

Must never call a tool except through the crib's gate, nor hide one without consent.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, Invocation, JsonOption, begin, common
from toolcrib.cli.tools import changes as tools_changes
from toolcrib.model.errors import Denied, InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="tools", rich_markup_mode=None, cls=CommandGroup)

ToolArgument = Annotated[
    str, typer.Argument(metavar="SERVER/TOOL", help="The tool.", show_default=False, autocompletion=names_of("tool"))
]


@app.callback()
def tools(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List, show, search and call tools; review changed ones."""
    ctx.obj = common(ctx, home, as_json)


app.command("changes")(tools_changes.changes)
app.command("accept")(tools_changes.accept)
app.command("reject")(tools_changes.reject)


@app.command("list")
def list_tools(
    ctx: typer.Context,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="S", help="Only tools of this server.", autocompletion=names_of("server")),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="A", help="Show the tools that this agent sees.", autocompletion=names_of("agent")
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="S", help="Show the tools visible from this source.")
    ] = None,
    cost: Annotated[bool, typer.Option("--cost", help="Show estimated tokens, and calls in the last 30 days.")] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="With --cost: hide unused tools from the agent or source, by deny rules.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="With --cost: remove the rules that --apply added.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation of --apply.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tools, as seen by the given agent and source."""
    from toolcrib.cli.arguments import check_source
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run
    from toolcrib.cli.suggestions import require_known

    check_source(source)
    if (apply or undo) and (not cost or (apply and undo)):
        raise InvalidRequest("cli.usage", "Use --cost with either --apply or --undo.")
    invocation = begin(ctx, home, as_json)
    if apply or undo:
        apply_or_undo(invocation, {"agent": agent, "source": source, "server": server}, undo=undo, yes=yes)
        return
    if cost:
        report = run(lambda: ask(invocation.settings, lambda client: client.tool_costs(agent=agent, source=source)))
        show_costs(report, server, invocation.as_json)
        return

    async def work(client: "ApiClient") -> "tuple[list[JsonObject], list[JsonObject]]":
        found = await client.tools(server=server, agent=agent, source=source)
        problems = await client.tool_problems()
        if not found:
            output.warn_all(problems)
            await require_known(client, "agent", agent)
            await require_known(client, "server", server)
        return found, problems if found else []

    found, problems = run(lambda: ask(invocation.settings, work))
    show_tools(found, invocation.as_json)
    output.warn_all([*(problem for tool in found for problem in tool["problems"]), *problems])


@app.command("search")
def search(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="A sentence, words or the name of a tool.", show_default=False)
    ],
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Most tools to show.")] = 10,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find tools for a task, best match first."""
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    invocation = begin(ctx, home, as_json)
    found = run(lambda: ask(invocation.settings, lambda client: client.search_tools(" ".join(words), limit)))
    if hint := found.get("hint"):
        output.note(hint)
    if invocation.as_json:
        output.document(found["tools"])
    elif found["tools"]:
        rows = [(each["ref"], f"{each['score']:.2f}", each["signature"], each["purpose"]) for each in found["tools"]]
        output.table(("tool", "score", "arguments", "purpose"), rows)


@app.command("show")
def show(ctx: typer.Context, tool: ToolArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a tool in full."""
    from toolcrib.cli.arguments import parse_ref
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    ref = parse_ref(tool)
    invocation = begin(ctx, home, as_json)
    found = run(lambda: ask(invocation.settings, lambda client: client.tool(ref)))
    invocation.show(found, _show_tool)


@app.command("shorten")
def shorten(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAMES", help="Servers, or tools as SERVER/TOOL; all by default.", show_default=False),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="List the tools with shorter descriptions.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="List the tools whole again.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which descriptions repeat text, and leave it out of lists with --apply."""
    if apply and undo:
        raise InvalidRequest("cli.usage", "Use either --apply or --undo.")
    invocation = begin(ctx, home, as_json)
    body: JsonObject = {"names": names or [], "undo": undo, "dryRun": not apply and not undo}
    done = ask_crib(invocation, lambda client: client.shorten_tools(body))
    if invocation.as_json:
        output.document(done)
    elif undo:
        output.line(f"Listed whole again: {', '.join(done['whole']) or 'none'}.")
    elif not done["tools"]:
        output.note("No description repeats text.")
    else:
        output.table(("tool", "saves", "listed as"), [_shortened_row(each) for each in done["tools"]])
        output.line(f"{'Saves' if apply else 'Would save'} {done['saves']:,} tokens.")
        again = "--undo` lists them whole again" if apply else "--apply` lists them like this"
        output.note(f"`toolcrib tools shorten {again}. Calls are not affected.")


def _shortened_row(tool: "JsonObject") -> tuple[str, ...]:
    return tool["ref"], f"{tool['saves']:,}", tool["description"]


@app.command("call")
def call(
    ctx: typer.Context,
    tool: ToolArgument,
    arguments: Annotated[
        str, typer.Argument(metavar="JSON", help="The arguments as a JSON object; - reads standard input.")
    ] = "{}",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a tool."""
    from toolcrib.cli.arguments import parse_arguments, parse_ref, read_input
    from toolcrib.cli.crib import ask
    from toolcrib.cli.loop import run

    ref = parse_ref(tool)
    invocation = begin(ctx, home, as_json)
    given = parse_arguments(read_input(invocation.settings.max_body_bytes) if arguments == "-" else arguments)
    answer = run(lambda: ask(invocation.settings, lambda client: client.call(ref, given)))
    if invocation.as_json:
        output.document(answer)
    else:
        for part in answer["content"]:
            output.line(describe_part(part))
        if not answer["content"] and "structuredContent" in answer:
            output.line(output.pretty(answer["structuredContent"]))
    if answer["isError"]:
        raise typer.Exit(1)


def show_tools(found: "Sequence[JsonObject]", as_json: bool) -> None:
    """Print a list of tools."""
    if as_json:
        output.document(found)
    elif found:
        output.table(("tool", "exposed as", "marks", "description"), [_row(tool) for tool in found])
    else:
        output.note("No tools found.")


def show_costs(report: "JsonObject", server: str | None, as_json: bool) -> None:
    """Print the cost of each tool and server, the most expensive first, and what would save tokens."""
    if as_json:
        output.document(report)
        return
    tools = [each for each in report["tools"] if server is None or each["ref"].startswith(f"{server}/")]
    rows = [
        (each["ref"], f"{each['tokens']:,}", str(each["calls"])) for each in sorted(tools, key=lambda t: -t["tokens"])
    ]
    output.table(("tool", "tokens", f"calls in {report['days']} days"), rows)
    for each in report["servers"]:
        if server in (None, each["server"]):
            noun = "tool" if each["tools"] == 1 else "tools"
            output.line(
                f"{each['server']}: {each['tools']} {noun}, {each['tokens']:,} tokens, {each['used']} of them used"
                f" in {report['days']} days"
            )
    output.note(f"Token counts are estimates: {report['method']}. Search mode costs {report['searchTokens']:,} tokens.")
    for each in report["suggestions"]:
        output.note(f"Suggestion: {each['message']} Saves {each['saves']:,} tokens.")
    if saved := sum(each["saved"] for each in report["tools"]):
        output.note(f"Shortened descriptions save {saved:,} tokens. `toolcrib tools shorten --undo` lists them whole.")


def _row(tool: "JsonObject") -> tuple[str, ...]:
    return tool["ref"], tool["exposedName"], describe_marks(tool["marks"]), tool["description"]


def _show_tool(tool: "JsonObject") -> None:
    facts = [("tool", tool["ref"]), ("exposed as", tool["exposedName"]), ("title", tool.get("title"))]
    facts.append(("marks", describe_marks(tool["marks"])))
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<12} {output.one_line(value)}")
    output.line(f"\n{tool['description']}\n\narguments: {output.pretty(tool['inputSchema'])}")
    if listed := tool.get("listed"):
        schema = output.pretty(listed["inputSchema"])
        output.line(f"\nlisted, shortened:\n{listed['description']}\n\narguments: {schema}")
    output.warn_all(tool["problems"])


def describe_marks(marks: "JsonObject") -> str:
    """Return the marks that are set, in words."""
    words = {
        "readOnly": "read-only",
        "destructive": "destructive",
        "privileged": "privileged",
        "schedulerBlocked": "blocked for schedules",
    }
    return ", ".join(word for name, word in words.items() if marks.get(name))


def describe_part(part: "JsonObject") -> str:
    """Return a part of a result as text; a placeholder for anything but text."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"uri": uri, "text": str(text)}}:
            return f"[resource {uri}]\n{text}"
        case {"type": "resource", "resource": {"uri": uri}}:
            return f"[resource {uri}]"
        case {"type": "resource_link", "uri": uri}:
            return f"[link {uri}]"
        case {"type": kind, "data": str(data), "mimeType": media}:
            return f"[{kind} {media}, {len(data) * 3 // 4} bytes]"
        case _:
            return f"[{part.get('type', 'part')}]"


if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject


def apply_or_undo(invocation: Invocation, body: "JsonObject", *, undo: bool, yes: bool) -> None:
    """Hide the unused tools of an agent or a source after a confirmation, or remove the rules that hide them."""
    if not undo and body["agent"] is None and body["source"] is None:
        raise InvalidRequest("cli.usage", "--apply needs an agent or a source.", "Add --agent A or --source ide.")
    body = body | {"undo": undo}
    plan = ask_crib(invocation, lambda client: client.hide_unused_tools(body | {"dryRun": True}))
    if plan["patterns"] and not undo and not yes:
        _ask(plan)
    done = ask_crib(invocation, lambda client: client.hide_unused_tools(body)) if plan["patterns"] else plan
    if invocation.as_json:
        output.document(done)
        return
    count = len(done["rules"])
    noun = "tool" if count == 1 else "tools"
    if undo:
        output.line(f"Removed {count} rules: {count} hidden {noun} can be used again.")
    elif not count:
        output.note("No unused tools are worth hiding.")
    else:
        output.line(f"Hid {count} {noun} with deny rules. Saves {done['saves']:,} tokens.")
        output.note(f'`toolcrib rules list` shows the rules, with the reason "{done["reason"]}"')
        output.note("Remove them together with `toolcrib tools list --cost --undo`.")


def _ask(plan: "JsonObject") -> None:
    for pattern in plan["patterns"]:
        output.note(f"  {pattern}")
    count = len(plan["patterns"])
    if not can_ask():
        hint = "Review the output above, then run the command in a terminal, or add `--yes`."
        raise InvalidRequest("cli.usage", "Hiding tools requires confirmation, but there is no terminal.", hint)
    if not confirm(f"Hide {count} {'tool' if count == 1 else 'tools'}? They can then no longer be called."):
        raise Denied("client.declined", "Nothing was changed.")
