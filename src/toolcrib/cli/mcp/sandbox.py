"""`toolcrib mcp sandbox`: shows and changes what a stdio server may touch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib, show_changed, take_back
from toolcrib.cli.mcp.show import describe_problem
from toolcrib.cli.options import HomeOption, JsonOption, begin

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

_PROFILES = {
    "off": "no sandbox",
    "project": "project, caches and temporary files; network on",
    "strict": "reads the project, writes temporary files only; no network",
}


def sandbox(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The server.", show_default=False, autocompletion=names_of("server"))
    ],
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="P", help="off, project or strict.", show_default=False)
    ] = None,
    read: Annotated[
        list[str] | None, typer.Option("--read", metavar="PATH", help="Also allow reading this path.")
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="PATH", help="Also allow reading and writing this path.")
    ] = None,
    network: Annotated[
        bool | None, typer.Option("--network/--no-network", help="Allow or refuse the network.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, without changing it.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last change to a file.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or change the sandbox of a stdio server. A change restarts the server."""
    invocation = begin(ctx, home, as_json)
    if undo:
        take_back(invocation)
        return
    if profile is None and not read and not write and network is None:
        server = ask_crib(invocation, lambda client: client.server(name))
        if invocation.as_json:
            output.document(server)
        else:
            _show(server)
        return
    body: JsonObject = {"profile": profile, "network": network}
    body |= {"read": _absolute(read), "write": _absolute(write)}
    answer = ask_crib(invocation, lambda client: client.sandbox_server(name, body, dry_run=dry_run))
    show_changed(invocation, answer, name, "Changed the sandbox of")
    if not invocation.as_json and not dry_run:
        _show(answer)


def _absolute(paths: list[str] | None) -> list[str]:
    return [str(Path(each).expanduser().absolute()) for each in paths or ()]


def _show(server: "JsonObject") -> None:
    sandbox = server.get("sandbox")
    if sandbox is None:
        output.line(f"{output.one_line(server['name'])} has no sandbox, because Toolcrib does not start it.")
        return
    origin = "set by you" if sandbox["chosen"] else "default"
    output.line(f"profile:     {sandbox['profile']} ({origin}): {_PROFILES[sandbox['profile']]}")
    if sandbox["profile"] in ("project", "strict"):
        output.line(f"network:     {'on' if sandbox['network'] else 'off'}")
    for key in ("read", "write"):
        for path in sandbox[key]:
            output.line(f"{'also ' + key + 's:':<12} {output.one_line(path, 1000)}")
    problems = [problem for problem in server["problems"] if problem["code"].startswith("sandbox.")]
    if problems:
        output.line("\nproblems:")
    for problem in problems:
        output.line(f"  {describe_problem(problem)}")
