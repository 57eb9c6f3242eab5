"""`toolcrib tokens`: credentials for clients and programs, each with its own restrictions.

A secret is printed once and not stored.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, JsonOption, begin, common

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="tokens", rich_markup_mode=None, cls=CommandGroup)

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of the token.", show_default=False, autocompletion=names_of("token")),
]


@app.callback()
def tokens(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List, create and revoke tokens."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_tokens(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List tokens, including revoked ones."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.permissions.tokens())
    if invocation.as_json:
        output.document(found)
    elif found:
        output.table(("name", "agent", "source", "mode", "approves", "made", "revoked"), [_row(each) for each in found])
    else:
        output.note("No tokens found. Create one with `toolcrib tokens create NAME`.")


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameArgument,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="A", help="Restrict the token to this agent.", autocompletion=names_of("agent")
        ),
    ] = None,
    source: Annotated[str, typer.Option("--source", metavar="S", help="The source of its calls.")] = "ide",
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="M", help="The permission mode; acceptEdits for an IDE, otherwise default."),
    ] = None,
    may_approve: Annotated[
        bool, typer.Option("--may-approve", help="Allow the token to approve its own calls, once.")
    ] = False,
    may_remember: Annotated[
        bool, typer.Option("--may-remember", help="Allow its answers to create rules; requires --may-approve.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print its secret, once."""
    from toolcrib.cli.arguments import check_source

    check_source(source)
    invocation = begin(ctx, home, as_json)
    body: JsonObject = {"name": name, "agent": agent, "source": source, "mode": mode, "mayApprove": may_approve}
    body |= {"mayRemember": True} if may_remember else {}
    given = {key: value for key, value in body.items() if value is not None}
    token = ask_crib(invocation, lambda client: client.permissions.create_token(given))
    if invocation.as_json:
        output.document(token)
    else:
        output.line(token["secret"])
        output.note(f"The secret of {name!r} is shown only once.")


@app.command("revoke")
def revoke(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Revoke a token and close its open connections."""
    invocation = begin(ctx, home, as_json)
    gone = ask_crib(invocation, lambda client: client.permissions.revoke_token(name))
    invocation.confirm(gone, f"Revoked {name!r}.")


def _row(token: "JsonObject") -> tuple[str, ...]:
    approves = ("and remembers" if token.get("mayRemember") else "once") if token["mayApprove"] else ""
    kept = (token["name"], token.get("agent", ""), token["source"], token["mode"], approves)
    return *kept, output.when(token["createdAt"]), output.when(token.get("revokedAt"))
