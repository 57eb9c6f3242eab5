"""`toolcrib mcp add`: by flags, from a pasted text, or asked line by line.

Above: `mcp`. Below: `mcp_definition`, and the crib through `mcp_change`. It must never add what a person pasted without
showing what it would run.
"""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import ask_line, can_ask, confirm
from toolcrib.cli.mcp_change import ask_crib, check_scope, needed, take_back
from toolcrib.cli.mcp_definition import Typed, entry_of
from toolcrib.cli.mcp_show import question_lines
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.errors import InvalidRequest, ToolcribError

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

PASTE_LIMIT = 1_048_576


def add(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name; with --paste, the text.", show_default=False)
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND ARG...", help="What to start, after two dashes.", show_default=False),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="U", help="The address of a remote server.")] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="T", help="http (default) or sse.")] = None,
    token: Annotated[str | None, typer.Option("--token", metavar="T", help="Sent as a bearer token.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", metavar="K=V", help="A header; repeatable.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="K=V", help="A variable; repeatable.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="D", help="The directory to start it in.")] = None,
    timeout: Annotated[int | None, typer.Option("--timeout", metavar="MS", min=0, help="Milliseconds.")] = None,
    scope: Annotated[str, typer.Option("--scope", metavar="S", help="user, or project for this one.")] = "user",
    disabled: Annotated[bool, typer.Option("--disabled", help="Add it switched off.")] = False,
    paste: Annotated[
        bool, typer.Option("--paste", help="Take a snippet of any tool, a URL or a command line, or - for stdin.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Add what was pasted without asking.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back the last change that was made to a file.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a server to Toolcrib's mcp.json. Without arguments, in a terminal, you are asked for each part."""
    check_scope(scope)
    words = list(command or ())
    if undo:
        take_back(begin(ctx, home, as_json))
    elif paste:
        text = _pasted_text([name or "-", *words])
        _add_pasted(begin(ctx, home, as_json), text, scope, yes)
    elif name is None and not any((words, url, kind, token, header, env, cwd, timeout, disabled)) and can_ask():
        ask_and_add(begin(ctx, home, as_json))
    else:
        typed = Typed(url, kind, token, header or (), env or (), cwd, timeout, scope, disabled, words)
        entry = entry_of(typed)
        _add(begin(ctx, home, as_json), [{"name": needed(name), "scope": scope, **entry}])


def ask_and_add(invocation: Invocation) -> None:
    """Ask a person for each part of a server, then add it."""
    name, entry, scope = _wizard()
    _add(invocation, [{"name": name, "scope": scope, **entry}])


def _add(invocation: Invocation, bodies: "list[JsonObject]") -> None:
    answers = [ask_crib(invocation, lambda client, body=body: client.add_server(body)) for body in bodies]
    if invocation.as_json:
        output.document(answers[0] if len(answers) == 1 else answers)
    for answer in answers:
        if not invocation.as_json:
            output.line(f'Added "{answer["name"]}" to {answer["change"]["file"]}.')
        output.warn_all(answer["problems"])


def _pasted_text(words: "list[str]") -> str:
    from toolcrib.cli.arguments import read_input

    # Several words are a command line that the shell took apart; one word is the text as it was quoted.
    text = words[0] if len(words) == 1 else shlex.join(words)
    return read_input(PASTE_LIMIT) if text == "-" else text


def _add_pasted(invocation: Invocation, text: str, scope: str, yes: bool) -> None:
    found = ask_crib(invocation, lambda client: client.recognise_servers(text))
    proposals = found["servers"]
    output.warn_all([*found["problems"], *(problem for each in proposals for problem in each["problems"])])
    if not proposals:
        raise InvalidRequest("server.invalid", "Invalid server config: there is no server in this text.")
    for proposal in proposals:
        for line in question_lines(proposal["question"]):
            output.note(line)
    grave = any(warning["grave"] for each in proposals for warning in each["question"]["warnings"])
    if not yes and can_ask():
        if not confirm("Add this?" if len(proposals) == 1 else f"Add these {len(proposals)}?"):
            raise typer.Exit(1)
    elif grave and not yes:
        raise InvalidRequest(
            "cli.usage", "This can do more than it shows; nothing was added.", "Look at it, then add --yes."
        )
    _add(invocation, [{"name": each["name"], "scope": scope, **each["definition"]} for each in proposals])


def _wizard() -> "tuple[str, JsonObject, str]":
    """Ask for each part until the whole can be added."""
    while True:
        name = ask_line("Name")
        kind = ask_line("Type: stdio, http or sse", "stdio")
        scope = ask_line("Scope: user or project", "user")
        try:
            check_scope(scope)
            typed = _ask_local(scope) if kind == "stdio" else _ask_remote(kind, scope)
            _check_name(name)
            return name, entry_of(typed), scope
        except ToolcribError as error:
            output.note(f"{error.message} Once more:")


def _ask_local(scope: str) -> Typed:
    line = ask_line("Command line")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InvalidRequest("cli.usage", f"This is not a command line: {error}.") from error
    env = _ask_pairs("Variable NAME=VALUE (empty to go on)")
    return Typed(env=env, cwd=ask_line("Working directory (empty for none)") or None, scope=scope, command=words)


def _ask_remote(kind: str, scope: str) -> Typed:
    url = ask_line("URL")
    token = ask_line("Bearer token (empty for none)") or None
    return Typed(url=url, type=kind, token=token, headers=_ask_pairs("Header NAME=VALUE (empty to go on)"), scope=scope)


def _ask_pairs(question: str) -> "list[str]":
    pairs: list[str] = []
    while answer := ask_line(question):
        pairs.append(answer)
    return pairs


def _check_name(name: str) -> None:
    from toolcrib.config.own import check_name

    check_name(name)
