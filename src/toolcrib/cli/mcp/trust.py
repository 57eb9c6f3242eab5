"""`toolcrib mcp trust` and `untrust`: decide what may be started, after showing exactly what that is.

Trust applies only to what was displayed: the digest is sent with the confirmation.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.mcp.show import question_lines
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import Denied, InvalidRequest, NotFound

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|PATH", help="A server, a project directory, or one of your config files.", show_default=False
    ),
]


def trust(
    ctx: typer.Context,
    what: WhatArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    allow_secrets: Annotated[
        bool,
        typer.Option("--allow-secrets", help="Also approve the use of the listed credentials and files."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Trust a server, or all servers of a project, as currently defined."""
    agree(begin(ctx, home, as_json), what, yes=yes, allow_secrets=allow_secrets)


def agree(invocation: Invocation, what: str, *, yes: bool = False, allow_secrets: bool = False) -> None:
    """Show what would be trusted, ask, and trust exactly that."""
    path, servers = ask_crib(invocation, lambda client: _find(client, what))
    open_questions = [server for server in servers if not server["trusted"]]
    if open_questions:
        allow_secrets = _ask_to_agree([server["question"] for server in open_questions], yes, allow_secrets)
    elif not servers:
        output.note(f"{what} defines no servers.")

    async def work(client: "ApiClient") -> "list[JsonObject]":
        shown = [server["question"]["digest"] for server in servers]
        if path is not None:
            return await client.trust_path(path, shown, allow_secrets=allow_secrets)
        return [
            await client.trust_server(server["alias"], digest, allow_secrets=allow_secrets)
            for server, digest in zip(servers, shown, strict=True)
        ]

    _report(invocation, ask_crib(invocation, work), "is trusted")


def agree_to_import(questions: "list[JsonObject]", *, yes: bool) -> None:
    """Show the servers that an import would trust, and ask. Raises if declined."""
    _show(questions)
    if yes or not questions:
        return
    if not can_ask():
        message = "Importing untrusted servers requires confirmation, but there is no terminal."
        raise InvalidRequest(
            "cli.usage", message, "Review the output above, then run the command in a terminal, or add `--yes`."
        )
    if not confirm("Import this server?" if len(questions) == 1 else f"Import these {len(questions)} servers?"):
        raise Denied("server.untrusted", "Nothing was imported.", "Nothing will be started.")


def untrust(ctx: typer.Context, what: WhatArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Revoke trust; the servers are not started again."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "list[JsonObject]":
        path, servers = await _find(client, what)
        if path is not None:
            return await client.untrust_path(path)
        return [await client.untrust_server(server["alias"]) for server in servers]

    _report(invocation, ask_crib(invocation, work), "is not trusted")


async def _find(client: "ApiClient", what: str) -> "tuple[str | None, list[JsonObject]]":
    """Return the named servers with their questions; for a path, also its absolute form."""
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
    path = _absolute(what)
    return path, await client.trust_path(path)


def _exists(what: str) -> bool:
    return Path(what).exists()


def _absolute(what: str) -> str:
    return str(Path(what).expanduser().absolute())


def _looks_like_path(what: str) -> bool:
    return what in (".", "..") or what.startswith(("/", "./", "../", "~"))


def _show(questions: "list[JsonObject]") -> None:
    for question in questions:
        for line in question_lines(question):
            output.note(line)
        output.note("")


def _ask_to_agree(questions: "list[JsonObject]", yes: bool, allow_secrets: bool) -> bool:
    """Ask for confirmation, and again if secrets are passed on; return whether that was accepted."""
    _show(questions)
    if not yes:
        if not can_ask():
            hint = "Review the output above, then run the command in a terminal, or add `--yes`."
            raise InvalidRequest("cli.usage", "Trusting requires confirmation, but there is no terminal.", hint)
        if not confirm("Trust this server?" if len(questions) == 1 else f"Trust these {len(questions)} servers?"):
            raise Denied("server.untrusted", "Nothing was trusted.", "Nothing will be started.")
    grave = [taken for question in questions for taken in question.get("resolves", ()) if taken["grave"]]
    if not grave or allow_secrets:
        return allow_secrets
    named = ", ".join(dict.fromkeys(f"{taken['kind']} {taken['name']}" for taken in grave))
    hint = "Review the credentials and files, then add `--allow-secrets`."
    if yes or not can_ask():
        raise Denied("server.reveals_secrets", f"It uses {named}, which requires separate confirmation.", hint)
    if not confirm(f"It uses {named}. Allow this?"):
        raise Denied("server.reveals_secrets", "Nothing was trusted.", "Nothing will be started.")
    return True


def _report(invocation: Invocation, servers: "list[JsonObject]", words: str) -> None:
    if invocation.as_json:
        output.document(servers)
        return
    for server in servers:
        output.line(f'"{server["name"]}" {words}.')
