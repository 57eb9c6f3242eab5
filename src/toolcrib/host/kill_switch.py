"""Stops and resumes everything in a running crib, for `stop-all` and `resume-all`.

Stopping sets the switch first, without waiting: from then on the gate, the guard, sessions, schedules and upstream
connections refuse. Then it ends what is running: calls, pending approvals, sessions with their runtimes, upstream
processes, and requests with named tokens. Stopping never fails because the audit is unavailable; resuming does.

Nodes on one database share the switch. The row that sets it counts as a change of permissions, so it binds at the next
call on every node; each node then ends what it runs. A node that could not store its own stop retries.

Removing the marker by hand between two runs also resumes. A second file remembers a recorded stop, so that this is
recorded too.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from toolcrib.agents.schedules.schedules import Schedules
from toolcrib.agents.sessions.sessions import Sessions
from toolcrib.base.files.private import replace_private
from toolcrib.base.stop_switch import StopState, StopSwitch, stopped
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.audit.changes import Changes
from toolcrib.gate.gate import Gate
from toolcrib.gate.principals import NamedTokens
from toolcrib.model.errors import ConfigError, ToolcribError, Unavailable
from toolcrib.model.events import HostEventKind
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.store.engine import Store
from toolcrib.store.stops import load_stop, remove_stop, save_stop
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
        store: Store,
        tasks: TaskGroup,
        signal: Callable[[], None],
    ) -> None:
        """`signal` has the other nodes look for changes at once."""
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
        self._store = store
        self._tasks = tasks
        self._signal = signal
        self._lock = anyio.Lock()
        self._sharing = anyio.Lock()

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
                is_new = await anyio.to_thread.run_sync(self._switch.adopt)
                if is_new:
                    await self._end_everything()
                if self.state is not None and not self.state.shared:
                    await self.synchronise()
                if is_new:
                    await self._record_found()
            except Unavailable as error:
                logger.warning("The other nodes are not stopped yet: %s", error)
            except Exception:  # boundary: the next check must follow
                logger.exception("Could not stop everything.")

    async def stop(self, *, by: Principal, door: str, reason: str | None = None) -> None:
        """Stop everything. Returns once nothing runs, or after five seconds, while the rest is being killed.

        Raises `ConfigError` (`home.unsafe`) if the state cannot be stored for the next start. In this process,
        everything is stopped anyway. Raises `node.unreachable` if the other nodes are not stopped yet.
        """
        failure: ToolcribError | None = None
        try:
            self._switch.engage(by.name, reason)  # blocks briefly, so that no call can begin meanwhile
        except ConfigError as error:
            message = f"Everything is stopped, but only until this crib ends. {error.message}"
            failure = ConfigError(error.code, message, "Repair this, then run `toolcrib stop-all` again.")
        with anyio.CancelScope(shield=True):
            failure = await self._stop_others() or failure
            await self._end_everything()
            await self._record(by, door, reason)
        if failure is not None:
            raise failure

    async def _stop_others(self) -> ToolcribError | None:
        """Stop the other nodes. Returns an error if that has to be retried."""
        reason = "The database does not respond."
        try:
            with anyio.move_on_after(_ENDING) as scope:
                await self.synchronise()
            if not scope.cancelled_caught:
                return None
        except ToolcribError as error:
            reason = error.message
        message = f"This node is stopped, the others are not yet. {reason}"
        hint = "This node stops them as soon as it reaches the database. Meanwhile, end their processes."
        return Unavailable("node.unreachable", message, hint)

    async def synchronise(self) -> None:
        """Adopt the stop or resumption of another node, or store a stop that only this one knows. Raises `Unavailable`.

        What runs is ended in the background.
        """
        if not self._store.shared:
            return
        async with self._sharing:
            stored = await load_stop(self._store)
            if stored is None and self.state is not None and not self.state.shared:
                await save_stop(self._store, self.state)
                self._signal()
                stored = await load_stop(self._store)
            try:
                has_changed = await anyio.to_thread.run_sync(self._switch.follow, stored)
            except ConfigError as error:  # the state of this process has changed, and the database has it
                logger.warning("The stop of all nodes could not be noted here: %s", error)
                has_changed = True
            if has_changed:
                self._tasks.start_soon(self._begin_again if stored is None else self._end_everything)

    async def _begin_again(self) -> None:
        await anyio.to_thread.run_sync(self._forget)
        self._pool.resume()
        self._schedules.look_again()
        self._publish("notice", {"level": "info", "message": "The owner resumed everything."})

    async def resume(self, *, by: Principal, door: str) -> None:
        """Resume everything. Raises `audit.unavailable`, and stays stopped, if that cannot be recorded."""
        async with self._lock:
            await self.synchronise()
            state = self.state
            if state is None:
                return

            async def work() -> None:
                async with self._sharing:
                    if self._store.shared:
                        await remove_stop(self._store)
                    await anyio.to_thread.run_sync(self._switch.release)

            await self._changes.make("crib.resume", {"stopped": state.to_json()}, work, by=by, door=door)
            await self._begin_again()

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
