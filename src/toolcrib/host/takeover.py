"""Moves work between the nodes of one database: from dead nodes, from this one when it leaves, and back from itself.

A node whose lease has ended is dead. One node records the outcomes of its calls as unknown; then a job for each of its
unfinished sessions has any node continue the turn. Its scheduled runs and work tasks are jobs already. A node that
loses its own lease ends its processes at once and writes nothing; with a new lease it continues what no other node has
taken. A node that leaves gives everything away if there are others.

Must never repeat a call whose outcome is unknown.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio

from toolcrib.agents.schedules.schedules import Schedules
from toolcrib.agents.sessions.sessions import Sessions
from toolcrib.host.context import CribContext
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.store.sessions import UNFINISHED, load_unfinished

if TYPE_CHECKING:
    from toolcrib.nodes.jobs import Jobs

SESSION_JOB: Final = "session_turn"
NODE_JOB: Final = "dead_node"
OWN_JOB: Final = "own_work"
_DRAIN_SECONDS: Final = 20.0
"""Seconds that turns have to end by themselves before they move to another node."""
_LEAVE_SECONDS: Final = 20.0
_RETRY_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class WorkTransfer:
    """Connects the membership of this node and its jobs with sessions, schedules and the audit."""

    def __init__(
        self,
        context: CribContext,
        jobs: "Jobs",
        sessions: Sessions,
        schedules: Schedules,
        close_approvals: Callable[[str], Awaitable[None]],
    ) -> None:
        """`close_approvals` closes the approvals that a dead node waits for."""
        self._context = context
        self._jobs = jobs
        self._sessions = sessions
        self._schedules = schedules
        self._close_approvals = close_approvals
        self._node = context.membership.id
        jobs.handle(SESSION_JOB, self._continue_session)
        jobs.handle(NODE_JOB, self._take_over)
        jobs.handle(OWN_JOB, self._take_over_own)
        jobs.on_dead_node = self._defer_node

    async def open(self, stack: AsyncExitStack) -> None:
        """Run jobs until the stack closes, and continue what an earlier process of this node left."""
        membership = self._context.membership
        membership.on_lost(self._sessions.abandon_all)
        membership.on_regained(self._on_regained)
        membership.on_draining(self._on_draining)
        await stack.enter_async_context(self._jobs)
        stack.push_async_callback(self._leave)
        await self._defer_own()

    def _on_regained(self) -> None:
        self._context.tasks.start_soon(self._begin_again)

    def _on_draining(self) -> None:
        self._context.tasks.start_soon(self._drain)

    async def _defer_node(self, node: str) -> None:
        # Jobs with the same lock run in order, so a job that only the dead node would run has to go first.
        await self._jobs.drop(OWN_JOB, node)
        await self._jobs.defer(NODE_JOB, {"node": node}, lock=f"node:{node}")

    async def _defer_own(self) -> None:
        """Continue on this node what an earlier process or lease of it left."""
        await self._jobs.defer(OWN_JOB, {}, lock=f"node:{self._node}", node=self._node)

    async def _defer_session(self, id: str) -> None:
        await self._jobs.defer(SESSION_JOB, {"session": id}, lock=f"session:{id}")

    async def _take_over(self, arguments: JsonObject) -> None:
        """Have the work of a dead node continued."""
        node = str(arguments["node"])
        if any(each.id == node for each in await self._context.membership.alive()):
            return
        settled = await self._context.audit.settle_run(node)
        await self._close_approvals(node)
        logger.warning("Node %s is dead: %d calls in flight have an unknown outcome.", node, settled)
        await self._jobs.adopt(node)
        for session in await load_unfinished(self._context.store, node):
            await self._defer_session(session.id)
        await self._schedules.take_over(node)

    async def _take_over_own(self, _: JsonObject) -> None:
        for session in await load_unfinished(self._context.store, self._node):
            await self._sessions.take_over(session.id)
        await self._schedules.take_over(self._node)

    async def _continue_session(self, arguments: JsonObject) -> None:
        id = str(arguments["session"])
        if self._sessions.held_epoch(id) is not None:  # for the others this node is dead: check the lease
            await self._context.membership.renew()
        await self._sessions.take_over(id)

    async def _begin_again(self) -> None:
        """Continue with a new lease what no other node has taken."""
        while not self._context.membership.lost:
            try:
                await self._context.audit.renew_run()
                return await self._defer_own()
            except ToolcribError as error:
                logger.warning("This node cannot continue its work yet: %s", error)
                await anyio.sleep(_RETRY_SECONDS)

    async def _drain(self) -> None:
        """Give everything away; turns may end before that."""
        with anyio.move_on_after(_DRAIN_SECONDS):
            while any(session.state in UNFINISHED for session in self._sessions.active()):  # noqa: ASYNC110 no event for it
                await anyio.sleep(_RETRY_SECONDS / 4)
        await self._give_away()

    async def _leave(self) -> None:
        """Give everything away if another node can take it."""
        with anyio.move_on_after(_LEAVE_SECONDS, shield=True):
            try:
                await self._give_away()
            except ToolcribError as error:
                logger.warning("The work of this node could not be handed over: %s", error)

    async def _give_away(self) -> None:
        membership = self._context.membership
        others = [node for node in await membership.alive() if node.id != self._node and not node.draining]
        if others and not membership.lost:
            self._jobs.leave()
            await self._sessions.give_away(self._defer_session)
