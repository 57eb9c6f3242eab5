"""Jobs that exactly one node runs at a time, kept in the shared database by Procrastinate.

A job has a lock: of the jobs with the same lock one runs at a time, in order. A job whose node stopped sending
heartbeats runs again on another node, so a handler must continue what an earlier run began. Procrastinate alone would
let a suspended node that wakes up finish such a job and release its lock. Here the statement that finishes a job
matches it only while the same worker holds it, and a node whose lease has ended finishes none.

Turns of sessions are not jobs while their node lives: the epoch of the session fences them already, and a job per turn
would cost more than the turn's own records. A job continues the turns that a dead node left.

The worker and the search for dead nodes wait for a signal or for the poll of `signals`, and a node and its worker have
one heartbeat, so that an idle node asks the job queue nothing.

Must never finish a job that another node may have taken.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Self

import anyio
import psycopg
from anyio.abc import TaskGroup
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException, UniqueViolation
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager, NotificationCallback
from procrastinate.worker import Worker
from psycopg_pool import AsyncConnectionPool

from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.nodes import LEASE_SECONDS
from toolcrib.nodes.membership import Membership
from toolcrib.nodes.signals import Signals
from toolcrib.store.cluster_state import ClusterState
from toolcrib.store.engine import Store
from toolcrib.store.schema import escape
from toolcrib.store.side_connection import has_input

logger = logging.getLogger(__name__)
logging.getLogger("procrastinate").setLevel(logging.WARNING)  # it announces the beginning and end of every job

TOPIC: Final = "jobs"
"""The signal that a job waits or a lock is free."""
_FETCH_SECONDS: Final = 10.0
"""Seconds between two looks for jobs that neither a signal nor the poll reported."""
MOST_AT_ONCE: Final = 200
_ANY: Final = "any"
"""The queue of jobs that any node may run."""
_RETRY_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 10.0
"""Seconds that handlers have to end when the crib stops."""
_CONNECTIONS: Final = 2
_FINISH: Final = """
    WITH held AS (
        SELECT id FROM procrastinate_jobs
        WHERE id = %(job_id)s AND status = 'doing' AND worker_id = %(worker_id)s FOR UPDATE
    ) SELECT procrastinate_finish_job_v1(id, %(status)s, %(delete_job)s) FROM held
"""
_RETRY_STALLED: Final = """
    WITH stalled AS (
        SELECT id FROM procrastinate_jobs
        WHERE id = %(job_id)s AND status = 'doing' AND worker_id IS NOT DISTINCT FROM %(worker_id)s FOR UPDATE
    ) SELECT procrastinate_retry_job_v2(id, NULL, NULL, %(queue)s, NULL) FROM stalled
"""
_DROP_STALLED: Final = """
    DELETE FROM procrastinate_jobs
    WHERE id = %(job_id)s AND status = 'doing' AND worker_id IS NOT DISTINCT FROM %(worker_id)s
"""
_DROP_OF_DEAD: Final = """
    DELETE FROM procrastinate_jobs
    WHERE queue_name = %(queue)s AND task_name = %(kind)s AND status = 'todo' AND NOT EXISTS (
        SELECT 1 FROM nodes WHERE id = %(node)s AND seen_at > EXTRACT(EPOCH FROM clock_timestamp()) - %(lease)s
    )
"""
_ADOPT: Final = "UPDATE procrastinate_jobs SET queue_name = %(to)s WHERE queue_name = %(queue)s AND status = 'todo'"

Handler = Callable[[JsonObject], Awaitable[None]]


def queue_of(node: str) -> str:
    """Return the name of the queue of jobs that this node should run."""
    return f"node-{hashlib.sha256(node.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


class Jobs:
    """Defers jobs, runs those of this node and of dead ones while open: `async with Jobs(…) as jobs`.

    Register handlers before it is opened. `on_dead_node` is called with the id of a node whose lease has ended, once
    for each lease; several nodes may call it for the same one.
    """

    def __init__(self, store: Store, membership: Membership, signals: Signals) -> None:
        self._membership = membership
        self._signals = signals
        self._connector = PsycopgConnector(
            pool_factory=_pool,
            kwargs={**store.connection_parameters(), "autocommit": True},
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=LEASE_SECONDS,
        )
        self._app = App(connector=self._connector)
        self._manager = _FencedManager(self._connector)
        self._manager.is_lost = lambda: membership.lost
        self._manager.on_finished = self._announce
        self._queues = [_ANY, queue_of(membership.id)]
        self._is_sweep_due = anyio.Event()
        self._app.job_manager = self._manager
        self._handlers: dict[str, Handler] = {}
        self._seen_dead: set[int] = set()
        """The epochs of the leases that ended."""
        self._worker: Worker | None = None
        self._is_leaving = False
        self._is_closing = False
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup
        self._working: asyncio.Task[None]
        self.on_dead_node: Callable[[str], Awaitable[None]] = _ignore

    @property
    def may_write(self) -> bool:
        """Whether a handler may still record results; False once its jobs belong to other nodes."""
        return not self._is_leaving and not self._membership.lost

    def handle(self, kind: str, handler: Handler) -> None:
        """Run jobs of this kind with this handler."""
        self._handlers[kind] = handler

        async def run(**arguments: Any) -> None:
            try:
                await handler(arguments)
            except ToolcribError as error:
                logger.warning("Job %s failed: %s", kind, error)

        self._app.task(name=kind)(run)

    async def __aenter__(self) -> Self:
        await self._connector.open_async()
        self._stack.push_async_callback(self._close)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        self._membership.on_lost(self._give_up)
        self._membership.worker = self._worker_id
        self._stack.callback(self._signals.listen(self._hear))
        self._stack.callback(self._signals.on_poll(self._look))
        self._tasks.start_soon(self._sweep)
        # Not in the group: a scope cancels again and again, which would break off the worker's own shutdown.
        self._working = asyncio.create_task(self._work(), name="toolcrib-jobs")
        return self

    def leave(self) -> None:
        """Give all jobs away: their handlers end without a result, and other nodes run them again."""
        self._is_leaving = True
        self._give_up()

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        if self._worker is not None:
            self._worker.stop()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._working], timeout=_STOP_SECONDS)
            self._working.cancel()
        await self._stack.aclose()

    async def _close(self) -> None:
        with suppress(ConnectorException), anyio.move_on_after(_RETRY_SECONDS):
            await self._connector.close_async()

    async def defer(
        self, kind: str, arguments: JsonObject, *, lock: str, key: str | None = None, node: str | None = None
    ) -> None:
        """Add a job, unless one with the same key waits already. Raises `Unavailable`.

        Without a key, jobs of this kind with this lock are the same. `node` should run the job, unless it is dead.
        """
        queue = _ANY if node is None else queue_of(node)
        options = self._app.configure_task(kind, queue=queue, lock=lock, queueing_lock=f"{kind} {key or lock}")
        try:
            await options.defer_async(**arguments)
        except AlreadyEnqueued:
            return
        except ConnectorException as error:
            raise Unavailable("database.unavailable", "The job could not be stored.") from error
        self._announce()

    async def adopt(self, node: str) -> None:
        """Let any node run the jobs that wait for a dead one."""
        with suppress(ConnectorException):
            await self._connector.execute_query_async(_ADOPT, to=_ANY, queue=queue_of(node))

    async def drop(self, kind: str, node: str) -> None:
        """Remove the jobs of this kind that wait for a dead node. Does nothing if it lives again."""
        await self._connector.execute_query_async(
            _DROP_OF_DEAD, queue=queue_of(node), kind=kind, node=escape(node), lease=LEASE_SECONDS
        )

    def _worker_id(self) -> int | None:
        return self._worker.worker_id if self._worker is not None else None

    def _announce(self) -> None:
        """Have all nodes look for jobs now."""
        self._manager.wake()
        self._signals.send(TOPIC)

    def _hear(self, topic: str) -> None:
        if topic == TOPIC:
            self._manager.wake()

    def _look(self, state: ClusterState) -> None:
        if not state.queues.isdisjoint(self._queues):
            self._manager.wake()
        if state.has_running_jobs or not state.dead <= self._seen_dead:
            self._is_sweep_due.set()

    def _give_up(self) -> None:
        """Cancel all handlers without finishing their jobs: other nodes may have them."""
        self._manager.is_open = False
        if self._worker is not None:
            self._worker.stop()

    async def _work(self) -> None:
        """Run jobs; start again with a new worker when a new lease begins."""
        while not self._is_leaving and not self._is_closing:
            if self._membership.lost or self._membership.draining:
                await anyio.sleep(_RETRY_SECONDS)
                continue
            self._manager.is_open = True
            self._worker = Worker(
                self._app,
                queues=self._queues,
                name="toolcrib",
                concurrency=MOST_AT_ONCE,
                fetch_job_polling_interval=_FETCH_SECONDS,
                shutdown_graceful_timeout=0.0,
                listen_notify=True,
                delete_jobs="always",
                install_signal_handlers=False,
                stalled_worker_timeout=LEASE_SECONDS,
            )
            try:
                await self._worker.run()
            except ConnectorException as error:
                logger.warning("Jobs cannot be run now: %s", error)
                await anyio.sleep(_RETRY_SECONDS)
            finally:
                self._worker = None

    async def _sweep(self) -> None:
        """Look for jobs and nodes that are dead, when the poll finds that there may be some."""
        while True:
            await self._is_sweep_due.wait()
            self._is_sweep_due = anyio.Event()
            if not self.may_write or self._membership.draining:
                continue
            try:
                await self._retry_stalled()
                await self._notice_dead_nodes()
            except (ConnectorException, ToolcribError) as error:
                logger.warning("Could not look for the work of dead nodes: %s", error)
                await anyio.sleep(_RETRY_SECONDS)

    async def _retry_stalled(self) -> None:
        for job in await self._manager.get_stalled_jobs(seconds_since_heartbeat=LEASE_SECONDS):
            logger.warning("Job %s is taken over from a node that stopped.", job.call_string)
            held = {"job_id": job.id, "worker_id": job.worker_id}
            try:
                await self._connector.execute_query_async(_RETRY_STALLED, queue=_ANY, **held)
            except UniqueViolation:  # the same job waits already
                await self._connector.execute_query_async(_DROP_STALLED, **held)

    async def _notice_dead_nodes(self) -> None:
        for node in await self._membership.all():
            if not node.is_alive and node.epoch not in self._seen_dead:
                await self.on_dead_node(node.id)
                self._seen_dead.add(node.epoch)


class _FencedManager(JobManager):
    """Finishes a job only while this worker holds it, and survives a database that does not respond.

    `wake` has the worker look for jobs.
    """

    is_open = True
    is_lost: Callable[[], bool]
    on_finished: Callable[[], None]

    def __init__(self, connector: PsycopgConnector) -> None:
        super().__init__(connector)
        self._due = anyio.Event()

    def wake(self) -> None:
        """Have the worker look for jobs now."""
        self._due.set()

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        """Pass on what wakes this node. Procrastinate's own notifications would need one more connection."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            await on_notification(channel="", notification={"type": "job_inserted", "job_id": 0})

    async def fetch_job(self, queues: Any, worker_id: int) -> Job | None:
        try:
            return await super().fetch_job(queues, worker_id) if self.is_open and not self.is_lost() else None
        except ConnectorException as error:
            logger.warning("Jobs cannot be fetched now: %s", error)
            return None

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        while self.is_open:
            try:
                await self.connector.execute_query_async(
                    _FINISH, job_id=job.id, worker_id=job.worker_id, status=status.value, delete_job=delete_job
                )
                return self.on_finished()
            except ConnectorException as error:
                logger.warning("The end of a job could not be stored, retrying: %s", error)
                await anyio.sleep(_RETRY_SECONDS)
        return None

    async def update_heartbeat(self, worker_id: int) -> None:
        """Do nothing: the heartbeat of the node is that of its worker."""

    async def unregister_worker(self, worker_id: int) -> None:
        with suppress(ConnectorException):
            await super().unregister_worker(worker_id)


def _pool(**given: Any) -> AsyncConnectionPool:
    """Return a pool that checks its connections without asking the server each time."""
    given["check"] = _check
    return AsyncConnectionPool(**given)


async def _check(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise if the server has closed this connection."""
    if has_input(connection):
        await AsyncConnectionPool.check_connection(connection)


async def _ignore(_: str) -> None:
    """Do nothing about a dead node."""
