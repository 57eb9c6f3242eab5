"""Stops and resumes everything in a running crib, for `stop-all` and `resume-all`.

Stopping sets the switch first, without waiting: from then on the gate, the guard, sessions, schedules and upstream
connections refuse. Then it ends what is running: calls, pending approvals, sessions with their runtimes, upstream
processes, and requests with named tokens. Stopping never fails because the audit is unavailable; resuming does.

Removing the marker by hand between two runs also resumes. A second file remembers a recorded stop, so that this is
recorded too.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.agents.schedules.schedules import Schedules
from toolcrib.agents.sessions.sessions import Sessions
from toolcrib.base.files.private import replace_private
from toolcrib.base.stop_switch import StopState, StopSwitch, stopped
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.audit.changes import Changes
from toolcrib.gate.gate import Gate
from toolcrib.gate.principals import NamedTokens
from toolcrib.model.errors import ConfigError, ToolcribError
from toolcrib.model.events import HostEventKind
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.upstream.pool import Pool

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks for a marker written by another process."""
_ENDING: Final = 5.0
"""Seconds in which sessions and approvals must end before `stop` returns."""
_REASON: Final = "The owner stopped everything."

logger = logging.getLogger(__name__)


class KillSwitch:
    """The kill switch of a running crib: stops everything that runs on its own or on behalf of a caller.

    The file `remembered` exists from the record of a stop until the record of its end.
    """

    def __init__(
        self,
        switch: StopSwitch,
        *,
        remembered: Path,
        changes: Changes,
        gate: Gate,
        approvals: Approvals,
        sessions: Sessions,
        schedules: Schedules,
        pool: Pool,
        tokens: NamedTokens,
        publish: Callable[[HostEventKind, JsonObject], object],
    ) -> None:
        self._switch = switch
        self._remembered = remembered
        self._changes = changes
        self._gate = gate
        self._approvals = approvals
        self._sessions = sessions
        self._schedules = schedules
        self._pool = pool
        self._tokens = tokens
        self._publish = publish
        self._lock = anyio.Lock()

    @property
    def state(self) -> StopState | None:
        """Why everything is stopped, or None while it is not."""
        return self._switch.state

    def to_json(self) -> JsonObject:
        """Return the public shape: `running` or `stopped`, with time, principal and reason."""
        state = self.state
        if state is None:
            return {"state": "running", "stopped": None}
        return {"state": "stopped", "stopped": state.to_json()}

    def notice_removed_marker(self) -> None:
        """Record that the marker was removed by hand while no crib was running. Blocks briefly."""
        if self.state is None and self._remembered.exists():
            self._changes.noticed("crib.resume", {"file": str(self._switch.path), "removed": "by hand"})
            self._forget()

    def _forget(self) -> None:
        try:
            self._remembered.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("Could not remove %s: %s.", self._remembered, error.strerror or error)

    def _remember(self) -> None:
        self._switch.mark_recorded()
        try:
            replace_private(self._remembered, b"")
        except OSError as error:
            logger.warning("Could not write %s: %s.", self._remembered, error.strerror or error)

    async def follow(self) -> None:
        """Adopt a marker that the command line wrote without this crib. Runs until cancelled."""
        if self.state is not None and not self.state.recorded:
            await self._record_found()
        while True:
            await anyio.sleep(LOOK_SECONDS)
            try:
                if await anyio.to_thread.run_sync(self._switch.adopt):
                    await self._end_everything()
                    await self._record_found()
            except Exception:  # boundary: the next check must follow
                logger.exception("Could not stop everything.")

    async def stop(self, *, by: Principal, door: str, reason: str | None = None) -> None:
        """Stop everything. Returns once nothing runs, or after five seconds, while the rest is being killed.

        Raises `ConfigError` (`home.unsafe`) if the state cannot be stored for the next start. In this process,
        everything is stopped anyway.
        """
        failure: ConfigError | None = None
        try:
            self._switch.engage(by.name, reason)  # blocks briefly, so that no call can begin meanwhile
        except ConfigError as error:
            failure = error
        with anyio.CancelScope(shield=True):
            await self._end_everything()
            await self._record(by, door, reason)
        if failure is not None:
            raise failure

    async def resume(self, *, by: Principal, door: str) -> None:
        """Resume everything. Raises `audit.unavailable`, and stays stopped, if that cannot be recorded."""
        async with self._lock:
            state = self.state
            if state is None:
                return

            async def work() -> None:
                await anyio.to_thread.run_sync(self._switch.release)
                await anyio.to_thread.run_sync(self._forget)
                self._pool.resume()
                self._schedules.look_again()

            await self._changes.make("crib.resume", {"stopped": state.to_json()}, work, by=by, door=door)
            self._publish("notice", {"level": "info", "message": "The owner resumed everything."})

    async def _end_everything(self) -> None:
        state = self.state
        if state is None:
            return
        self._gate.end_calls(lambda: stopped(state))
        self._tokens.cut()
        self._pool.halt()
        with anyio.move_on_after(_ENDING) as scope:
            async with anyio.create_task_group() as ending:
                ending.start_soon(self._safely, self._approvals.withdraw_all)
                ending.start_soon(self._safely, self._sessions.stop_all)
        if scope.cancelled_caught:
            logger.warning("Some sessions did not end within %g s; they are being killed.", _ENDING)
        self._publish("notice", {"level": "warning", "message": f"{stopped(state).message} Nothing runs until then."})

    async def _safely(self, end: Callable[[str], Awaitable[object]]) -> None:
        try:
            await end(_REASON)
        except Exception:  # boundary: a part that fails to end must not keep the others from process_cleanup
            logger.exception("Could not stop everything.")

    async def _record_found(self) -> None:
        """Record a stop by another process: the owner's command line, without this crib."""
        state = self.state
        if state is not None:
            await self._record(Principal("owner", state.by, "cli"), "cli", state.reason)

    async def _record(self, by: Principal, door: str, reason: str | None) -> None:
        """Record the stop, once. A failure is only logged, because stopping matters more than its record."""
        async with self._lock:
            if self.state is not None and not self.state.recorded:
                await self._record_once(by, door, reason)

    async def _record_once(self, by: Principal, door: str, reason: str | None) -> None:
        async def remember() -> None:
            await anyio.to_thread.run_sync(self._remember)

        try:
            with anyio.move_on_after(_ENDING) as scope:
                await self._changes.make("crib.stop", {"reason": reason}, remember, by=by, door=door)
            if scope.cancelled_caught:
                logger.error("The stop is not recorded yet: the audit did not accept the record in time.")
        except ToolcribError as error:
            logger.error("The stop is not recorded yet: %s", error)  # noqa: TRY400 the message says it all
