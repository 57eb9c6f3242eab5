"""Permission checks for tools that manage schedules.

A person is not restricted. An agent schedules only itself; it sees the schedules that it created or that run it, and
changes those it created. Other callers, such as an MCP client with a token, see and change what they created. A program
that creates or changes a schedule becomes the creator of every run. An agent resumes only what it paused.

Must never let a caller extend the rights of a run beyond its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from toolcrib.agents.schedules.cadence import following, in_words
from toolcrib.agents.schedules.schedules import Schedules
from toolcrib.builtin.caller import as_creator, check_depth, speaker
from toolcrib.model.agents import unknown_agent
from toolcrib.model.errors import Denied, InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.schedules import Cadence, Run, Schedule
from toolcrib.model.sessions import SessionLimits

MOST_OF_ONE: Final = 20
"""Maximum number of schedules per agent or client."""
USUAL_MINUTES: Final = 30
"""Default time limit of a run created by a program, in minutes."""
_NEXT_SHOWN: Final = 3
_LONGEST_NAME: Final = 100
_LONGEST_PROMPT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Draft:
    """The given fields of a schedule."""

    name: str | None = None
    agent: str | None = None
    prompt: str | None = None
    cron: str | None = None
    timezone: str | None = None
    every_minutes: int | None = None
    at: str | None = None
    mode: Mode | None = None
    tools: Sequence[str] | None = None
    max_minutes: int | None = None
    max_cost_usd: float | None = None
    cwd: str | None = None

    def cadence(self, before: Cadence | None = None) -> Cadence | None:
        """Return the cadence, or None if not given; raise `schedule.cadence` if invalid."""
        zone = self.timezone or (before.timezone if before is not None else "UTC")
        if (self.cron, self.every_minutes, self.at) == (None, None, None):
            return replace(before, timezone=zone) if before is not None else None
        every = None if self.every_minutes is None else self.every_minutes * 60
        return Cadence(self.cron, zone, every, None if self.at is None else _moment(self.at))

    def limits(self, before: SessionLimits) -> SessionLimits:
        """Return the limits of a run."""
        seconds = before.seconds if self.max_minutes is None else self.max_minutes * 60.0
        return replace(before, seconds=seconds, cost_usd=self.max_cost_usd or before.cost_usd)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Schedules on behalf of a caller."""

    schedules: Schedules
    has_agent: Callable[[str], bool]
    is_person: Callable[[Principal], bool]
    cwd: Callable[[], str]

    async def list(self, principal: Principal) -> list[Schedule]:
        """Return the schedules visible to the caller."""
        return [each for each in await self.schedules.list() if self._sees(principal, each)]

    async def get(self, principal: Principal, id: str | None) -> Schedule:
        """Return a schedule visible to the caller; raise `schedule.unknown`."""
        if id is None:
            raise InvalidRequest("request.invalid", "Which schedule?", "Give the id of a schedule.")
        found = await self.schedules.get(id)
        if not self._sees(principal, found):
            raise NotFound("schedule.unknown", f"There is no schedule {id!r}.")
        return found

    async def create(self, principal: Principal, draft: Draft) -> Schedule:
        """Create a schedule.

        Raises `schedule.own`, `schedule.limit`, `schedule.cadence`, `crew.too_deep` or `request.invalid`.
        """
        check_depth(principal)
        owned = [each for each in await self.schedules.list() if self._owns(principal, each)]
        if not self._is_owner(principal) and len(owned) >= MOST_OF_ONE:
            raise Denied("schedule.limit", f"Schedule limit reached: {speaker(principal)} has {MOST_OF_ONE} schedules.")
        agent = self._agent(principal, draft.agent)
        prompt, cadence = _require_fields(draft)
        return await self.schedules.add(
            Schedule(
                id="",
                name=_clean_name(draft.name or prompt.strip().splitlines()[0]),
                agent=agent,
                prompt=prompt,
                cwd=draft.cwd or principal.cwd or self.cwd(),
                cadence=cadence,
                created_at=datetime.now(UTC),
                mode=draft.mode or principal.mode,
                tools=tuple(draft.tools or ()),
                limits=draft.limits(SessionLimits(seconds=USUAL_MINUTES * 60.0)),
                created_by=speaker(principal),
                creator=self._creator(principal),
            )
        )

    async def change(self, principal: Principal, id: str | None, draft: Draft) -> Schedule:
        """Change the given fields; raises like `create` and `get`."""
        before = await self._own(principal, id)
        prompt = before.prompt if draft.prompt is None else _checked_prompt(draft.prompt)
        return await self.schedules.replace(
            replace(
                before,
                name=before.name if draft.name is None else _clean_name(draft.name),
                agent=before.agent if draft.agent is None else self._agent(principal, draft.agent),
                prompt=prompt,
                cwd=draft.cwd or before.cwd,
                cadence=draft.cadence(before.cadence) or before.cadence,
                mode=draft.mode or before.mode,
                tools=before.tools if draft.tools is None else tuple(draft.tools),
                limits=draft.limits(before.limits),
                creator=before.creator if self.is_person(principal) else self._creator(principal),
            )
        )

    async def pause(self, principal: Principal, id: str | None) -> Schedule:
        """Pause a schedule."""
        found = await self._own(principal, id)
        if self.is_person(principal):
            return await self.schedules.pause(found.id)
        if found.paused:
            return found  # a schedule paused by a person can only be resumed by a person
        return await self.schedules.pause(found.id, f"Paused by {speaker(principal)}.", by=speaker(principal))

    async def resume(self, principal: Principal, id: str | None) -> Schedule:
        """Resume a schedule; raise `schedule.own` if another caller or repeated failures paused it."""
        found = await self._own(principal, id)
        if not self.is_person(principal) and found.paused and found.paused_by != speaker(principal):
            raise Denied(
                "schedule.own",
                f"Schedule {found.name} was not paused by {speaker(principal)}.",
                "Ask the owner to resume it.",
            )
        return await self.schedules.resume(found.id)

    async def remove(self, principal: Principal, id: str | None) -> Schedule:
        """Remove a schedule and its history; the sessions of its runs are kept."""
        return await self.schedules.remove((await self._own(principal, id)).id)

    async def history(self, principal: Principal, id: str | None, limit: int) -> Sequence[Run]:
        """Return the runs, newest first."""
        return await self.schedules.history((await self.get(principal, id)).id, limit)

    async def shown(self, schedule: Schedule) -> JsonObject:
        """Return a schedule with its cadence in words, next runs and readiness."""
        moments = [] if schedule.paused else following(schedule.cadence, datetime.now(UTC), _NEXT_SHOWN)
        readiness = await self.schedules.readiness(schedule)
        return {
            **schedule.to_json(),
            "when": in_words(schedule.cadence),
            "nextRuns": [moment.isoformat(timespec="seconds") for moment in moments],
            "readiness": readiness.to_json(),
        }

    def _is_owner(self, principal: Principal) -> bool:
        return principal.is_owner and principal.agent is None and principal.session is None

    def _owns(self, principal: Principal, schedule: Schedule) -> bool:
        if self._is_owner(principal):
            return True
        creator = schedule.creator
        if creator is None:
            return False
        if principal.agent is not None:
            return creator.agent == principal.agent
        return creator.agent is None and creator.identity == principal.identity

    def _sees(self, principal: Principal, schedule: Schedule) -> bool:
        return self._owns(principal, schedule) or (principal.agent is not None and principal.agent == schedule.agent)

    async def _own(self, principal: Principal, id: str | None) -> Schedule:
        found = await self.get(principal, id)
        if not self._owns(principal, found):
            raise Denied("schedule.own", f"Schedule {found.name} was not created by {speaker(principal)}.")
        return found

    def _agent(self, principal: Principal, agent: str | None) -> str:
        """Return the agent of a schedule; raise unless the caller may schedule it."""
        if principal.agent is not None and agent not in (None, principal.agent):
            raise Denied("schedule.own", f"Agent {principal.agent!r} may schedule only itself, not {agent!r}.")
        wanted = agent or principal.agent
        if wanted is None:
            raise InvalidRequest("request.invalid", "The schedule has no agent.", "Give the ID of an agent.")
        if not self.has_agent(wanted):
            raise unknown_agent(wanted)
        return wanted

    def _creator(self, principal: Principal) -> Principal | None:
        return None if self.is_person(principal) else as_creator(principal)


def _require_fields(draft: Draft) -> tuple[str, Cadence]:
    cadence = draft.cadence()
    if draft.prompt is None or cadence is None:
        missing = "what is to be done" if draft.prompt is None else "when"
        raise InvalidRequest("request.invalid", f"Nothing says {missing}.", "Give prompt, and one of cron, every, at.")
    return _checked_prompt(draft.prompt), cadence


def _checked_prompt(prompt: str) -> str:
    if not prompt.strip() or len(prompt) > _LONGEST_PROMPT:
        raise InvalidRequest(
            "request.invalid", f"A prompt must have 1 to {_LONGEST_PROMPT} characters.", "Write another."
        )
    return prompt


def _clean_name(name: str) -> str:
    return " ".join(name.split())[:_LONGEST_NAME] or "schedule"


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        hint = "Write it as in 2026-11-16T09:00:00+01:00."
        raise InvalidRequest("schedule.cadence", f"{text!r} is not a date and time.", hint) from None
    if at.tzinfo is not None and at <= datetime.now(UTC):
        raise InvalidRequest("schedule.cadence", f"{text} is in the past.", "Give a time in the future.")
    return at
