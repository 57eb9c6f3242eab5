"""`toolcrib mcp sandbox`: shows and changes what a stdio server may touch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import confirm
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib, show_changed, take_back
from toolcrib.cli.mcp.show import describe_problem
from toolcrib.cli.options import HomeOption, JsonOption, begin
from toolcrib.model.errors import Conflict

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject

_PROFILES = {
    "off": "no sandbox",
    "learn": "no sandbox, what it uses is recorded",
    "project": "project and private directory; network on",
    "strict": "reads the project, writes its private directory only; no network",
}
_REACH = {"all": "on", "none": "off", "hosts": "listed hosts only"}


def sandbox(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The server.", show_default=False, autocompletion=names_of("server"))
    ],
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="P", help="off, learn, project or strict.", show_default=False)
    ] = None,
    learn: Annotated[bool, typer.Option("--learn", help="Record what the server uses: `--profile learn`.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Apply the profile that the record proposes.")] = False,
    read: Annotated[
        list[str] | None, typer.Option("--read", metavar="PATH", help="Also allow reading this path.")
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="PATH", help="Also allow reading and writing this path.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="H", help="Allow this host, and no others that are not listed."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="X", help="No longer allow this path or host.")
    ] = None,
    network: Annotated[
        bool | None, typer.Option("--network/--no-network", help="Allow or refuse the network.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
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
    profile = "learn" if learn else profile
    body: JsonObject = {"profile": profile, "network": network, "read": _absolute(read), "write": _absolute(write)}
    body |= {"hosts": allow_host or [], "removed": [*(remove or ()), *_absolute(remove)]}
    if apply or profile == "learn" or not any(value not in (None, []) for value in body.values()):
        server = ask_crib(invocation, lambda client: client.server(name))
        if not apply and profile is None:
            output.document(server) if invocation.as_json else _show(server)
            return
        body = _proposal(server) if apply else body | {"unconfined": True}
        if not (yes or dry_run) and not _is_confirmed(server, is_learning=not apply):
            raise typer.Exit(1)
    answer = ask_crib(invocation, lambda client: client.sandbox_server(name, body, dry_run=dry_run))
    show_changed(invocation, answer, name, "Changed the sandbox of")
    if not invocation.as_json and not dry_run:
        _show(answer)


def _absolute(paths: list[str] | None) -> list[str]:
    return [str(Path(each).expanduser().absolute()) for each in paths or ()]


def _proposal(server: "JsonObject") -> "JsonObject":
    sandbox: JsonObject = server.get("sandbox") or {}
    if "learned" not in sandbox:
        hint = f"Run `toolcrib mcp sandbox {server['alias']} --learn`, then use its tools."
        raise Conflict("sandbox.not_recorded", f'Nothing was recorded of server "{server["name"]}".', hint)
    return sandbox["learned"]["proposal"]


def _is_confirmed(server: "JsonObject", *, is_learning: bool) -> bool:
    """Show what follows and return whether the user agrees. Without a terminal, only `--yes` does."""
    name = output.one_line(server["name"])
    if is_learning:
        output.note(f"{name} will run without a sandbox, as you, while what it uses is recorded.")
    else:
        _show_learned(server["sandbox"]["learned"])
    return confirm("Record it?" if is_learning else "Apply it and restart the server?")


def _show(server: "JsonObject") -> None:
    sandbox = server.get("sandbox")
    if sandbox is None:
        output.line(f"{output.one_line(server['name'])} has no sandbox, because Toolcrib does not start it.")
        return
    origin = "set by you" if sandbox["chosen"] else "default"
    output.line(f"profile:     {sandbox['profile']} ({origin}): {_PROFILES[sandbox['profile']]}")
    if sandbox["profile"] in ("project", "strict"):
        output.line(f"network:     {_REACH[sandbox['network']]}")
    for label, key in (("also reads:", "read"), ("also writes:", "write"), ("reaches:", "hosts")):
        for each in sandbox[key]:
            output.line(f"{label:<12} {output.one_line(each, 1000)}")
    if "learned" in sandbox:
        _show_learned(sandbox["learned"])
    problems = [problem for problem in server["problems"] if problem["code"].startswith("sandbox.")]
    if problems:
        output.line("\nproblems:")
    for problem in problems:
        output.line(f"  {describe_problem(problem)}")


def _show_learned(learned: "JsonObject") -> None:
    proposal = learned["proposal"]
    output.line(f"\nproposal:    {proposal['profile']} ({learned['recorded']} accesses recorded)")
    rows = (
        ("reads:", proposal["read"]),
        ("writes:", proposal["write"]),
        ("reaches:", proposal["hosts"]),
        ("credential:", [f"{each} (not proposed)" for each in learned["credentials"]]),
        ("direct:", [f"{each} (not through the proxy, so there is no list of hosts)" for each in learned["direct"]]),
        ("socket:", [f"{each} (not proposed)" for each in learned["sockets"]]),
    )
    for label, items in rows:
        for each in items:
            output.line(f"  {label:<11} {output.one_line(each, 1000)}")
    if learned["leftOut"]:
        output.line(f"  left out:   {learned['leftOut']} names that cannot be shown, or did not fit")
