"""`toolcrib mcp trust` and `untrust`: agreeing to what may be started, after seeing exactly what that is.

Above: `mcp`. Below: the crib, through `mcp_change`. What is agreed to is what was shown: its digest goes with the yes.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.mcp_show import question_lines
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.errors import Denied, InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|PATH", help="A server, a project's directory, or a file of yours.", show_default=False
    ),
]


def trust(
    ctx: typer.Context,
    what: WhatArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree without being asked.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Agree that a server, or every server of a project, may be started as it is defined now."""
    agree(begin(ctx, home, as_json), what, yes=yes)


def agree(invocation: Invocation, what: str, *, yes: bool = False) -> None:
    """Show what is to be trusted, ask, and trust exactly that."""
    path, servers = ask_crib(invocation, lambda client: _find(client, what))
    open_questions = [server for server in servers if not server["trusted"]]
    if open_questions:
        _ask_to_agree([server["question"] for server in open_questions], yes)
    elif not servers:
        output.note(f"{what} defines no servers.")

    async def work(client: "Client") -> "list[JsonObject]":
        shown = [server["question"]["digest"] for server in servers]
        if path is not None:
            return await client.trust_path(path, shown)
        return [
            await client.trust_server(server["alias"], digest) for server, digest in zip(servers, shown, strict=True)
        ]

    _tell(invocation, ask_crib(invocation, work), "is trusted")


def untrust(ctx: typer.Context, what: WhatArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Take an agreement back; the servers are not started again."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "Client") -> "list[JsonObject]":
        path, servers = await _find(client, what)
        if path is not None:
            return await client.untrust_path(path)
        return [await client.untrust_server(server["alias"]) for server in servers]

    _tell(invocation, ask_crib(invocation, work), "is not trusted")


async def _find(client: "Client", what: str) -> "tuple[str | None, list[JsonObject]]":
    """What was named, with its questions: a server, else a path, which is given back in full."""
    if not _looks_like_path(what):
        try:
            server = await client.server(what)
        except NotFound:
            if not _exists(what):
                raise
        else:
            if server["question"] is None:
                raise InvalidRequest("server.invalid", server["problems"][0]["message"])
            return None, [server]
    path = _whole(what)
    return path, await client.trust_path(path)


def _exists(what: str) -> bool:
    return Path(what).exists()


def _whole(what: str) -> str:
    return str(Path(what).expanduser().absolute())


def _looks_like_path(what: str) -> bool:
    return what in (".", "..") or what.startswith(("/", "./", "../", "~"))


def _ask_to_agree(questions: "list[JsonObject]", yes: bool) -> None:
    for question in questions:
        for line in question_lines(question):
            output.note(line)
        output.note("")
    if yes:
        return
    if not can_ask():
        hint = "Read what is shown above, then run it in a terminal, or add --yes."
        raise InvalidRequest("cli.usage", "Trusting needs a person's yes, and nobody can be asked here.", hint)
    if not confirm("Trust this server?" if len(questions) == 1 else f"Trust these {len(questions)} servers?"):
        raise Denied("server.untrusted", "Nothing was trusted.", "Nothing will be started.")


def _tell(invocation: Invocation, servers: "list[JsonObject]", words: str) -> None:
    if invocation.as_json:
        output.document(servers)
        return
    for server in servers:
        output.line(f'"{server["name"]}" {words}.')
