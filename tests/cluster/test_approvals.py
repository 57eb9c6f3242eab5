"""Approvals across nodes: requested on one, answered on another."""

import logging
import threading
import time

import httpx2

from cluster.nodes import WAIT_SECONDS, Cluster, ClusterNode, wait_for
from cluster.test_events import follow
from deadlines import stretched
from toolcrib.model.json import JsonObject

logger = logging.getLogger(__name__)


class Calling:
    """A call that waits for an approval, made in a thread."""

    def __init__(self, node: ClusterNode, secret: str) -> None:
        self.answer: httpx2.Response | None = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._call, args=(node, secret), daemon=True)
        self._thread.start()

    def _call(self, node: ClusterNode, secret: str) -> None:
        self.answer = node.call("toolcrib/ping", {}, token=secret)
        self.ended_at = time.monotonic()

    def status(self) -> int:
        """Return the status of the answer."""
        self._thread.join(stretched(WAIT_SECONDS))
        assert self.answer is not None
        return self.answer.status_code


def asking_token(node: ClusterNode) -> str:
    """Create a token whose calls need approval, and return its secret."""
    made = node.request("POST", "/api/tokens", {"name": "asker", "mode": "default", "source": "api"})
    assert made.status_code == 201, made.text
    return made.json()["secret"]


def pending(node: ClusterNode) -> list[JsonObject]:
    """Return the pending approvals that a node lists."""
    return node.request("GET", "/api/approvals?status=pending").json()


def test_call_on_one_node_goes_on_when_it_is_approved_on_another(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    secret = asking_token(first)
    start = follow(second, lambda all: True, after=0)[0]["seq"]
    waits: list[float] = []
    ids: list[str] = []
    for decision in ("approve", "deny", "approve"):
        calling = Calling(first, secret)
        (approval,) = wait_for(lambda: pending(second))
        ids.append(approval["id"])
        answered_at = time.monotonic()
        answered = second.request("POST", f"/api/approvals/{approval['id']}", {"decision": decision})
        assert answered.status_code == 200, answered.text
        status = calling.status()
        waits.append(calling.ended_at - answered_at)
        assert status == (200 if decision == "approve" else 403)
        again = first.request("POST", f"/api/approvals/{approval['id']}", {"decision": "approve"})
        assert (again.status_code, again.json()["code"]) == (409, "approval.decided")
    logger.info("seconds from the answer to the result: %s", waits)

    def is_whole(events: list[JsonObject]) -> bool:
        return events[-1]["kind"] == "agent_changed"

    first.request("POST", "/api/agents", {"id": "last", "name": "last", "systemPrompt": "x"})
    events = follow(first, is_whole, after=start)
    for kind in ("approval_required", "approval_resolved"):
        assert [event["approvalId"] for event in events if event["kind"] == kind] == ids
