"""`toolcrib tokens`: credentials for clients and programs, each bound to what it may be used for.

Above: `main`. Below: `client`, through `crib`. A secret is printed once and kept nowhere.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin, common

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="tokens", rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The token.", show_default=False)]


@app.callback()
def tokens(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List, make and revoke named tokens."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_tokens(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List tokens, revoked ones too."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.permissions.tokens())
    if invocation.as_json:
        output.document(found)
    elif found:
        output.table(("name", "agent", "source", "mode", "approves", "made", "revoked"), [_row(each) for each in found])
    else:
        output.note("There are no tokens but the owner's. Make one with `toolcrib tokens create`.")


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameArgument,
    agent: Annotated[str | None, typer.Option("--agent", metavar="A", help="It acts as this agent only.")] = None,
    source: Annotated[str, typer.Option("--source", metavar="S", help="Where its calls come from.")] = "ide",
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="M", help="How far it may go; acceptEdits for an IDE, else default.")
    ] = None,
    may_approve: Annotated[bool, typer.Option("--may-approve", help="Whoever has it may approve calls.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print its secret, which nobody can be told again."""
    from toolcrib.cli.arguments import check_source

    check_source(source)
    invocation = begin(ctx, home, as_json)
    body: JsonObject = {"name": name, "agent": agent, "source": source, "mode": mode, "mayApprove": may_approve}
    given = {key: value for key, value in body.items() if value is not None}
    token = ask_crib(invocation, lambda client: client.permissions.create_token(given))
    if invocation.as_json:
        output.document(token)
    else:
        output.line(token["secret"])
        output.note(f"This is the secret of {name!r}. It is shown this once.")


@app.command("revoke")
def revoke(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """End a token at once, with everything that is open under it."""
    invocation = begin(ctx, home, as_json)
    gone = ask_crib(invocation, lambda client: client.permissions.revoke_token(name))
    if invocation.as_json:
        output.document(gone)
    else:
        output.line(f"Revoked {name!r}.")


def _row(token: "JsonObject") -> tuple[str, ...]:
    approves = "yes" if token["mayApprove"] else ""
    kept = (token["name"], token.get("agent", ""), token["source"], token["mode"], approves)
    return *kept, token["createdAt"], token.get("revokedAt", "")
