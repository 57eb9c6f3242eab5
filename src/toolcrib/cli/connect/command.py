"""`toolcrib connect`: adds this crib to the configuration of apps, after showing the exact change.

Must never change an app's file without consent.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import ask_line, can_ask, confirm
from toolcrib.cli.completion import names_of
from toolcrib.cli.connect.show import (
    ASK_INSTEAD,
    NO_LEVEL,
    show_clients,
    show_done,
    show_plan,
    show_undone,
)
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import Denied, InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

ClientArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CLIENT",
        help="The app, such as claude-code, cursor or codex.",
        show_default=False,
        autocompletion=names_of("client"),
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="ID",
        help="Connect as this agent, with its tools and prompt. With --project, by default the project's agent.",
        autocompletion=names_of("agent"),
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Connect all apps on this machine.")]
LevelOption = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="L",
        help="ask (recommended): tools that are not read-only require approval; app: the app decides.",
    ),
]
ToolsOption = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="T",
        help="What the app receives: all, chosen, search or code. By default the tools of your servers.",
    ),
]
ChosenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="PATTERN",
        help="A tool of the app's set, with --tools chosen. Repeatable.",
        show_default=False,
    ),
]
MoveOption = Annotated[bool, typer.Option("--move", help="Also move the app's other servers to Toolcrib.")]


class _Wish(NamedTuple):
    """Options that apply to every app."""

    agent: str | None
    scope: str
    stdio: bool
    anyway: bool
    programs: tuple[str, ...]
    level: str | None
    tools: str | None = None
    chosen: tuple[str, ...] = ()

    def body(self, *, move: bool, dry_run: bool) -> "JsonObject":
        lists = {"programs": list(self.programs), "chosen": list(self.chosen)}
        return {**self._asdict(), **lists, "move": move, "dryRun": dry_run}


class _Plan(NamedTuple):
    """What connecting one app would change: alone, and with its other servers moved (None if it has none)."""

    alone: "JsonObject"
    moving: "JsonObject | None"


def connect(
    ctx: typer.Context,
    client: ClientArgument = None,
    agent: AgentOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, without changing it.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Restore the app's file and revoke its token.")] = False,
    project: Annotated[bool, typer.Option("--project", help="Use the config file of the current project.")] = False,
    all_clients: AllOption = False,
    move: MoveOption = False,
    level: LevelOption = None,
    tools: ToolsOption = None,
    chosen: ChosenOption = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Connect over stdio, even if the app supports HTTP.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Connect even if the app was not found.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add this crib to an app's configuration. Without CLIENT, list apps and their state."""
    if client is not None and all_clients:
        raise InvalidRequest("cli.usage", "Use either CLIENT or --all, not both.")
    if level not in (None, "ask", "app"):
        raise InvalidRequest("cli.usage", f"{level!r} is not a level.", "Choose ask or app.")
    if tools not in (None, "all", "chosen", "search", "code"):
        raise InvalidRequest("cli.usage", f"{tools!r} is not a choice.", "Choose all, chosen, search or code.")
    if chosen and tools != "chosen":
        raise InvalidRequest("cli.usage", "--tool needs --tools chosen.")
    invocation = begin(ctx, home, as_json)
    wish = _Wish(
        agent, "project" if project else "user", stdio, anyway, _programs(invocation), level, tools, tuple(chosen or ())
    )
    if client is None and not all_clients:
        _list(invocation, wish)
    elif undo:
        _undo(invocation, client, wish, dry_run)
    else:
        _connect(invocation, client, wish, dry_run=dry_run, move=move, yes=yes)


def _programs(invocation: Invocation) -> tuple[str, ...]:
    """Return the apps' programs on the terminal's PATH, which differs from that of a crib running as a service."""
    from toolcrib.servers.apps.connectable import programs_on

    return tuple(sorted(programs_on(invocation.environment.get("PATH", ""))))


def _list(invocation: Invocation, wish: _Wish) -> None:
    clients = ask_crib(invocation, lambda crib: crib.connections.list(wish.programs))
    invocation.show(clients, show_clients)


def _connect(invocation: Invocation, client: str | None, wish: _Wish, *, dry_run: bool, move: bool, yes: bool) -> None:
    offers = move or (client is None and not yes)

    async def look(crib: "ApiClient") -> "list[_Plan]":
        plans: list[_Plan] = []
        for name in [client] if client is not None else await _find_apps(crib, wish):
            alone = await crib.connections.connect(name, wish.body(move=False, dry_run=True))
            if client is not None and wish.level == "ask" and wish.scope == "project":
                raise InvalidRequest(
                    "cli.usage", f"{alone['title']} cannot have an access level: {NO_LEVEL}", ASK_INSTEAD
                )
            moving = await crib.connections.connect(name, wish.body(move=True, dry_run=True)) if offers else None
            plans.append(_Plan(alone, moving if moving and moving["moved"]["taken"] else None))
        return plans

    plans = ask_crib(invocation, look)
    if dry_run:
        _report(invocation, client, [_choose(plan, move) for plan in plans], wish.scope, is_done=False)
        return
    agreed: list[tuple[str, bool, _Wish]] = []
    for plan in plans:
        moves = _agree(plan, move, yes)
        if moves is not None:
            agreed.append((plan.alone["client"], moves, wish._replace(level=_level(plan.alone, wish, yes))))
    if plans and not agreed:
        raise Denied("client.declined", "Nothing was changed.")

    async def work(crib: "ApiClient") -> "list[JsonObject]":
        return [
            await crib.connections.connect(name, each.body(move=moves, dry_run=False)) for name, moves, each in agreed
        ]

    _report(invocation, client, ask_crib(invocation, work) if agreed else [], wish.scope, is_done=True)


async def _find_apps(crib: "ApiClient", wish: _Wish) -> "list[str]":
    return [each["client"] for each in await crib.connections.list(wish.programs) if each["installed"]]


def _choose(plan: _Plan, move: bool) -> "JsonObject":
    return plan.moving if move and plan.moving is not None else plan.alone


def _agree(plan: _Plan, move: bool, yes: bool) -> bool | None:
    """Return whether to move the other servers too, or None to not connect at all."""
    first = _choose(plan, move)
    if not first["installed"]:
        output.note(f"{first['title']} was not found on this machine; the file would be {first['change']['file']}.")
    agreed = not first["change"]["changed"] or _confirm(first, f"Connect {first['title']}?", yes)
    if not agreed:
        return None
    if move or plan.moving is None:
        return move
    others = len(plan.moving["moved"]["taken"])
    which = "other server" if others == 1 else f"{others} other servers"
    return not yes and _confirm(plan.moving, f"Move its {which} here?", yes)


def _level(plan: "JsonObject", wish: _Wish, yes: bool) -> str | None:
    """Return the access level: as given, else as answered; the recommended one with --yes. Project files have none."""
    if wish.level is not None or wish.scope == "project" or plan["level"] is not None:
        return wish.level
    if yes or not can_ask():
        return "ask"
    output.note(f"Access level of {plan['title']}:")
    output.note("  ask  tools that are not read-only require your approval (recommended)")
    output.note(f"  app  {plan['title']} decides which tools run")
    answer = ask_line("Level", "ask").lower()
    if answer not in ("ask", "app"):
        raise Denied("client.declined", f"{answer!r} is not a level. Nothing was changed.")
    return answer


def _confirm(plan: "JsonObject", question: str, yes: bool) -> bool:
    if yes:
        return True
    show_plan(plan, output.note)
    if not can_ask():
        hint = "Review the output above, then run the command in a terminal, or add `--yes`."
        raise InvalidRequest(
            "cli.usage", "Changing an app's file requires confirmation, but there is no terminal.", hint
        )
    return confirm(question)


def _report(
    invocation: Invocation, client: str | None, answers: "list[JsonObject]", scope: str, *, is_done: bool
) -> None:
    if invocation.as_json:
        output.document(answers[0] if client is not None else answers)
        return
    if not answers:
        output.note("No supported apps found on this machine.")
    for answer in answers:
        if is_done:
            show_done(answer, scope)
        else:
            show_plan(answer, output.line)
    if is_done and any(answer["type"] == "http" for answer in answers):
        _say_whether_it_runs(invocation)


def _say_whether_it_runs(invocation: Invocation) -> None:
    from toolcrib.cli.crib import is_own

    if is_own(invocation.settings):
        output.note("The crib is not running. Start it with `toolcrib serve`, or connect with --stdio.")


def _undo(invocation: Invocation, client: str | None, wish: _Wish, dry_run: bool) -> None:
    async def work(crib: "ApiClient") -> "list[JsonObject]":
        names = [client] if client is not None else await _connected_apps(crib, wish)
        return [
            await crib.connections.undo(name, agent=wish.agent, scope=wish.scope, dry_run=dry_run) for name in names
        ]

    answers = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(answers[0] if client is not None else answers)
        return
    if not answers:
        output.note("No apps are connected.")
    for answer in answers:
        show_undone(answer)


async def _connected_apps(crib: "ApiClient", wish: _Wish) -> "list[str]":
    return [
        each["client"]
        for each in await crib.connections.list(wish.programs)
        if any(found["agent"] == wish.agent for found in each["connections"])
    ]
