"""What a node of a cluster has to notice, read in one statement.

It is read every second on every node, so each part of it comes from an index or from a table that stays small. It has
no parameters, because the server would plan it again for each value.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolcrib.model.nodes import LEASE_SECONDS
from toolcrib.store.audit_lanes import CHECKPOINT_LANE, CHECKPOINT_LEASE, lane_end, lane_start
from toolcrib.store.schema import unescape

if TYPE_CHECKING:
    from toolcrib.store.side_connection import SideConnection

_QUERY: Final = f"""
SELECT (SELECT value FROM epochs WHERE name = 'policy'),
       coalesce((SELECT value FROM epochs WHERE name = 'events'), 0),
       agents.count, agents.versions,
       ARRAY(SELECT id FROM nodes WHERE draining),
       ARRAY(SELECT epoch FROM nodes WHERE seen_at <= clock.seconds - {LEASE_SECONDS}),
       ARRAY(SELECT DISTINCT queue_name::text FROM procrastinate_jobs WHERE status = 'todo'),
       EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status = 'doing'),
       (SELECT max(id) FROM audit WHERE id > {lane_start(CHECKPOINT_LANE)} AND id < {lane_end(CHECKPOINT_LANE)}),
       (SELECT holder FROM leases WHERE name = '{CHECKPOINT_LEASE}' AND until >= clock.seconds)
FROM (SELECT count(*), coalesce(sum(version + brain_version), 0)::bigint AS versions FROM agents) AS agents,
     (SELECT EXTRACT(EPOCH FROM clock_timestamp())::float AS seconds) AS clock
"""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of the shared database at one moment, as far as nodes react to it."""

    policy: int
    """The epoch of the permissions."""
    events: int
    """The number of the newest event."""
    agents: int
    agent_versions: int
    """The number of agents and the sum of their versions, which grows whenever an agent or its brain changes."""
    draining: frozenset[str]
    """The nodes that were asked to give their work away."""
    dead: frozenset[int]
    """The epochs of the leases that have ended."""
    queues: frozenset[str]
    """The queues in which jobs wait."""
    has_running_jobs: bool
    """Whether any node runs a job, or left one."""
    checkpoint: int | None
    """The number of the newest checkpoint of the audit log."""
    checkpoint_writer: str | None
    """The node that writes checkpoints, if any does."""


async def read_cluster_state(connection: "SideConnection") -> ClusterState:
    """Return the current state. Raises `Unavailable`."""
    ((row,),) = await connection.run([(_QUERY, {})])
    return _parse(row)


def _parse(row: tuple[Any, ...]) -> ClusterState:
    policy, events, agents, versions, draining, dead, queues, has_running_jobs, checkpoint, writer = row
    return ClusterState(
        policy=policy,
        events=events,
        agents=agents,
        agent_versions=versions,
        draining=frozenset(map(unescape, draining)),
        dead=frozenset(dead),
        queues=frozenset(queues),
        has_running_jobs=has_running_jobs,
        checkpoint=checkpoint,
        checkpoint_writer=None if writer is None else unescape(writer),
    )
