"""`toolcrib mcp add`: from flags, from pasted text, or interactively.

Must never add pasted text without showing what it would run.
"""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import ask_line, can_ask, confirm
from toolcrib.cli.mcp.change import ask_crib, check_scope, describe_other_names, require_value, take_back
from toolcrib.cli.mcp.definition import Typed, entry_of
from toolcrib.cli.mcp.registry import PREFIX, RegistryChoice, add_published
from toolcrib.cli.mcp.show import question_lines
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import InvalidRequest, ToolcribError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolcrib.model.json import JsonObject

PASTE_LIMIT = 1_048_576
_LONGEST_TOKEN = 64 * 1024
_SET = "Pass values with --set."
_PASTE_FLAGS = "Only --scope, --disabled and --yes can be combined with --paste."

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="K=V", help="A value that the published server takes; repeatable."),
]
HowOption = Annotated[
    str | None,
    typer.Option("--option", metavar="ID", help="How to run the published server: npm, pypi, oci, remote and so on."),
]
AsOption = Annotated[str | None, typer.Option("--as", metavar="NAME", help="The name here of the published server.")]
TokenOption = Annotated[
    str | None, typer.Option("--token", metavar="T", help="The bearer token; - reads standard input.")
]
TimeoutOption = Annotated[int | None, typer.Option("--timeout", metavar="MS", min=0, help="Timeout in milliseconds.")]
ShareOption = Annotated[
    str | None, typer.Option("--share", metavar="S", help="shared (default), or session: one process per client.")
]
PlacementOption = Annotated[
    str | None,
    typer.Option("--placement", metavar="P", help="node (default), or one: on one node for all nodes of a cluster."),
]
ClientIdOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="The OAuth client ID for sign-in.")
]
PasteOption = Annotated[
    bool,
    typer.Option("--paste", help="Parse an app's config snippet, a URL or a command line; - reads standard input."),
]
EnvOption = Annotated[list[str] | None, typer.Option("--env", metavar="K=V", help="A variable; repeatable.")]
HeaderOption = Annotated[list[str] | None, typer.Option("--header", metavar="K=V", help="A header; repeatable.")]


def add(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The name, the URL of a remote server, or registry:NAME; with --paste, the text to parse.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND ARG...", help="The command to run, after --; or a URL.", show_default=False),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="U", help="The URL of a remote server.")] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="T", help="http (default) or sse.")] = None,
    token: TokenOption = None,
    header: HeaderOption = None,
    env: EnvOption = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="D", help="The working directory of the command.")] = None,
    timeout: TimeoutOption = None,
    share: ShareOption = None,
    placement: PlacementOption = None,
    client_id: ClientIdOption = None,
    scope: Annotated[str, typer.Option("--scope", metavar="S", help="user or project.")] = "user",
    disabled: Annotated[bool, typer.Option("--disabled", help="Add the server disabled.")] = False,
    paste: PasteOption = False,
    set_values: SetOption = None,
    option: HowOption = None,
    local_name: AsOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Add pasted or published servers unasked.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last change to a file.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a server to Toolcrib's mcp.json. Without arguments, prompts for each part."""
    check_scope(scope)
    words = list(command or ())
    given = (words, url, kind, token, header, env, cwd, timeout, disabled, share, placement, client_id)
    if undo:
        take_back(begin(ctx, home, as_json))
    elif paste:
        if any((url, kind, token, header, env, cwd, timeout is not None, share, placement, client_id)):
            raise InvalidRequest("cli.usage", "With --paste, the definition comes only from the text.", _PASTE_FLAGS)
        text = _read_pasted([name or "-", *words])
        _add_pasted(begin(ctx, home, as_json), text, scope, yes=yes, disabled=disabled)
    elif name is not None and name.startswith(PREFIX):
        if any((words, url, kind, token, cwd, timeout is not None, share, placement, client_id)):
            raise InvalidRequest("cli.usage", "The definition of a published server comes from the registry.", _SET)
        pairs = (*(set_values or ()), *(env or ()), *(header or ()))
        choice = RegistryChoice(name.removeprefix(PREFIX), option, local_name, pairs, scope, disabled, yes)
        add_published(begin(ctx, home, as_json), choice)
    elif name is None and not any(given) and can_ask():
        ask_and_add(begin(ctx, home, as_json))
    else:
        token = _token_from_stdin() if token == "-" else token
        name, url, words = _positional_url(name, url, words)
        flags = (url, kind, token, header or (), env or (), cwd, timeout, scope, disabled, words)
        _add_typed(lambda: begin(ctx, home, as_json), name, Typed(*flags, share, placement, client_id))


def _add_typed(start: "Callable[[], Invocation]", name: str | None, typed: Typed) -> None:
    """Add the server of the flags; they are checked before anything is opened."""
    entry, name = entry_of(typed), require_value(name)
    invocation = start()
    name = _name_of(invocation, name) if name == typed.url else name
    _add(invocation, [{"name": name, "scope": typed.scope, **entry}])


def _positional_url(
    name: str | None, url: str | None, words: "list[str]"
) -> "tuple[str | None, str | None, list[str]]":
    """Accept the URL of a remote server after the name, or in place of it, as other tools do."""
    if url is None and name is not None and not words and _is_url(name):
        return name, name, words
    if url is None and len(words) == 1 and _is_url(words[0]):
        return name, words[0], []
    return name, url, words


def _is_url(text: str) -> bool:
    scheme, _, rest = text.partition("://")
    return scheme.lower() in ("http", "https") and rest.strip("/") != ""


def _name_of(invocation: Invocation, url: str) -> str:
    """Return the name that pasting this URL would propose."""
    found = ask_crib(invocation, lambda client: client.recognise_servers(url))
    if not found["servers"]:
        raise InvalidRequest("server.invalid", f"Invalid server config: {url} is not the URL of a server.")
    return str(found["servers"][0]["name"])


def ask_and_add(invocation: Invocation) -> None:
    """Prompt for each part of a server, then add it."""
    name, entry, scope = _wizard()
    _add(invocation, [{"name": name, "scope": scope, **entry}])


def _add(invocation: Invocation, bodies: "list[JsonObject]") -> None:
    answers = [ask_crib(invocation, lambda client, body=body: client.add_server(body)) for body in bodies]
    if invocation.as_json:
        output.document(answers[0] if len(answers) == 1 else answers)
    for body, answer in zip(bodies, answers, strict=True):
        if not invocation.as_json:
            also = describe_other_names(str(body["name"]), answer)
            output.line(f'Added "{body["name"]}" to {answer["change"]["file"]}.{also}')
        output.warn_all(answer["problems"])


def _read_pasted(words: "list[str]") -> str:
    from toolcrib.cli.arguments import read_input

    # Several words are a command line that the shell split; one word is the quoted text itself.
    text = words[0] if len(words) == 1 else shlex.join(words)
    return read_input(PASTE_LIMIT) if text == "-" else text


def _token_from_stdin() -> str:
    """Return a token from stdin, so that it does not appear in the process list."""
    from toolcrib.cli.arguments import read_input

    token = read_input(_LONGEST_TOKEN).strip()
    if not token:
        raise InvalidRequest("cli.usage", "No token on standard input.", "Pipe the token into the command.")
    return token


def _add_pasted(invocation: Invocation, text: str, scope: str, *, yes: bool, disabled: bool) -> None:
    """Show what a text would add, and add it after confirmation: an added server may be started."""
    found = ask_crib(invocation, lambda client: client.recognise_servers(text))
    proposals = found["servers"]
    output.warn_all([*found["problems"], *(problem for each in proposals for problem in each["problems"])])
    if not proposals:
        raise InvalidRequest("server.invalid", "Invalid server config: no server found in the text.")
    for proposal in proposals:
        for line in question_lines(proposal["question"]):
            output.note(line)
    if not yes:
        if not can_ask():
            message = "Adding pasted servers requires confirmation, but there is no terminal. Nothing was added."
            raise InvalidRequest("cli.usage", message, "Review the output above, then add `--yes`.")
        if not confirm("Add this server?" if len(proposals) == 1 else f"Add these {len(proposals)} servers?"):
            raise typer.Exit(1)
    off: JsonObject = {"enabled": False} if disabled else {}
    _add(invocation, [{"name": each["name"], "scope": scope, **each["definition"], **off} for each in proposals])


def _wizard() -> "tuple[str, JsonObject, str]":
    """Prompt for each part until the definition is valid."""
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
            output.note(f"{error.message} Try again:")


def _ask_local(scope: str) -> Typed:
    line = ask_line("Command line")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InvalidRequest("cli.usage", f"Invalid command line: {error}.") from error
    env = _ask_pairs("Variable NAME=VALUE (empty to continue)")
    return Typed(env=env, cwd=ask_line("Working directory (empty for none)") or None, scope=scope, command=words)


def _ask_remote(kind: str, scope: str) -> Typed:
    url = ask_line("URL")
    token = ask_line("Bearer token (empty for none)") or None
    return Typed(
        url=url, type=kind, token=token, headers=_ask_pairs("Header NAME=VALUE (empty to continue)"), scope=scope
    )


def _ask_pairs(question: str) -> "list[str]":
    pairs: list[str] = []
    while answer := ask_line(question):
        pairs.append(answer)
    return pairs


def _check_name(name: str) -> None:
    from toolcrib.servers.own_file import check_name

    check_name(name)
