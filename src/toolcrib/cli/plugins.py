"""`toolcrib plugins`: installed packages with tools, and what they were granted.

Above: `main`. Below: `client`, through `crib`. What a plugin asks for is shown before it is granted.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin, common

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="plugins", rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The plugin.", show_default=False)]

_WORDS = {
    "network": "talk to other machines",
    "filesystem": "read and write files",
    "subprocess": "start programs",
    "secrets": "use passwords and keys",
    "sessions": "look into sessions of agents, or start them",
}
_STATES = {"not_granted": "not granted", "changed": "changed since it was granted"}


@app.callback()
def plugins(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List installed plugins; grant, revoke, disable and enable them."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_plugins(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List installed plugins and what each asks for."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.plugins.list())
    if invocation.as_json:
        output.document(found)
        return
    if not found:
        output.note("No plugin is installed: no package has an entry point in the group `toolcrib.tools`.")
        return
    output.table(("name", "version", "state", "asks for", "servers", "tools"), [_row(each) for each in found])
    for plugin in found:
        output.warn_all(plugin["problems"])


@app.command("grant")
def grant(
    ctx: typer.Context,
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree without being asked.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Agree to a plugin and what it asks for; it is loaded at once, with all rights of the crib."""
    from toolcrib.cli.asking import can_ask, confirm

    invocation = begin(ctx, home, as_json)
    plugin = ask_crib(invocation, lambda client: client.plugins.get(name))
    _describe(plugin)
    if not yes and can_ask() and not confirm(f"Grant this to {name}?"):
        output.note("Nothing was granted; it is not loaded.")
        raise typer.Exit(1)
    granted = ask_crib(invocation, lambda client: client.plugins.grant(name, str(plugin.get("digest", "-"))))
    _tell(invocation, granted)


@app.command("revoke")
def revoke(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Take the agreement back; the plugin's tools are gone at once."""
    invocation = begin(ctx, home, as_json)
    gone = ask_crib(invocation, lambda client: client.plugins.revoke(name))
    if invocation.as_json:
        output.document(gone)
    else:
        output.line(f"{name} is not granted any more.")


@app.command("disable")
def disable(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Turn a plugin off; what was granted stays."""
    invocation = begin(ctx, home, as_json)
    _tell(invocation, ask_crib(invocation, lambda client: client.plugins.switch(name, False)))


@app.command("enable")
def enable(ctx: typer.Context, name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Turn a plugin on again."""
    invocation = begin(ctx, home, as_json)
    _tell(invocation, ask_crib(invocation, lambda client: client.plugins.switch(name, True)))


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
    """What the owner is about to agree to."""
    if "digest" not in plugin:
        return  # what is wrong with it comes as the answer
    output.note(f"{plugin['name']} {plugin['version']} ({plugin['package']}): {plugin['description']}")
    output.note(f"It adds: {', '.join(plugin['servers'])}.")
    for each in plugin["capabilities"]:
        output.note(f"It asks to {_WORDS.get(each, each)} ({each}).")
    if not plugin["capabilities"]:
        output.note("It asks for nothing beyond the arguments of its tools.")
    output.note("It runs inside the crib: what it asks for is what it owns up to, not a fence around it.")


def _tell(invocation: Invocation, plugin: "JsonObject") -> None:
    if invocation.as_json:
        output.document(plugin)
    else:
        tools = f" with {len(plugin['tools'])} tools" if plugin["state"] == "loaded" else ""
        output.line(f"{plugin['name']} is {_STATES.get(plugin['state'], plugin['state'])}{tools}.")
        output.warn_all(plugin["problems"])
    if plugin["state"] == "failed":
        raise typer.Exit(1)
