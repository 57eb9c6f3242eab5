"""Membership: every node knows the others, a killed node is dead, and a drained node stops."""

import shutil

from cluster.nodes import Cluster, wait_for
from cluster.test_approvals import Calling, pending
from cluster.test_handles import answer, create_token
from long_tests import takes_long
from toolcrib.model.json import JsonObject


@takes_long
def test_nodes_command_lists_every_node_and_drain_stops_one(cluster: Cluster) -> None:
    first, second, third = cluster.start(3)

    def listed() -> dict[str, JsonObject]:
        return {str(node["address"]): node for node in first.request("GET", "/api/nodes").json()}

    wait_for(lambda: set(listed()) == {first.url, second.url, third.url})
    assert [listed()[node.url]["epoch"] for node in cluster.nodes] != [0, 0, 0]
    assert {node["state"] for node in listed().values()} == {"alive"}
    shown = first.shell.run("nodes")
    assert shown.returncode == 0
    assert second.url in shown.stdout
    assert first.shell.run("nodes", "drain", "no such node").returncode == 3
    drained = first.shell.run("nodes", "drain", second.url, "--json")
    assert drained.returncode == 0, drained.stderr
    assert second.process.wait(60) == 0
    third.kill()
    assert set(listed()) == {first.url, third.url}
    wait_for(lambda: listed()[third.url]["state"] == "dead")


@takes_long
def test_drained_node_makes_the_call_whose_approval_is_pending(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    calling = Calling(first, create_token(first, source="api"))
    (approval,) = wait_for(lambda: pending(second))
    drained = second.request("POST", f"/api/nodes/{first.url.partition('://')[2]}/drain")
    assert drained.status_code == 200, drained.text
    answer(second, approval["id"])
    assert calling.status() == 200
    assert first.process.wait(60) == 0


@takes_long
def test_copied_home_is_a_separate_node(cluster: Cluster) -> None:
    (first,) = cluster.start(1)
    shell = cluster.shell(1)
    shutil.rmtree(shell.home, ignore_errors=True)
    shutil.copytree(first.home, shell.home, ignore=shutil.ignore_patterns("run.json", "*lock*"))
    second = cluster.launch(shell)
    cluster.await_ready(second)
    listed = first.request("GET", "/api/nodes").json()
    assert len({node["id"] for node in listed}) == len(listed) == 2
    for node in (first, second):
        assert node.decided_call("toolcrib/ping", {}).status_code == 200
    assert first.request("GET", "/api/audit/verify").json()["ok"]
