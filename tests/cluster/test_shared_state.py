"""State that all nodes share: the kill switch and the accepted definitions of tools."""

import threading

import httpx2

from cluster.nodes import WAIT_SECONDS, ClusterNode, wait_for
from cluster.test_handles import create_token
from deadlines import stretched
from toolcrib.model.json import JsonObject

Pair = tuple[ClusterNode, ClusterNode]
GREETING: JsonObject = {"name": "Ada"}


def changes(node: ClusterNode, kind: str) -> list[JsonObject]:
    """The records of one kind of change."""
    found = node.request("GET", "/api/audit?server=toolcrib&limit=500").json()
    return [each for each in found if each.get("tool") == kind]


def state(node: ClusterNode) -> str:
    """Whether a node is stopped."""
    return node.request("GET", "/api/status").json()["state"]


class Holding:
    """A call in flight, made in a thread."""

    def __init__(self, node: ClusterNode, name: str) -> None:
        self.answer: httpx2.Response | None = None
        self._started = node.home / f"{name} started"
        arguments = {"started": str(self._started), "until": str(node.home / f"{name} never")}
        self._thread = threading.Thread(target=self._call, args=(node, arguments), daemon=True)
        self._thread.start()
        wait_for(self._started.exists)

    def _call(self, node: ClusterNode, arguments: JsonObject) -> None:
        self.answer = node.call("lab/hold", arguments)

    def code(self) -> str:
        """The code of its refusal."""
        self._thread.join(stretched(WAIT_SECONDS))
        assert self.answer is not None
        return self.answer.json()["code"]


def test_stop_all_binds_at_the_next_call_on_every_node_until_any_of_them_resumes(pair: Pair) -> None:
    first, second = pair
    token = create_token(first, name="stopped", mode="acceptEdits", source="api")
    for number, (here, there) in enumerate(((first, second), (second, first))):
        holding = Holding(there, f"stop {number}")
        stopped = here.shell.json("stop-all", "--reason", "Something is odd.")
        assert (stopped["state"], stopped["confirmed"]) == ("stopped", True)
        refused = there.decided_call("lab/greet", GREETING)
        assert (refused.status_code, refused.json()["code"]) == (403, "crib.stopped")
        assert holding.code() == "crib.stopped"
        wait_for(lambda: state(there) == "stopped")  # noqa: B023 it is awaited here
        for node in pair:
            assert node.request("GET", "/api/tools", token=token).json()["code"] == "crib.stopped"
        assert there.shell.json("resume-all")["state"] == "running"
        assert there.decided_call("lab/greet", GREETING).status_code == 200
        wait_for(lambda: state(here) == "running")  # noqa: B023 it is awaited here
        assert here.decided_call("lab/greet", GREETING, token=token).status_code == 200
        assert not any((node.home / "stopped").exists() for node in pair)
    for kind in ("crib.stop", "crib.resume"):
        assert len([each for each in changes(first, kind) if each["phase"] == "outcome"]) == 2
    assert first.request("DELETE", "/api/tokens/stopped").status_code == 200


def become(node: ClusterNode, way: str) -> None:
    """Have the server of one node define its tool in another way, and the node notice."""
    wait_for(lambda: node.decided_call("shifts/become", {"way": way}).status_code == 200)
    assert node.shell.run("mcp", "test", "shifts").returncode == 0


def held(node: ClusterNode) -> list[str]:
    """The hashes of held definitions."""
    return [each["hash"] for each in node.request("GET", "/api/tools/changes").json()]


def test_held_accepted_and_rejected_definitions_bind_at_the_next_call_on_every_node(pair: Pair) -> None:
    first, second = pair
    for node in pair:
        become(node, "plain")
        wait_for(lambda: node.decided_call("shifts/tool", {}).status_code == 200)  # noqa: B023 it is awaited here
    become(first, "reworded")
    for node in pair:
        assert node.decided_call("shifts/tool", {}).status_code in (403, 404), "one node has seen a poisoned definition"
    (poisoned,) = held(second)
    rejected = second.request("POST", "/api/tools/shifts/tool/reject", {"hash": poisoned})
    assert rejected.status_code == 200, rejected.text
    assert second.decided_call("shifts/tool", {}).status_code == 200, "its own server has the pinned definition"
    assert first.decided_call("shifts/tool", {}).status_code in (403, 404)
    accepted = second.request("POST", "/api/tools/shifts/tool/accept", {"hash": poisoned})
    assert accepted.status_code == 200, accepted.text
    called = wait_for(lambda: first.decided_call("shifts/tool", {}).json().get("content"))
    assert called[0]["text"] == "called reworded"
    assert second.decided_call("shifts/tool", {}).status_code in (403, 404), "its own server has another definition"
    become(second, "reworded")
    wait_for(lambda: second.decided_call("shifts/tool", {}).status_code == 200)
    assert first.decided_call("shifts/tool", {}).status_code == 200
