"""Checks whether a schedule could run now, before any tokens are spent: runs are unattended.

Must never connect to a server or call a tool.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from toolcrib.gate.gate import Gate
from toolcrib.gate.policy.patterns import names
from toolcrib.model.errors import CODES, Denied
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.schedules import Schedule
from toolcrib.model.tools import ToolRef

REVOKED: Final = "schedule.creator"
Note = Callable[[str, str | None], Awaitable[str | None]]
"""Returns why a server's tools are unavailable (server, directory), or None."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """The problems that prevent a run; none if it is ready."""

    problems: tuple[Problem, ...] = ()

    @property
    def revoked(self) -> str | None:
        """Return the message if the schedule's creator was revoked."""
        return next((problem.message for problem in self.problems if problem.code == REVOKED), None)

    @property
    def is_ready(self) -> bool:
        return not self.problems

    def to_json(self) -> JsonObject:
        """Return the public JSON representation."""
        return {"ready": self.is_ready, "problems": [problem.to_json() for problem in self.problems]}


class ReadinessCheck:
    """Checks schedules for problems."""

    def __init__(
        self,
        gate: Gate,
        has_agent: Callable[[str], bool],
        placed: Callable[[Principal], Awaitable[Principal]],
        note: Note,
        check_creator: Callable[[Principal | None], Awaitable[None]],
    ) -> None:
        """`check_creator` raises `Denied` for a revoked creator."""
        self._gate = gate
        self._has_agent = has_agent
        self._placed = placed
        self._note = note
        self._check_creator = check_creator

    async def look(self, schedule: Schedule) -> Readiness:
        """Return the current readiness of a schedule."""
        if (revoked := await self.revoked(schedule)) is not None:
            return Readiness((Problem(REVOKED, revoked, CODES[REVOKED].hint),))
        if not self._has_agent(schedule.agent):
            message = f"Agent {schedule.agent!r} of this schedule was deleted."
            return Readiness((Problem("schedule.agent", message, "Choose another agent."),))
        principal = await self._placed(as_run(schedule))
        found = [await self._missing(text, principal) for text in schedule.tools]
        return Readiness(tuple(problem for problem in found if problem is not None))

    async def revoked(self, schedule: Schedule) -> str | None:
        """Return the message if the schedule's creator was revoked; no run can start then."""
        try:
            await self._check_creator(schedule.creator)
        except Denied as error:
            return error.message
        return None

    async def _missing(self, text: str, principal: Principal) -> Problem | None:
        ref = ToolRef.parse(text)
        if ref is None:
            return Problem("schedule.tool", f"{text!r} is not a tool.", "Write `server/tool`.")
        decision = self._gate.decision(principal, ref)
        if decision.verdict == "unknown" and (matching := self._matching(text, principal)):
            problems = [await self._missing(str(each), principal) for each in matching]
            return None if None in problems else problems[0]
        why = f"`toolcrib why {ref} --agent {principal.agent} --source scheduler` explains it."
        if decision.verdict == "allow":
            note = await self._note(ref.server, principal.cwd)
            return None if note is None else Problem("schedule.server", f"{ref} may be unavailable: {note}")
        if decision.verdict == "unknown":
            note = await self._note(ref.server, principal.cwd)
            return Problem("schedule.tool", note or f"There is no tool {str(ref)!r}.", "Check the server and the name.")
        return Problem("schedule.tool", f"{ref} would be refused: {decision.decided_by.reason}", why)

    def _matching(self, pattern: str, principal: Principal) -> list[ToolRef]:
        """Return the tools that match a pattern and that a run would see; one that can run makes it ready."""
        seen = (*self._gate.listing(principal).tools, *self._gate.own_tools(principal))
        return [tool.ref for tool in seen if names(pattern, tool.ref)]


def as_run(schedule: Schedule) -> Principal:
    """Return the principal that a run of this schedule calls tools as."""
    name, place = schedule.name, schedule.cwd
    return Principal("session", name, "scheduler", schedule.mode, schedule.agent, None, place, creator=schedule.creator)
