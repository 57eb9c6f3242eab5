"""Membership: every node knows the others, a killed one is dead, and a drained one gives its place up."""

from cluster.nodes import Cluster, wait_for
from long_tests import takes_long
from toolcrib.model.json import JsonObject


@takes_long
def test_nodes_lists_every_node_and_a_drained_one_stops_in_good_order(cluster: Cluster) -> None:
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
