"""Suggests tool permissions for agents from what they used: the tools of recorded calls that ran, and no others.

A call that needed approval counts only if it was approved, since a denied call has no intent in the audit. The
suggestion is simulated on the same records. Must never change anything.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import anyio.to_thread

from toolcrib.gate.policy.decide import Grants, sees
from toolcrib.gate.policy.patterns import literal_pattern
from toolcrib.gate.policy.simulate import Simulation, recorded_call
from toolcrib.host.crib import Crib
from toolcrib.host.replay import Trial, find_records, replay_records
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

DAYS = 30
"""Default number of days that are examined."""
MOST_RECORDS = 100_000
_MOST_NAMES = 100


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The smallest tool permissions that cover what an agent used.

    `used` counts the calls of each tool. `current` are the permissions now (None: the default set), `version` the
    version of the agent that they belong to. `lost` are the tools that the agent would no longer see.
    """

    agent: str
    version: int
    used: Mapping[ToolRef, int]
    current: tuple[str, ...] | None
    lost: tuple[ToolRef, ...]
    simulation: Simulation

    @property
    def permissions(self) -> tuple[str, ...]:
        """The suggested tool permissions."""
        return tuple(literal_pattern(ref) for ref in sorted(self.used))

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        return {
            "agent": self.agent,
            "version": self.version,
            "toolPermissions": list(self.permissions),
            "current": None if self.current is None else list(self.current),
            "used": [{"tool": str(ref), "calls": self.used[ref]} for ref in sorted(self.used)],
            "lost": [str(ref) for ref in self.lost[:_MOST_NAMES]],
            "lostCount": len(self.lost),
            "simulation": self.simulation.to_json(),
        }


async def suggest(crib: Crib, agent: str | None = None, days: int = DAYS) -> list[Suggestion]:
    """Return suggestions for one agent, or for all agents with recorded calls. Raises `agent.unknown`."""
    if agent is not None:
        return [await _suggest(crib, agent, days)]
    found = [await _suggest(crib, each.id, days) for each in await crib.zoo.list()]
    return [each for each in found if each.used]


async def _suggest(crib: Crib, agent: str, days: int) -> Suggestion:
    stored = await crib.zoo.get(agent)
    trial = Trial(since=datetime.now(UTC) - timedelta(days=days), limit=MOST_RECORDS, agent=agent)
    records = await find_records(crib, trial)
    used = _count_calls(record for some in records.values() for record in some)
    permissions = tuple(literal_pattern(ref) for ref in sorted(used))

    def regrant(grants: Grants) -> Grants:
        return replace(grants, permissions=permissions)

    rules = crib.permissions.rules().without(())  # its caches belong to the thread
    simulation = await replay_records(crib, records, rules, rules, regrant)
    principal = Principal("session", agent, "cli", agent=agent)
    grants, tools = crib.permissions.grants(principal), crib.catalog.snapshot.tools

    def find_lost() -> tuple[ToolRef, ...]:
        after = regrant(grants)
        return tuple(
            ref
            for ref, tool in tools.items()
            if sees(tool, principal, grants, rules) and not sees(tool, principal, after, rules)
        )

    lost = await anyio.to_thread.run_sync(find_lost)
    return Suggestion(agent, stored.version, used, stored.agent.tool_permissions, lost, simulation)


def _count_calls(records: Iterable[JsonObject]) -> Counter[ToolRef]:
    """Return the number of calls that ran, by tool. A call that ran has an intent."""
    intents = (recorded_call(record) for record in records if record.get("phase") == "intent")
    return Counter(call.ref for call in intents if call is not None)
