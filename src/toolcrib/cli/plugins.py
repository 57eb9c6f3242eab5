"""`toolcrib plugins`: installed packages with tools, and their grants.

Requested capabilities are displayed before they are granted.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, Invocation, JsonOption, begin, common
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="plugins", rich_markup_mode=None, cls=CommandGroup)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of the plugin.", show_default=False, autocompletion=names_of("plugin")
    ),
]

_WORDS = {
    "network": "access the network",
    "filesystem": "read and write files",
    "subprocess": "run programs",
    "secrets": "use secrets",
    "sessions": "read and start agent sessions",
}
_STATES = {"not_granted": "not granted", "changed": "changed since granted"}


@app.callback()
def plugins(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List, grant and revoke plugins."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_plugins(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List installed plugins and the capabilities they request."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.plugins.list())
    if invocation.as_json:
        output.document(found)
        return
    if not found:
        output.note("No plugins installed. Plugins are packages with an entry point in the group `toolcrib.tools`.")
        return
    output.table(("name", "version", "state", "requests", "servers", "tools"), [_row(each) for each in found])
    for plugin in found:
        output.warn_all(plugin["problems"])


@app.command("grant")
def grant(
    ctx: typer.Context,
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grant a plugin its capabilities and load it, with all rights of the crib."""
    from toolcrib.cli.asking import can_ask, confirm

    invocation = begin(ctx, home, as_json)
    plugin = ask_crib(invocation, lambda client: client.plugins.get(name))
    _describe(plugin)
    if not yes:
        if not can_ask():
            hint = "Review the output above, then run the command in a terminal, or add `--yes`."
            raise InvalidRequest("cli.usage", f"Granting {name} requires confirmation, but there is no terminal.", hint)
        if not confirm(f"Grant these capabilities to {name}?"):
            output.note("Nothing was granted.")
            raise typer.Exit(1)
    granted = ask_crib(invocation, lambda client: client.plugins.grant(name, str(plugin.get("digest", "-"))))
    _report(invocation, granted)


@app.command("revoke")
def revoke(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Revoke a plugin; its tools are removed immediately."""
    invocation = begin(ctx, home, as_json)
    gone = ask_crib(invocation, lambda client: client.plugins.revoke(name))
    invocation.confirm(gone, f"Revoked {name}.")


@app.command("disable")
def disable(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Disable a plugin; its grant is kept."""
    invocation = begin(ctx, home, as_json)
    _report(invocation, ask_crib(invocation, lambda client: client.plugins.switch(name, False)))


@app.command("enable")
def enable(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Enable a plugin again."""
    invocation = begin(ctx, home, as_json)
    _report(invocation, ask_crib(invocation, lambda client: client.plugins.switch(name, True)))


def _row(plugin: "JsonObject") -> tuple[str, ...]:
    state: str = plugin["state"]
    asks = ", ".join(plugin["capabilities"]) or "nothing"
    return (
        plugin["name"],
        plugin.get("version", "-"),
        _STATES.get(state, state),
        asks if "version" in plugin else "-",
        ", ".join(plugin["servers"]),
        str(len(plugin["tools"])),
    )


def _describe(plugin: "JsonObject") -> None:
    """Print what is about to be granted."""
    if "digest" not in plugin:
        return  # the grant request reports the problem
    output.note(f"{plugin['name']} {plugin['version']} ({plugin['package']}): {plugin['description']}")
    output.note(f"It adds: {', '.join(plugin['servers'])}.")
    for each in plugin["capabilities"]:
        output.note(f"It requests to {_WORDS.get(each, each)} ({each}).")
    if not plugin["capabilities"]:
        output.note("It requests no capabilities.")
    output.note("It runs inside the crib without a sandbox; the capabilities above are declared, not enforced.")


def _report(invocation: Invocation, plugin: "JsonObject") -> None:
    if invocation.as_json:
        output.document(plugin)
    else:
        tools = f" with {len(plugin['tools'])} tools" if plugin["state"] == "loaded" else ""
        output.line(f"{plugin['name']} is {_STATES.get(plugin['state'], plugin['state'])}{tools}.")
        output.warn_all(plugin["problems"])
    if plugin["state"] == "failed":
        raise typer.Exit(1)
