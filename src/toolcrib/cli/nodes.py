"""`toolcrib nodes`: the cribs that share one database, and moving the work of one to the others."""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, JsonOption, begin, common

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="nodes", invoke_without_command=True, rich_markup_mode=None, cls=CommandGroup)


@app.callback()
def nodes(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the nodes of the cluster.

    Each is shown with its version, load, sessions and lease.
    """
    ctx.obj = common(ctx, home, as_json)
    if ctx.invoked_subcommand is not None:
        return
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.nodes())
    if invocation.as_json:
        output.document(found)
    else:
        output.table(
            ("node", "address", "state", "version", "calls", "sessions", "lease", "epoch"),
            [_row(each) for each in found],
        )


@app.command("drain")
def drain(
    ctx: typer.Context,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its id, the beginning of it, or its address.", show_default=False)
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move the work of a node to the others, then stop it."""
    invocation = begin(ctx, home, as_json)
    name = node.partition("://")[2] or node  # a slash would end the path of the request
    drained = ask_crib(invocation, lambda client: client.drain_node(name))
    if invocation.as_json:
        output.document(drained)
    else:
        output.line(f"Draining {drained['id']}. It stops when its calls have ended.")


def _row(node: "JsonObject") -> tuple[str, ...]:
    lease = node["leaseSeconds"]
    shown = "" if lease is None else f"{lease:g} s"
    counts = (str(node["load"]), str(node["sessions"]), shown, str(node["epoch"]))
    return node["id"], node["address"] or "", node["state"], node["version"], *counts
