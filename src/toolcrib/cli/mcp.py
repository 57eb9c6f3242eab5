"""`toolcrib mcp`: the servers of every tool on this machine, and every change of a definition.

`mcp_add` adds, `mcp_trust` trusts, `mcp_link` connects, `mcp_show` has the words, `mcp_live` is the view of all. Above:
`main`. Below: `client`, through `crib`.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import mcp_add, mcp_link, mcp_trust, output
from toolcrib.cli.asking import can_ask
from toolcrib.cli.mcp_change import ask_crib, check_scope, needed, show_changed, take_back
from toolcrib.cli.mcp_show import show_server, show_servers, show_transfer
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin, common

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="mcp", invoke_without_command=True, rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The server.", show_default=False)]
OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="The server.", show_default=False)]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Only these servers.", show_default=False)
]
InClientOption = Annotated[bool, typer.Option("--in-client", help="Edit the file of the tool that defines it.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
UndoOption = Annotated[bool, typer.Option("--undo", help="Take back the last change that was made to a file.")]


@app.callback()
def mcp(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Find, add, change, trust and connect MCP servers.

    Without a command, in a terminal, all of them are shown, to be looked through, tested, switched and added to.
    """
    ctx.obj = common(ctx, home, as_json)
    if ctx.invoked_subcommand is not None:
        return
    if ctx.obj.as_json or sys.platform == "win32" or not (can_ask() and sys.stdout.isatty()):
        output.line(ctx.get_help())
        return
    from toolcrib.cli.mcp_live import open_view  # needs what not every system has

    open_view(begin(ctx, home, as_json))


app.command("add")(mcp_add.add)
app.command("trust")(mcp_trust.trust)
app.command("untrust")(mcp_trust.untrust)
app.command("test")(mcp_link.test)
app.command("reload")(mcp_link.reload)
app.command("auth")(mcp_link.auth)
app.command("reauth")(mcp_link.reauth)
app.command("unauth")(mcp_link.unauth)


@app.command("list")
def list_servers(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List every server that a tool on this machine is configured to use, seen from here."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "Client") -> "tuple[list[JsonObject], list[JsonObject]]":
        return await client.servers(), await client.server_problems()

    servers, problems = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(servers)
        output.warn_all(problems)
    else:
        show_servers(servers, problems)


@app.command("get")
def get(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show one server: its definition, where each value comes from, and what is wrong with it."""
    invocation = begin(ctx, home, as_json)
    server = ask_crib(invocation, lambda client: client.server(name))
    if invocation.as_json:
        output.document(server)
    else:
        show_server(server)


@app.command("rm", hidden=True)
@app.command("remove")
def remove(
    ctx: typer.Context,
    name: OptionalName = None,
    in_client: InClientOption = False,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a server off the list; one of another tool's file is hidden, and stays in that file."""
    invocation = begin(ctx, home, as_json)
    if undo:
        take_back(invocation)
        return
    server = needed(name)
    answer = ask_crib(invocation, lambda client: client.remove_server(server, in_client=in_client, dry_run=dry_run))
    show_changed(invocation, answer, f'Removed "{server}"')


@app.command("enable")
def enable(
    ctx: typer.Context,
    name: OptionalName = None,
    in_client: InClientOption = False,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn a server on; one that was removed from the list comes back."""
    _switch(begin(ctx, home, as_json), name, True, in_client, dry_run, undo)


@app.command("disable")
def disable(
    ctx: typer.Context,
    name: OptionalName = None,
    in_client: InClientOption = False,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn a server off: it stays on the list and is never connected to."""
    _switch(begin(ctx, home, as_json), name, False, in_client, dry_run, undo)


@app.command("import")
def import_servers(
    ctx: typer.Context,
    names: NamesArgument = None,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take servers of other tools over into mcp.json, and tell what was taken, what was not, and why."""
    invocation = begin(ctx, home, as_json)
    if undo:
        take_back(invocation)
        return
    report = ask_crib(invocation, lambda client: client.import_servers(names or (), dry_run=dry_run))
    if invocation.as_json:
        output.document(report)
    else:
        show_transfer(report, "would take" if dry_run else "taken  ")


@app.command("export")
def export_servers(
    ctx: typer.Context,
    names: NamesArgument = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="C", help="The tool to write for, such as cursor.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write into that tool's own file.")] = False,
    scope: Annotated[str, typer.Option("--scope", metavar="S", help="Its file to write: user or project.")] = "user",
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print servers in another tool's format, values as they were written; --write puts them into its file."""
    invocation = begin(ctx, home, as_json)
    if undo:
        take_back(invocation)
        return
    check_scope(scope)
    tool, chosen = needed(client, "Missing option '--client'."), names or ()
    if write or dry_run:
        report = ask_crib(invocation, lambda crib: crib.write_export(tool, chosen, scope=scope, dry_run=dry_run))
        if invocation.as_json:
            output.document(report)
        else:
            show_transfer(report, "would write" if dry_run else "written")
        return
    exported = ask_crib(invocation, lambda crib: crib.export_servers(tool, chosen))
    if invocation.as_json:
        output.document(exported)
    else:
        output.line(exported["text"].rstrip("\n"))
        output.warn_all(exported["problems"])


def _switch(
    invocation: Invocation, name: str | None, enabled: bool, in_client: bool, dry_run: bool, undo: bool
) -> None:
    if undo:
        take_back(invocation)
        return
    server = needed(name)
    answer = ask_crib(
        invocation, lambda client: client.switch_server(server, enabled, in_client=in_client, dry_run=dry_run)
    )
    show_changed(invocation, answer, f'{"Enabled" if enabled else "Disabled"} "{server}"')
