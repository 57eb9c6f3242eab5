"""`toolcrib connect`: this crib in the files of other tools, after a look at exactly what changes there.

Above: `main`. Below: the crib, through `mcp_change`; `connect_show` has the words. It must never change a file of
another tool that nobody agreed to.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from toolcrib.cli import output
from toolcrib.cli.asking import can_ask, confirm
from toolcrib.cli.connect_show import show_clients, show_done, show_plan, show_undone
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.errors import Denied, InvalidRequest

if TYPE_CHECKING:
    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

ClientArgument = Annotated[
    str | None,
    typer.Argument(metavar="CLIENT", help="The tool, such as claude-code, cursor or codex.", show_default=False),
]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="ID", help="As this agent: its tools and prompt.")]
AllOption = Annotated[bool, typer.Option("--all", help="All tools that are on this machine.")]
MoveOption = Annotated[bool, typer.Option("--move", help="Also move its other servers behind the crib.")]


class _Wish(NamedTuple):
    """What is asked of every tool alike."""

    agent: str | None
    scope: str
    stdio: bool
    anyway: bool

    def body(self, *, move: bool, dry_run: bool) -> "JsonObject":
        return {**self._asdict(), "move": move, "dryRun": dry_run}


class _Plan(NamedTuple):
    """What connecting one tool would do: alone, and with its other servers moved; None if it has none."""

    alone: "JsonObject"
    moving: "JsonObject | None"


def connect(
    ctx: typer.Context,
    client: ClientArgument = None,
    agent: AgentOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back: the file as it was, the token revoked.")] = False,
    project: Annotated[bool, typer.Option("--project", help="In the file of the project around here.")] = False,
    all_clients: AllOption = False,
    move: MoveOption = False,
    stdio: Annotated[bool, typer.Option("--stdio", help="Start a process, also where HTTP works.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also if the tool was not found on this machine.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree without being asked.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write this crib into a tool's own file. Without CLIENT, show which tools are here and which are connected."""
    if client is not None and all_clients:
        raise InvalidRequest("cli.usage", "Use either CLIENT or --all, not both.")
    invocation = begin(ctx, home, as_json)
    wish = _Wish(agent, "project" if project else "user", stdio, anyway)
    if client is None and not all_clients:
        _list(invocation)
    elif undo:
        _undo(invocation, client, wish, dry_run)
    else:
        _connect(invocation, client, wish, dry_run=dry_run, move=move, yes=yes)


def _list(invocation: Invocation) -> None:
    clients = ask_crib(invocation, lambda crib: crib.connections.list())
    if invocation.as_json:
        output.document(clients)
    else:
        show_clients(clients)


def _connect(invocation: Invocation, client: str | None, wish: _Wish, *, dry_run: bool, move: bool, yes: bool) -> None:
    offers = move or (client is None and not yes)

    async def look(crib: "Client") -> "list[_Plan]":
        plans: list[_Plan] = []
        for name in [client] if client is not None else await _found(crib):
            alone = await crib.connections.connect(name, wish.body(move=False, dry_run=True))
            moving = await crib.connections.connect(name, wish.body(move=True, dry_run=True)) if offers else None
            plans.append(_Plan(alone, moving if moving and moving["moved"]["taken"] else None))
        return plans

    plans = ask_crib(invocation, look)
    if dry_run:
        _tell(invocation, client, [_chosen(plan, move) for plan in plans], is_done=False)
        return
    agreed = [(plan.alone["client"], moves) for plan in plans if (moves := _agree(plan, move, yes)) is not None]
    if plans and not agreed:
        raise Denied("client.declined", "Nothing was changed.")

    async def work(crib: "Client") -> "list[JsonObject]":
        return [await crib.connections.connect(name, wish.body(move=moves, dry_run=False)) for name, moves in agreed]

    _tell(invocation, client, ask_crib(invocation, work) if agreed else [], is_done=True)


async def _found(crib: "Client") -> "list[str]":
    return [each["client"] for each in await crib.connections.list() if each["installed"]]


def _chosen(plan: _Plan, move: bool) -> "JsonObject":
    return plan.moving if move and plan.moving is not None else plan.alone


def _agree(plan: _Plan, move: bool, yes: bool) -> bool | None:
    """Whether to connect at all (None: no), and whether with the other servers moved."""
    first = _chosen(plan, move)
    if not first["installed"]:
        output.note(f"{first['title']} was not found on this machine; the file would be {first['change']['file']}.")
    agreed = not first["change"]["changed"] or _asked(first, f"Connect {first['title']}?", yes)
    if not agreed:
        return None
    if move or plan.moving is None:
        return move
    others = len(plan.moving["moved"]["taken"])
    which = "other server" if others == 1 else f"{others} other servers"
    return not yes and _asked(plan.moving, f"Move its {which} here?", yes)


def _asked(plan: "JsonObject", question: str, yes: bool) -> bool:
    if yes:
        return True
    show_plan(plan, output.note)
    if not can_ask():
        hint = "Read what is shown above, then run it in a terminal, or add --yes."
        raise InvalidRequest("cli.usage", "Changing a tool's file needs a person's yes, and nobody can be asked.", hint)
    return confirm(question)


def _tell(invocation: Invocation, client: str | None, answers: "list[JsonObject]", *, is_done: bool) -> None:
    if invocation.as_json:
        output.document(answers[0] if client is not None else answers)
        return
    if not answers:
        output.note("No tool that could be connected was found on this machine.")
    for answer in answers:
        if is_done:
            show_done(answer)
        else:
            show_plan(answer, output.line)
    if is_done and any(answer["type"] == "http" for answer in answers):
        _say_whether_it_runs(invocation)


def _say_whether_it_runs(invocation: Invocation) -> None:
    from toolcrib.cli.crib import is_own

    if is_own(invocation.settings):
        output.note("The crib does not run now. Start it with `toolcrib serve`, or connect with --stdio.")


def _undo(invocation: Invocation, client: str | None, wish: _Wish, dry_run: bool) -> None:
    async def work(crib: "Client") -> "list[JsonObject]":
        names = [client] if client is not None else await _connected(crib, wish)
        return [
            await crib.connections.undo(name, agent=wish.agent, scope=wish.scope, dry_run=dry_run) for name in names
        ]

    answers = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(answers[0] if client is not None else answers)
        return
    if not answers:
        output.note("No tool is connected to this crib.")
    for answer in answers:
        show_undone(answer)


async def _connected(crib: "Client", wish: _Wish) -> "list[str]":
    return [
        each["client"]
        for each in await crib.connections.list()
        if any(found["agent"] == wish.agent for found in each["connections"])
    ]
