"""`toolcrib mcp`: the servers of every app on this machine, and changes of their definitions.

`add` adds, `trust` trusts, `connection` connects, `show` formats, `live` is the interactive view.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp import add as mcp_add
from toolcrib.cli.mcp import connection as mcp_link
from toolcrib.cli.mcp import doubles as mcp_doubles
from toolcrib.cli.mcp import registry as mcp_registry
from toolcrib.cli.mcp import sandbox as mcp_sandbox
from toolcrib.cli.mcp import secrets as mcp_secrets
from toolcrib.cli.mcp import trust as mcp_trust
from toolcrib.cli.mcp.change import ask_crib, check_scope, require_value, show_changed, take_back
from toolcrib.cli.mcp.show import show_server, show_servers, show_transfer
from toolcrib.cli.options import CommandGroup, HomeOption, Invocation, JsonOption, begin, common

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="mcp", invoke_without_command=True, rich_markup_mode=None, cls=CommandGroup)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The server.", show_default=False, autocompletion=names_of("server"))
]
OptionalName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The server.", show_default=False, autocompletion=names_of("server")),
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Only these servers.", show_default=False, autocompletion=names_of("server")),
]
InClientOption = Annotated[bool, typer.Option("--in-client", help="Edit the file of the app that defines the server.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would change, without changing it.")]
UndoOption = Annotated[bool, typer.Option("--undo", help="Undo the last change to a file.")]


@app.callback()
def mcp(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Manage MCP servers: find, add, change, trust and connect.

    Without a command, opens an interactive list at a terminal; with `--json`, lists the servers.
    """
    ctx.obj = common(ctx, home, as_json)
    if ctx.invoked_subcommand is not None:
        return
    if ctx.obj.as_json:
        list_servers(ctx, home, as_json)
        return
    if sys.platform == "win32" or not (can_ask() and sys.stdout.isatty()):
        output.line(ctx.get_help())
        return
    from toolcrib.cli.mcp.live import open_view  # not available on every platform

    open_view(begin(ctx, home, as_json))


app.command("add")(mcp_add.add)
app.command("search")(mcp_registry.search)
app.command("record")(mcp_doubles.record)
app.command("replay")(mcp_doubles.replay)
app.command("trust")(mcp_trust.trust)
app.command("untrust")(mcp_trust.untrust)
app.command("sandbox")(mcp_sandbox.sandbox)
app.add_typer(mcp_secrets.app)
app.command("test")(mcp_link.test)
app.command("reload")(mcp_link.reload)
app.command("auth")(mcp_link.auth)
app.command("reauth")(mcp_link.reauth)
app.command("unauth")(mcp_link.unauth)


@app.command("list")
def list_servers(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List all servers configured for any app on this machine."""
    from toolcrib.cli.mcp.offline import list_offline

    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "tuple[list[JsonObject], list[JsonObject]]":
        return await client.servers(), await client.server_problems()

    listing = list_offline(invocation.settings, invocation.environment)
    servers, problems = listing if listing is not None else ask_crib(invocation, work)
    if invocation.as_json:
        output.document(servers)
        output.warn_all(problems)
    else:
        show_servers(servers, problems)


@app.command("get")
def get(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a server: definition, origin of each value, and problems."""
    invocation = begin(ctx, home, as_json)
    server = ask_crib(invocation, lambda client: client.server(name))
    invocation.show(server, show_server)


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
    """Remove a server from the list. A server of another app is hidden; its file is unchanged."""
    invocation = begin(ctx, home, as_json)
    if undo:
        take_back(invocation)
        return
    server = require_value(name)
    answer = ask_crib(invocation, lambda client: client.remove_server(server, in_client=in_client, dry_run=dry_run))
    show_changed(invocation, answer, server, "Removed")


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
    """Enable a server, or bring back a removed one."""
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
    """Disable a server; it stays listed but is never connected."""
    _switch(begin(ctx, home, as_json), name, False, in_client, dry_run, undo)


@app.command("import")
def import_servers(
    ctx: typer.Context,
    names: NamesArgument = None,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Trust the imported servers without confirmation.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import servers of other apps into mcp.json and report what was skipped."""
    invocation = begin(ctx, home, as_json)
    if undo:
        take_back(invocation)
        return
    report = ask_crib(invocation, lambda client: client.import_servers(names or (), dry_run=True))
    if not dry_run:
        questions = [each["question"] for each in report["taken"] if "question" in each]
        mcp_trust.agree_to_import(questions, yes=yes)
        shown = [question["digest"] for question in questions]
        report = ask_crib(invocation, lambda client: client.import_servers(names or (), dry_run=False, digests=shown))
    if invocation.as_json:
        output.document(report)
    else:
        show_transfer(report, "would import" if dry_run else "added  ")


@app.command("export")
def export_servers(
    ctx: typer.Context,
    names: NamesArgument = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="C", help="The app to export for, such as cursor.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write to the app's own file.")] = False,
    scope: Annotated[
        str, typer.Option("--scope", metavar="S", help="The app's file to write: user or project.")
    ] = "user",
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print servers in the format of another app; --write saves them to its file."""
    invocation = begin(ctx, home, as_json)
    if undo:
        take_back(invocation)
        return
    check_scope(scope)
    tool, chosen = require_value(client, "Missing option '--client'."), names or ()
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
    server = require_value(name)
    answer = ask_crib(
        invocation, lambda client: client.switch_server(server, enabled, in_client=in_client, dry_run=dry_run)
    )
    show_changed(invocation, answer, server, "Enabled" if enabled else "Disabled")
