"""Replays recorded sessions of a crib, and compares runs.

A replay is a session of its own. It sends the recorded prompts one after the other, until one is not answered as
recorded. With another prompt after the recorded ones it becomes a fork: a live session from there on.
"""

import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio.to_thread

from toolcrib.agents.sessions.open_session import OpenSession
from toolcrib.agents.sessions.recording.comparison import (
    RunComparison,
    SessionRun,
    compare_runs,
    run_of_events,
)
from toolcrib.agents.sessions.recording.recorded_runtime import ModelAccess
from toolcrib.agents.sessions.recording.recording import DAMAGED, Recording, masked_members
from toolcrib.agents.sessions.recording.recordings import REPLAYABLE, Recordings, load_recording, with_events
from toolcrib.agents.sessions.recording.replayed_runtime import ALL_RECORDED, ReplayedRuntime, ReplayOptions
from toolcrib.agents.sessions.runtimes import Runtimes
from toolcrib.agents.sessions.sessions import NewSession, Sessions
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Source
from toolcrib.model.sessions import REPLAY_RUNNER, Session


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """How to replay a recording: which parts are live, up to which event, and the prompt of a fork."""

    options: ReplayOptions = ALL_RECORDED
    until: int | None = None
    prompt: str | None = None
    cwd: str | None = None
    source: Source = "api"


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The session of a replay, how it ended, and the comparison with the recorded run if its events are known."""

    session: Session
    reason: str
    failure: JsonObject | None
    run: SessionRun
    comparison: RunComparison | None

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {"session": self.session.to_json(), "reason": self.reason}
        shape |= {"failure": self.failure} if self.failure is not None else {}
        return shape | ({"comparison": self.comparison.to_json()} if self.comparison is not None else {})


class SessionReplays:
    """Replays recordings."""

    def __init__(self, sessions: Sessions, runtimes: Runtimes, recordings: Recordings, access: ModelAccess) -> None:
        self._sessions = sessions
        self._runtimes = runtimes
        self._recordings = recordings
        self._access = access

    async def export(self, session: str) -> bytes:
        """Return the recording of a session with its events, as a file that can be replayed elsewhere."""
        lines = await anyio.to_thread.run_sync(self._recordings.read, session)
        return with_events(lines, await self._events(session))

    async def replay(self, recording: Recording | bytes, request: ReplayRequest) -> ReplayOutcome:
        """Replay a recording to its end, or to the first prompt that is not answered as recorded.

        Raises `recording.invalid`, `replay.unsupported`, `replay.until`.
        """
        whole = recording if isinstance(recording, Recording) else load_recording(recording)
        if whole.runner != REPLAYABLE:
            message = f"The session ran with {whole.runner}. Only sessions of {REPLAYABLE} can be replayed."
            raise InvalidRequest("replay.unsupported", message)
        try:
            played = whole if request.until is None else whole.until(request.until)
            recorded = run_of_events(played.session, played.events) if played.events else None
        except DAMAGED as error:
            raise InvalidRequest("recording.invalid", "The events of the recording are damaged.") from error
        async with self._runtime(played, request, is_cut=played is not whole) as name:
            session = await self._create(played, request, name)
            await self._play(OpenSession(self._sessions, session.id), played.prompts)
            if request.prompt is None:
                await self._sessions.close(session.id)
        if request.prompt is not None:
            await self._sessions.hand_over(session.id, whole.runner, whole.session)
            await self._play(OpenSession(self._sessions, session.id), (request.prompt,))
        return await self._outcome(session.id, recorded)

    async def compare(self, one: str, other: str) -> RunComparison:
        """Compare two sessions."""
        return compare_runs(await self.run_of(one), await self.run_of(other))

    async def run_of(self, session: str) -> SessionRun:
        """Return the run of a session."""
        return run_of_events(session, await self._events(session))

    @asynccontextmanager
    async def _runtime(self, recording: Recording, request: ReplayRequest, *, is_cut: bool) -> AsyncGenerator[str]:
        """Add a runtime for one replay, and remove it afterwards."""
        name = f"{REPLAY_RUNNER}{recording.session[:8]}-{secrets.token_hex(4)}"
        inner = self._runtimes.get(recording.runner)
        mask = self._recordings.mask
        runtime = ReplayedRuntime(name, inner, recording, request.options, self._access, mask, is_cut=is_cut)
        self._runtimes.add(runtime)
        try:
            yield name
        finally:
            self._runtimes.remove(name)

    async def _create(self, recording: Recording, request: ReplayRequest, runner: str) -> Session:
        brief = recording.brief
        there = await anyio.to_thread.run_sync(os.path.isdir, brief.cwd)
        cwd = request.cwd or (brief.cwd if there else None)
        title = f"Replay of {recording.session[:8]}"
        new = NewSession(
            request.source, cwd, mode=brief.mode, model=brief.model, title=title, runner=runner, limits=brief.limits
        )
        return await self._sessions.create(new)

    async def _play(self, session: OpenSession, prompts: tuple[str, ...]) -> None:
        for prompt in prompts:
            async for event in session.send(prompt):
                if event.kind == "done" and event.data["reason"] != "completed":
                    return

    async def _outcome(self, session: str, recorded: SessionRun | None) -> ReplayOutcome:
        events = await self._events(session)
        run = run_of_events(session, events)
        failures = [event for event in events if event["kind"] == "error"]
        failure = (
            {key: failures[-1][key] for key in ("code", "message", "hint") if key in failures[-1]} if failures else None
        )
        comparison = compare_runs(recorded, run) if recorded is not None else None
        return ReplayOutcome(await self._sessions.get(session), run.ended or "interrupted", failure, run, comparison)

    async def _events(self, session: str) -> list[JsonObject]:
        """Return the events of a session, masked like a recording: only then are they equal to those of a replay."""
        mask = self._recordings.mask
        return [masked_members(event.shape, mask) async for event in self._sessions.transcript(session)]
