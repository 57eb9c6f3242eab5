"""Sets up the demo on a running crib and plays its scenes, through the API client.

Must never answer an approval that is left to the user.
"""

import importlib.util
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from toolcrib.cli.demo.scripts import Scene
from toolcrib.cli.demo.team import AGENTS, LEAVING, MORNING, SCHEDULES
from toolcrib.model.errors import Denied
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient

IN_YOUR_PLACE: Final = "Answered by the demonstration, in your place."
BY_HAND: Final[tuple[tuple[str, JsonObject], ...]] = (
    ("orders/find_orders", {"passenger": "Berg"}),
    ("tracker/search_issues", {"words": "charged twice"}),
    ("orders/refund", {"payment": "P-7731", "amount": 58.0, "reason": "Charged twice for order K-2291"}),
    ("orders/refund", {"payment": "P-7760", "amount": 464.0, "reason": "Charged twice for order K-2304"}),
)
"""The calls of the first scene, used if there is no agent to make them."""


@dataclass(frozen=True, slots=True)
class Played:
    """The state of a scene: `completed`, `failed`, `interrupted`, or `waiting` with the `approval` it waits for."""

    session: str
    state: str
    approval: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A call made without an agent; `refusal` is the reason if it was denied."""

    ref: str
    arguments: JsonObject
    result: JsonObject | None
    refusal: str | None = None


def has_claude() -> bool:
    """Return whether sessions can run: the optional Claude Agent SDK includes Claude Code."""
    return importlib.util.find_spec("claude_agent_sdk") is not None


async def furnish(client: ApiClient) -> str:
    """Create the team; return the id of the schedule to run first."""
    for agent in LEAVING:
        await client.delete_agent(agent)
    for agent in AGENTS:
        await client.create_agent(agent)
    added = {schedule["name"]: (await client.schedules.add(schedule))["id"] for schedule in SCHEDULES}
    return added[MORNING]


async def play(
    client: ApiClient, scene: Scene, tell: Callable[[SessionEvent], None], waits: Callable[[Played], None]
) -> Played:
    """Play a scene to its end. Reports every event, and each approval left to the user."""
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


async def make_calls(client: ApiClient) -> list[Made]:
    """Make the calls of the first scene without an agent, through the same gate."""
    made: list[Made] = []
    for ref, arguments in BY_HAND:
        server, _, name = ref.partition("/")
        try:
            made.append(Made(ref, arguments, await client.call(ToolRef(server, name), arguments)))
        except Denied as denied:
            made.append(Made(ref, arguments, None, denied.message))
    return made
