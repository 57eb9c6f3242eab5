"""Sessions across nodes: one node runs a session, and every operation works on the other."""

import json
from pathlib import Path

import pytest

from cluster.nodes import Cluster, ClusterNode, wait_for
from cluster.test_approvals import pending
from integration.agents.sessions.acp.host import Scripted
from long_tests import takes_long
from toolcrib.model.json import JsonObject

PING: JsonObject = {"tool": "mcp__toolcrib__toolcrib_ping", "input": {}}
DONE: JsonObject = {"blocks": [{"text": "Done."}]}


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    """Return an agent that calls a tool which needs approval."""
    folder = tmp_path / "agent"
    folder.mkdir()
    agent = Scripted(folder)
    agent.script("call", [{"blocks": [PING]}, DONE])
    agent.script("talk", [DONE])
    return agent


def start(cluster: Cluster, scripted: Scripted, count: int = 2) -> list[ClusterNode]:
    """Start nodes that can all run the agent."""
    nodes: list[ClusterNode] = []
    for number in range(count):
        shell = cluster.shell(number)
        shell.home.mkdir(mode=0o700, exist_ok=True)
        (shell.home / "toolcrib.toml").write_text(scripted.toml(), encoding="utf-8")
        nodes.append(cluster.launch(shell))
    for node in nodes:
        cluster.await_ready(node)
    return nodes


def transcript(node: ClusterNode, id: str) -> list[JsonObject]:
    """Return the events of a session, as one node exports them."""
    response = node.request("GET", f"/api/sessions/{id}/transcript")
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def ended(node: ClusterNode, id: str, turns: int = 1) -> list[JsonObject]:
    """Return the transcript once this many turns have ended."""

    def look() -> list[JsonObject]:
        events = transcript(node, id)
        return events if [event["kind"] for event in events].count("done") >= turns else []

    return wait_for(look)


@takes_long
def test_every_operation_on_a_session_works_on_another_node(
    cluster: Cluster, scripted: Scripted, tmp_path: Path
) -> None:
    first, second = start(cluster, scripted)
    new = {"cwd": str(tmp_path), "runner": "scripted", "mode": "default", "title": "one"}
    id = first.request("POST", "/api/sessions", new).json()["id"]
    path = f"/api/sessions/{id}"
    assert first.request("POST", f"{path}/messages", {"content": "[[script:call]]"}).status_code == 202
    (approval,) = wait_for(lambda: pending(second))

    sent = second.request("POST", f"{path}/messages", {"content": "[[script:talk]]"})
    assert (sent.status_code, sent.json()["queued"]) == (202, True), sent.text
    changed = second.request("PATCH", path, {"title": "two", "mode": "acceptEdits"})
    assert (changed.status_code, changed.json()["title"], changed.json()["mode"]) == (200, "two", "acceptEdits")
    assert first.request("GET", path).json()["title"] == "two"
    answer = second.request("POST", f"/api/approvals/{approval['id']}", {"decision": "approve"})
    assert answer.status_code == 200, answer.text
    events = ended(second, id, turns=2)
    assert events == transcript(first, id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))

    fork = second.request("POST", f"{path}/fork", {"title": "three"})
    assert (fork.status_code, fork.json()["title"]) == (201, "three"), fork.text
    assert second.request("POST", f"{path}/interrupt").json() == {"interrupted": False}
    assert second.request("DELETE", path).status_code == 204
    for node in (first, second):
        gone = node.request("GET", path)
        assert (gone.status_code, gone.json()["code"]) == (404, "session.unknown")


@takes_long
def test_session_of_a_killed_node_continues_on_another(cluster: Cluster, scripted: Scripted, tmp_path: Path) -> None:
    first, second = start(cluster, scripted)
    new = {"cwd": str(tmp_path), "runner": "scripted", "mode": "default"}
    id = first.request("POST", "/api/sessions", new).json()["id"]
    first.request("POST", f"/api/sessions/{id}/messages", {"content": "[[script:talk]]"})
    before = ended(second, id)
    first.kill()

    def sent() -> bool:
        body = {"content": "[[script:talk]]"}
        return second.request("POST", f"/api/sessions/{id}/messages", body).status_code == 202

    wait_for(sent)
    after = ended(second, id, turns=2)
    assert after[: len(before)] == before
