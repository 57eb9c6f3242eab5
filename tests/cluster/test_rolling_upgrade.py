"""An upgrade without downtime: nodes of this version and of the next, which has a larger schema, side by side."""

import pytest

from cluster.failures import CLIENTS, PlayedCluster
from cluster.load import Load
from cluster.nodes import ClusterNode, wait_for
from integration.store.databases import ask
from long_tests import takes_long

pytestmark = pytest.mark.anyio
NEXT = {"NEXT_VERSION": "99.0"}


def versions(node: ClusterNode) -> list[str]:
    """The versions of the live nodes, as one of them lists them."""
    listed = node.request("GET", "/api/nodes").json()
    return sorted(each["version"] for each in listed if each["state"] != "dead")


@takes_long
async def test_nodes_are_upgraded_one_after_the_other_without_a_lost_call(played: PlayedCluster) -> None:
    nodes = played.start(2)
    old = versions(nodes[0])[0]
    load = Load(nodes, CLIENTS)  # follows the list of nodes as it changes
    with load.running():
        session = played.begin_turn(nodes[0], "hang")
        wait_for(lambda: played.owner(session)[1] == "running")
        [third] = played.start(1, variables=NEXT)
        assert ask(played.database, "SELECT version_num FROM alembic_version") == [("9999",)]
        assert versions(nodes[1]) == [old, old, "99.0"]
        nodes.append(third)

        first, second = nodes[0], nodes[1]
        drained = third.request("POST", f"/api/nodes/{first.url.partition('://')[2]}/drain")
        assert drained.status_code < 300, drained.text
        assert first.process.wait(60) == 0
        nodes.remove(first)
        wait_for(lambda: played.owner(session)[1] == "running" and played.owner(session)[2] > 1)

        second.kill()  # a node of the older version that restarts in the middle of the upgrade
        second = played.relaunch(second)
        nodes[0] = second
        assert versions(third) == [old, "99.0"]
        assert second.call("counter/slow", {"marker": "older", "seconds": 0}).status_code == 200
        assert third.call("counter/slow", {"marker": "newer", "seconds": 0}).status_code == 200

        nodes.remove(second)
        second.stop()
        assert versions(third) == ["99.0"]
        assert third.request("POST", f"/api/sessions/{session}/interrupt").status_code < 300
        wait_for(lambda: played.owner(session)[1] == "idle", 60)
    played.settle()
    assert await played.findings(load) == []
