"""`toolcrib agents`: the zoo from the command line: agents made, changed, injected, and moved between tools.

`agents_show` has the words, `agents_move` the files. Above: `main`. Below: `client`, through `crib`. It must never
judge an agent itself: what may stand in one is for the crib to say.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import agents_move, output
from toolcrib.cli.agents_show import show_agent, show_agents, show_history
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin, common
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="agents", rich_markup_mode=None)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The agent.", show_default=False)]
NameOption = Annotated[str | None, typer.Option("--name", metavar="N", help="Its name.")]
NewIdOption = Annotated[str | None, typer.Option("--id", metavar="ID", help="Its id; else made from the name.")]
DescriptionOption = Annotated[str | None, typer.Option("--description", metavar="D", help="What it is for.")]
PromptOption = Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="Its system prompt.")]
PromptFileOption = Annotated[
    str | None, typer.Option("--prompt-file", metavar="FILE", help="Read the system prompt from a file; - is stdin.")
]
ModelOption = Annotated[str | None, typer.Option("--model", metavar="M", help="The model it runs on.")]
ModeOption = Annotated[str | None, typer.Option("--mode", metavar="M", help="The mode its sessions start in.")]
BrainOption = Annotated[
    bool | None,
    typer.Option("--brain/--no-brain", help="Put pinned memories and context references into the prompt."),
]
ToolsOption = Annotated[
    list[str] | None, typer.Option("--tool", metavar="S/T", help="Allow these tools only; can be given again.")
]
FileOption = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="Fields as a JSON object; - reads standard input.")
]


@app.callback()
def agents(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Agents with a prompt, skills and a memory: list, show, make, change, inject, move."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_agents(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the agents of the zoo."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.agents())
    if invocation.as_json:
        output.document(found)
    else:
        show_agents(found)


@app.command("show")
def show(ctx: typer.Context, agent: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show one agent: its prompt, skills, permissions and memory, and about what they cost."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.agent(agent))
    if invocation.as_json:
        output.document(found)
    else:
        show_agent(found)


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
    brain: BrainOption = None,
    tools: ToolsOption = None,
    template: Annotated[
        str | None, typer.Option("--template", metavar="ID", help="Begin with a copy of this agent or starter.")
    ] = None,
    file: FileOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an agent, from options, from a file, or like another one."""
    invocation = begin(ctx, home, as_json)
    given = {"id": new_id, "name": name, "description": description, "model": model, "mode": mode}
    body = _body(given, prompt, prompt_file, brain, tools, file, invocation.settings.max_body_bytes)
    if "name" not in body:
        raise InvalidRequest("cli.usage", "Missing option '--name'.")
    done = ask_crib(invocation, lambda client: client.create_agent(body, template=template))
    _tell(done, "Created", invocation.as_json)


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
    brain: BrainOption = None,
    tools: ToolsOption = None,
    enable: Annotated[list[str] | None, typer.Option("--enable", metavar="SKILL", help="Switch a skill on.")] = None,
    disable: Annotated[list[str] | None, typer.Option("--disable", metavar="SKILL", help="Switch it off.")] = None,
    file: FileOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what is named of an agent, and nothing else; a `version` in the file refuses another one's change."""
    invocation = begin(ctx, home, as_json)
    given = {"name": name, "description": description, "model": model, "mode": mode}
    body = _body(given, prompt, prompt_file, brain, tools, file, invocation.settings.max_body_bytes)
    switches = [(skill, True) for skill in enable or ()] + [(skill, False) for skill in disable or ()]
    if not body and not switches:
        raise InvalidRequest("cli.usage", "Say what to change.", "Run `toolcrib agents edit --help`.")

    async def work(client: "Client") -> "JsonObject":
        done = await client.change_agent(agent, body) if body else {}
        for skill, enabled in switches:
            done = await client.change_skill(agent, skill, {"enabled": enabled})
        return done

    _tell(ask_crib(invocation, work), "Changed", invocation.as_json)


@app.command("delete")
def delete(ctx: typer.Context, agent: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Delete an agent and its memory; what it was stays in its history."""
    invocation = begin(ctx, home, as_json)
    done = ask_crib(invocation, lambda client: client.delete_agent(agent))
    if invocation.as_json:
        output.document(done)
    else:
        output.line(f"Deleted {agent}. Its history stays: `toolcrib agents history {agent}`.")


@app.command("clone")
def clone(
    ctx: typer.Context,
    agent: IdArgument,
    name: NameOption = None,
    new_id: NewIdOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make another agent like this one, without its memory."""
    invocation = begin(ctx, home, as_json)
    body = {key: value for key, value in {"id": new_id, "name": name}.items() if value is not None}
    _tell(ask_crib(invocation, lambda client: client.clone_agent(agent, body)), "Created", invocation.as_json)


@app.command("inject")
def inject(
    ctx: typer.Context,
    agent: IdArgument,
    form: Annotated[
        str, typer.Option("--format", metavar="F", help="compiled: one prompt; structured: its parts.")
    ] = "compiled",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the prompt that makes a chat this agent."""
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
        int | None, typer.Argument(metavar="VERSION", help="Show what this one changed.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions of an agent, or show what one of them changed."""
    invocation = begin(ctx, home, as_json)
    if version is None:
        found = ask_crib(invocation, lambda client: client.agent_revisions(agent))
    else:
        found = ask_crib(invocation, lambda client: client.agent_revision(agent, version))
    if invocation.as_json:
        output.document(found)
    else:
        show_history(found)


@app.command("restore")
def restore(
    ctx: typer.Context,
    agent: IdArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="What it is to be again.", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an agent again what it was, as a new version; one that was deleted comes back without its memory."""
    invocation = begin(ctx, home, as_json)
    _tell(ask_crib(invocation, lambda client: client.restore_agent(agent, version)), "Restored", invocation.as_json)


app.command("export")(agents_move.export_agent)
app.command("import")(agents_move.import_agents)


def _body(
    given: "dict[str, str | None]",
    prompt: str | None,
    prompt_file: str | None,
    brain: bool | None,
    tools: list[str] | None,
    file: str | None,
    limit: int,
) -> "JsonObject":
    """The fields that were named; an option counts more than the file."""
    if prompt is not None and prompt_file is not None:
        raise InvalidRequest("cli.usage", "Use either --prompt or --prompt-file, not both.")
    from toolcrib.cli.arguments import parse_arguments

    body = parse_arguments(agents_move.text_of(file, limit)) if file is not None else {}
    text = agents_move.text_of(prompt_file, limit) if prompt_file is not None else prompt
    named = {**given, "systemPrompt": text, "includeBrain": brain, "toolPermissions": tools}
    return {**body, **{name: value for name, value in named.items() if value is not None}}


def _tell(agent: "JsonObject", done: str, as_json: bool) -> None:
    if as_json:
        output.document(agent)
    else:
        output.line(f"{done} {agent['id']} ({agent['name']}), version {agent['version']}.")
