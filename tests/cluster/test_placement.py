"""Servers that run on one node for all nodes (`placement = "one"`)."""

import sys
import threading
from pathlib import Path

import httpx2

from cluster.conftest import TESTS
from cluster.nodes import WAIT_SECONDS, Cluster, ClusterNode, wait_for
from deadlines import stretched
from long_tests import takes_long
from toolcrib.model.json import JsonObject

Pair = tuple[ClusterNode, ClusterNode]
UNSIGNED = 404


def add(node: ClusterNode, folder: Path, name: str = "counter") -> None:
    """Add a server that runs on one node, from the command line."""
    folder.mkdir()
    added = node.shell.run(
        *("mcp", "add", name, "--placement", "one"),
        *("--env", f"PYTHONPATH={TESTS}", "--", sys.executable, "-S", "-m", "upstreams.counter", str(folder)),
    )
    assert added.returncode == 0, added.stderr


def count(node: ClusterNode, name: str = "counter") -> tuple[int, int]:
    """Return the process that answers a call, and the number of its calls."""
    answer = node.decided_call(f"{name}/count", {}).json()
    assert "content" in answer and not answer.get("isError"), answer
    process, calls = answer["content"][0]["text"].split()
    return int(process), int(calls)


def is_known(node: ClusterNode, name: str = "counter") -> bool:
    """Return whether a node lists the tools of the server."""
    return node.request("GET", f"/api/tools/{name}/count").status_code == 200


def test_placed_server_answers_calls_of_all_nodes_from_one_process(pair: Pair, tmp_path: Path) -> None:
    first, second = pair
    folder = tmp_path / "processes"
    add(first, folder)
    for node in pair:
        wait_for(lambda: is_known(node))  # noqa: B023 called within this iteration
    counts = [count(node) for node in (first, second, second, first)]
    assert len({process for process, _ in counts}) == 1
    assert [calls for _, calls in counts] == [1, 2, 3, 4]
    assert [file.name for file in folder.iterdir()] == [str(counts[0][0])]
    for node in pair:
        found = node.request("GET", "/api/audit?server=counter&limit=100").json()
        assert len([each for each in found if each["phase"] == "intent"]) == 4, "each call has one decision"
    for path in ("0" * 32, f"{'0' * 32}/calls"):
        assert first.request("POST", f"/api/nodes/servers/{path}", {}).status_code == UNSIGNED
    assert first.request("DELETE", "/api/servers/counter").status_code == 200
    wait_for(lambda: not any(folder.iterdir()))


@takes_long
def test_server_moves_when_its_node_is_killed_and_never_runs_twice(cluster: Cluster, tmp_path: Path) -> None:
    nodes = cluster.start(3)
    folder = tmp_path / "processes"
    add(nodes[0], folder)
    for node in nodes:
        wait_for(lambda: is_known(node))  # noqa: B023 called within this iteration
    process, _ = count(nodes[0])
    owner = next(node for node in nodes if _parent(process) == node.process.pid)
    others = [node for node in nodes if node is not owner]
    answers: list[httpx2.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(others[0].call("counter/wait", {})), daemon=True)
    waiting.start()
    wait_for((folder / "waiting").exists)
    owner.kill()
    waiting.join(stretched(WAIT_SECONDS))
    result: JsonObject = answers[0].json()
    assert result["isError"], "a call in flight fails and is not repeated"
    assert count(others[0])[0] == count(others[1])[0] != process
    wait_for(lambda: not Path(f"/proc/{process}").exists())


def _parent(process: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
