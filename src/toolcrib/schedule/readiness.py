"""Whether a schedule could run now, asked before any token is spent: nobody will be there to mend it later.

Above: the schedules, the doors. Below: the gate, the zoo. It must never connect or call anything.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from toolcrib.gate import Gate
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.schedules import Schedule
from toolcrib.model.tools import ToolRef

Note = Callable[[str, str | None], Awaitable[str | None]]
"""What keeps a server's tools from being there (server, directory), if something does."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """What stands in the way of a run; nothing if it is ready."""

    problems: tuple[Problem, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether a run may begin."""
        return not self.problems

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"ready": self.is_ready, "problems": [problem.to_json() for problem in self.problems]}


class ReadinessCheck:
    """Looks at schedules."""

    def __init__(
        self,
        gate: Gate,
        has_agent: Callable[[str], bool],
        placed: Callable[[Principal], Awaitable[Principal]],
        note: Note,
    ) -> None:
        self._gate = gate
        self._has_agent = has_agent
        self._placed = placed
        self._note = note

    async def look(self, schedule: Schedule) -> Readiness:
        """What stands in the way now."""
        if not self._has_agent(schedule.agent):
            message = f"Agent {schedule.agent!r}, who should do it, is not there any more."
            return Readiness((Problem("schedule.agent", message, "Choose another agent."),))
        principal = await self._placed(as_run(schedule))
        found = [await self._missing(text, principal) for text in schedule.tools]
        return Readiness(tuple(problem for problem in found if problem is not None))

    async def _missing(self, text: str, principal: Principal) -> Problem | None:
        ref = ToolRef.parse(text)
        if ref is None:
            return Problem("schedule.tool", f"{text!r} is not a tool.", "Write `server/tool`.")
        decision = self._gate.decision(principal, ref)
        why = f"`toolcrib why {ref} --agent {principal.agent} --source scheduler` explains it."
        if decision.verdict == "allow":
            note = await self._note(ref.server, principal.cwd)
            return None if note is None else Problem("schedule.server", f"{ref} may not answer: {note}")
        if decision.verdict == "unknown":
            note = await self._note(ref.server, principal.cwd)
            return Problem("schedule.tool", note or f"There is no tool {str(ref)!r}.", "Check the server, or the name.")
        return Problem("schedule.tool", f"{ref} would be refused: {decision.decided_by.reason}", why)


def as_run(schedule: Schedule) -> Principal:
    """Who asks when a run of this schedule calls a tool."""
    name, place = schedule.name, schedule.cwd
    return Principal("session", name, "scheduler", schedule.mode, schedule.agent, None, place, creator=schedule.creator)
