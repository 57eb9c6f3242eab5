"""`toolcrib agents export` and `import`: convert agents to and from the files of other apps.

Must never overwrite a file.
"""

from pathlib import Path
from typing import Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin
from toolcrib.model.errors import InvalidRequest

_FORMS = ("json", "claude", "skills")
_MOST_FILES = 1_000


def export_agent(
    ctx: typer.Context,
    agent: Annotated[
        str, typer.Argument(metavar="ID", help="The agent.", show_default=False, autocompletion=names_of("agent"))
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="F", help="json: AgentZoo file; claude: sub-agent; skills: one SKILL.md per skill."
        ),
    ] = "json",
    folder: Annotated[
        str | None,
        typer.Option("--output", metavar="DIR", help="Write files to this directory instead of printing them."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print an agent in the format of another app, or write it to a directory."""
    if form not in _FORMS:
        raise InvalidRequest("cli.usage", f"{form!r} is not a format.", f"Choose one of {', '.join(_FORMS)}.")
    invocation = begin(ctx, home, as_json)
    exported = ask_crib(invocation, lambda client: client.export_agent(agent, form))
    output.warn_all(exported["problems"])
    if folder is not None:
        written = [_write(Path(folder), file["path"], file["text"]) for file in exported["files"]]
        exported = {"files": [{"path": path} for path in written], "problems": exported["problems"]}
    if invocation.as_json:
        output.document(exported)
        return
    for file in exported["files"]:
        if folder is not None:
            output.line(f"wrote {file['path']}")
        else:
            if len(exported["files"]) > 1:
                output.note(f"# {file['path']}")
            output.line(file["text"].rstrip("\n"))


def import_agents(
    ctx: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A sub-agent (.md), SKILL.md, AgentZoo agents.json, or a directory of these; - reads standard input.",
            show_default=False,
        ),
    ],
    into: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="ID",
            help="Add the skills to this agent.",
            show_default=False,
            autocompletion=names_of("agent"),
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported, without importing it.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import agents and skills from other apps; a duplicate id gets a number."""
    invocation = begin(ctx, home, as_json)
    limit = invocation.settings.max_body_bytes
    files = [{"name": name, "text": text_of(name, limit)} for name in _names(file)]
    body = {"files": files, "dryRun": dry_run} | ({"agentId": into} if into is not None else {})
    done = ask_crib(invocation, lambda client: client.import_agents(body))
    if invocation.as_json:
        output.document(done)
    else:
        verb = "would import" if dry_run else "took"
        for each in done["taken"]:
            what = f"skill {each['skill']} into {each['id']}" if "skill" in each else f"{each['id']} ({each['name']})"
            output.line(f"{verb} {what}")
        output.warn_all(done["problems"])
    if not done["taken"]:
        raise typer.Exit(1)


def text_of(file: str, limit: int) -> str:
    """Return the text of a file or standard input."""
    from toolcrib.cli.arguments import read_input

    if file == "-":
        return read_input(limit)
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        raise InvalidRequest("cli.usage", f"{file} cannot be read: {error.strerror}.") from error
    if len(content) > limit:
        raise InvalidRequest("request.too_large", f"{file} is larger than {limit} bytes.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest("cli.usage", f"{file} is not UTF-8 at byte {error.start}.") from error


def _names(file: str) -> list[str]:
    """Return the file, or the Markdown files of a directory, including skills in subdirectories."""
    if file == "-" or not Path(file).is_dir():
        return [file]
    found = sorted({*Path(file).glob("*.md"), *Path(file).glob("*/SKILL.md")})[:_MOST_FILES]
    if not found:
        raise InvalidRequest("cli.usage", f"{file} contains no Markdown files.")
    return [str(path) for path in found]


def _write(folder: Path, path: str, text: str) -> str:
    target = folder / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise InvalidRequest("cli.usage", f"{target} already exists; nothing was overwritten.") from error
    except OSError as error:
        raise InvalidRequest("cli.usage", f"{target} cannot be written: {error.strerror}.") from error
    return str(target)
