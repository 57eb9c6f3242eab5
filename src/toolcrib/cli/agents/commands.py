"""`toolcrib agents`: create, change, inject and move agents.

`show` formats the output, `move` reads and writes files.

Must never validate an agent itself: the crib does.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.agents import move as agents_move
from toolcrib.cli.agents.show import show_agent, show_agents, show_history
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, JsonOption, begin, common
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="agents", rich_markup_mode=None, cls=CommandGroup)

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The agent.", show_default=False, autocompletion=names_of("agent"))
]
NameOption = Annotated[str | None, typer.Option("--name", metavar="N", help="The name.")]
NewIdOption = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The id; generated from the name by default.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", metavar="D", help="A short description.")]
PromptOption = Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="The system prompt.")]
PromptFileOption = Annotated[
    str | None,
    typer.Option("--prompt-file", metavar="FILE", help="Read the system prompt from a file; - reads standard input."),
]
ModelOption = Annotated[str | None, typer.Option("--model", metavar="M", help="The model to use.")]
ModeOption = Annotated[str | None, typer.Option("--mode", metavar="M", help="The permission mode of new sessions.")]
ListingOption = Annotated[
    str | None, typer.Option("--listing", metavar="L", help="What MCP clients list: all, search or code.")
]
ToolTokensOption = Annotated[
    int | None,
    typer.Option("--tool-tokens", metavar="N", min=0, help="The most tokens of tools that MCP clients list."),
]
BrainOption = Annotated[
    bool | None,
    typer.Option("--brain/--no-brain", help="Include pinned memories and context references in the prompt."),
]
ToolsOption = Annotated[
    list[str] | None, typer.Option("--tool", metavar="S/T", help="Allow only this tool; repeatable.")
]
FileOption = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="Read fields from a JSON file; - reads standard input.")
]


@app.callback()
def agents(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Manage agents: prompts, skills, permissions and memory."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_agents(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List agents."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.agents())
    invocation.show(found, show_agents)


@app.command("show")
def show(ctx: typer.Context, agent: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show an agent: prompt, skills, permissions, memory, and estimated tokens."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.agent(agent))
    invocation.show(found, show_agent)


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameOption = None,
    new_id: NewIdOption = None,
    description: DescriptionOption = None,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    model: ModelOption = None,
    mode: ModeOption = None,
    listing: ListingOption = None,
    tool_tokens: ToolTokensOption = None,
    brain: BrainOption = None,
    tools: ToolsOption = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            metavar="ID",
            help="Start from a copy of this agent or template.",
            autocompletion=names_of("agent"),
        ),
    ] = None,
    file: FileOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an agent from options, a file or a template."""
    invocation = begin(ctx, home, as_json)
    given = {"id": new_id, "name": name, "description": description, "model": model, "mode": mode}
    listed = {"listing": listing, "toolTokens": tool_tokens}
    body = _body({**given, **listed}, prompt, prompt_file, brain, tools, file, invocation.settings.max_body_bytes)
    if "name" not in body:
        raise InvalidRequest("cli.usage", "Missing option '--name'.")
    done = ask_crib(invocation, lambda client: client.create_agent(body, template=template))
    _report(done, "Created", invocation.as_json)


@app.command("edit")
def edit(
    ctx: typer.Context,
    agent: IdArgument,
    name: NameOption = None,
    description: DescriptionOption = None,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    model: ModelOption = None,
    mode: ModeOption = None,
    listing: ListingOption = None,
    tool_tokens: ToolTokensOption = None,
    brain: BrainOption = None,
    tools: ToolsOption = None,
    enable: Annotated[
        list[str] | None, typer.Option("--enable", metavar="SKILL", help="Enable a skill; repeatable.")
    ] = None,
    disable: Annotated[
        list[str] | None, typer.Option("--disable", metavar="SKILL", help="Disable a skill; repeatable.")
    ] = None,
    file: FileOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the given fields of an agent. A `version` in the file rejects conflicting changes."""
    invocation = begin(ctx, home, as_json)
    given = {"name": name, "description": description, "model": model, "mode": mode}
    listed = {"listing": listing, "toolTokens": tool_tokens}
    body = _body({**given, **listed}, prompt, prompt_file, brain, tools, file, invocation.settings.max_body_bytes)
    switches = [(skill, True) for skill in enable or ()] + [(skill, False) for skill in disable or ()]
    if not body and not switches:
        raise InvalidRequest("cli.usage", "Nothing to change.", "Run `toolcrib agents edit --help`.")

    async def work(client: "ApiClient") -> "JsonObject":
        done = await client.change_agent(agent, body) if body else {}
        for skill, enabled in switches:
            done = await client.change_skill(agent, skill, {"enabled": enabled})
        return done

    _report(ask_crib(invocation, work), "Changed", invocation.as_json)


@app.command("delete")
def delete(ctx: typer.Context, agent: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Delete an agent and its memory; its history is kept."""
    invocation = begin(ctx, home, as_json)
    done = ask_crib(invocation, lambda client: client.delete_agent(agent))
    invocation.confirm(done, f"Deleted {agent}. Its history is kept: `toolcrib agents history {agent}`.")


@app.command("clone")
def clone(
    ctx: typer.Context,
    agent: IdArgument,
    name: NameOption = None,
    new_id: NewIdOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy an agent, without its memory."""
    invocation = begin(ctx, home, as_json)
    body = {key: value for key, value in {"id": new_id, "name": name}.items() if value is not None}
    _report(ask_crib(invocation, lambda client: client.clone_agent(agent, body)), "Created", invocation.as_json)


@app.command("inject")
def inject(
    ctx: typer.Context,
    agent: IdArgument,
    form: Annotated[
        str, typer.Option("--format", metavar="F", help="compiled (one prompt) or structured (its parts).")
    ] = "compiled",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the compiled prompt of an agent."""
    if form not in ("compiled", "structured"):
        raise InvalidRequest("cli.usage", f"{form!r} is not a format.", "Choose compiled or structured.")
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.inject_agent(agent, form))
    if invocation.as_json or form == "structured":
        output.document(found)
        return
    output.line(found["prompt"])
    for warning in found.get("warnings", ()):
        output.note(f"warning: {warning}")


@app.command("history")
def history(
    ctx: typer.Context,
    agent: IdArgument,
    version: Annotated[
        int | None, typer.Argument(metavar="VERSION", help="Show the changes of this version.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions of an agent, or show what one changed."""
    invocation = begin(ctx, home, as_json)
    if version is None:
        found = ask_crib(invocation, lambda client: client.agent_revisions(agent))
    else:
        found = ask_crib(invocation, lambda client: client.agent_revision(agent, version))
    invocation.show(found, show_history)


@app.command("restore")
def restore(
    ctx: typer.Context,
    agent: IdArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version to restore.", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore an earlier version as a new one; a deleted agent comes back without its memory."""
    invocation = begin(ctx, home, as_json)
    _report(ask_crib(invocation, lambda client: client.restore_agent(agent, version)), "Restored", invocation.as_json)


app.command("export")(agents_move.export_agent)
app.command("import")(agents_move.import_agents)


def _body(
    given: "Mapping[str, str | int | None]",
    prompt: str | None,
    prompt_file: str | None,
    brain: bool | None,
    tools: list[str] | None,
    file: str | None,
    limit: int,
) -> "JsonObject":
    """Return the given fields; options override the file."""
    if prompt is not None and prompt_file is not None:
        raise InvalidRequest("cli.usage", "Use either --prompt or --prompt-file, not both.")
    from toolcrib.cli.arguments import parse_arguments

    body = parse_arguments(agents_move.text_of(file, limit)) if file is not None else {}
    text = agents_move.text_of(prompt_file, limit) if prompt_file is not None else prompt
    named = {**given, "systemPrompt": text, "includeBrain": brain, "toolPermissions": tools}
    return {**body, **{name: value for name, value in named.items() if value is not None}}


def _report(agent: "JsonObject", done: str, as_json: bool) -> None:
    if as_json:
        output.document(agent)
    else:
        output.line(f"{done} {agent['id']} ({agent['name']}), version {agent['version']}.")
