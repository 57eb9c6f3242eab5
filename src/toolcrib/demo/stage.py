"""The demonstration on a running crib: agents and schedules put in, scenes played; all of it as a person would do it.

Above: `toolcrib demo`. Below: the client. It must never answer an approval that the person was promised.
"""

import importlib.util
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from toolcrib.client import Client
from toolcrib.demo.scripts import Scene
from toolcrib.demo.team import AGENTS, LEAVING, MORNING, SCHEDULES
from toolcrib.errors import Denied
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.model.tools import ToolRef

IN_YOUR_PLACE: Final = "Answered by the demonstration, in your place."
BY_HAND: Final[tuple[tuple[str, JsonObject], ...]] = (
    ("orders/find_orders", {"passenger": "Berg"}),
    ("tracker/search_issues", {"words": "charged twice"}),
    ("orders/refund", {"payment": "P-7731", "amount": 58.0, "reason": "Charged twice for order K-2291"}),
    ("orders/refund", {"payment": "P-7760", "amount": 464.0, "reason": "Charged twice for order K-2304"}),
)
"""The calls of the first scene, for when there is no agent to make them."""


@dataclass(frozen=True, slots=True)
class Played:
    """How a scene stands: `completed`, `failed` or `interrupted`, or `waiting` for a person about `approval`."""

    session: str
    state: str
    approval: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made by hand; `refusal` says why it was not."""

    ref: str
    arguments: JsonObject
    result: JsonObject | None
    refusal: str | None = None


def has_claude() -> bool:
    """Whether sessions can be played: the Claude Agent SDK, an extra, brings Claude Code."""
    return importlib.util.find_spec("claude_agent_sdk") is not None


async def furnish(client: Client) -> str:
    """Put the team in; gives the id of the schedule that is run at once."""
    for agent in LEAVING:
        await client.delete_agent(agent)
    for agent in AGENTS:
        await client.create_agent(agent)
    added = {schedule["name"]: (await client.schedules.add(schedule))["id"] for schedule in SCHEDULES}
    return added[MORNING]


async def play(
    client: Client, scene: Scene, tell: Callable[[SessionEvent], None], waits: Callable[[Played], None]
) -> Played:
    """Play a scene to its end. Every event is told; where it is the person who has to answer, that is too."""
    session = await client.sessions.create({"agentId": scene.agent, "title": scene.title})
    id = str(session["id"])
    await client.sessions.send(id, scene.prompt)
    async with aclosing(client.sessions.events(id, 0)) as events:
        async for event in events:
            tell(event)
            if event.kind == "approval_required":
                approval = str(event.data["approvalId"])
                if scene.is_answered:
                    await client.permissions.answer(approval, {"decision": "approve", "reason": IN_YOUR_PLACE})
                else:
                    waits(Played(id, "waiting", approval))
            elif event.kind == "done":
                return Played(id, str(event.data["reason"]))
    return Played(id, "interrupted")


async def make_calls(client: Client) -> list[Made]:
    """The calls of the first scene, made by hand: without an agent, through the same gate."""
    made: list[Made] = []
    for ref, arguments in BY_HAND:
        server, _, name = ref.partition("/")
        try:
            made.append(Made(ref, arguments, await client.call(ToolRef(server, name), arguments)))
        except Denied as denied:
            made.append(Made(ref, arguments, None, denied.message))
    return made
