"""A real network partition: a node in a network namespace whose cable to everything else is pulled."""

import shutil
from pathlib import Path

import pytest

from cluster.failures import CLIENTS, PlayedCluster, agents, unknown_calls
from cluster.load import Load
from cluster.namespaces import NamespacedNode, network_namespace
from cluster.nodes import wait_for
from cluster.postgres_servers import OwnDatabase, needs_root
from long_tests import takes_long

pytestmark = [
    pytest.mark.anyio,
    needs_root,
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs the program ip of iproute2"),
]


@takes_long
async def test_partitioned_node_denies_calls_and_its_turn_continues_on_another(tmp_path: Path) -> None:
    with network_namespace() as space:
        database = OwnDatabase(address=space.near).create().start()
        played = PlayedCluster(tmp_path, database.url)
        try:
            [second] = played.start(1, "--node-secret-file", str(played.secret_file))
            assert second.request("POST", "/api/tokens", {"name": "client", "source": "api"}).status_code == 201
            first = played.launch(
                played.shell(1),
                *("--host", space.far, "--behind-proxy", space.near, "--node-secret-file", str(played.secret_file)),
                kind=NamespacedNode,
                within=("ip", "netns", "exec", space.name),
            )
            assert isinstance(first, NamespacedNode)
            first.space = space
            played.await_ready(first)
            session = played.begin_turn(first)
            assert second.request("POST", f"/api/sessions/{session}/messages", {"content": "queued"}).status_code == 202
            load = Load([second], CLIENTS)
            with load.running():
                space.cut()
                wait_for(lambda: not agents(first), 60)
                assert first.call("counter/slow", {"marker": "cut off", "seconds": 0}).status_code == 503
                assert played.await_continued(session) < 60
                space.heal()
                wait_for(lambda: first.call("counter/slow", {"marker": "healed", "seconds": 0}).status_code == 200, 60)
            assert "cut off" not in played.calls
            assert (played.calls.count("in flight"), unknown_calls(played)) == (1, 1)
            played.settle()
            assert await played.findings(load) == []
        finally:
            played.close()
            database.close()
