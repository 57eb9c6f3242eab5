"""A new node receives definitions, trust, tools and the owner's token from the cluster."""

from cluster.nodes import WAIT_SECONDS, Cluster, ClusterNode, wait_for
from deadlines import stretched
from long_tests import takes_long

EXTRA = """
from toolcrib import tool


@tool(read_only=True)
def hello() -> str:
    return "hello"
"""


def servers(node: ClusterNode) -> set[str]:
    return {str(server["name"]) for server in node.request("GET", "/api/servers").json()}


@takes_long
def test_new_node_has_the_servers_tools_and_owner_of_the_cluster(cluster: Cluster) -> None:
    secret = ("--node-secret-file", str(cluster.secret_file))
    first, second = cluster.start(2, *secret)
    assert first.token == second.token
    (first.home / "tools" / "extra.py").write_text(EXTRA, encoding="utf-8")
    added = first.request("POST", "/api/servers", {"name": "clock", "command": "clock-server", "enabled": False})
    assert added.status_code == 201, added.text
    wait_for(lambda: "clock" in servers(second))
    wait_for(lambda: second.call("extra/hello", {}).status_code == 200)
    (third,) = cluster.start(1, *secret)
    assert "clock" in servers(third)
    assert third.call("extra/hello", {}, token=first.token).status_code == 200
    assert third.request("DELETE", "/api/servers/clock").status_code == 200
    wait_for(lambda: "clock" not in servers(first))
    other = cluster.folder / "other-secret"
    other.write_text("x" * 64, encoding="ascii")
    other.chmod(0o600)
    stranger = cluster.launch(cluster.shell(9), "--node-secret-file", str(other))
    printed, _ = stranger.process.communicate(timeout=stretched(WAIT_SECONDS))
    assert stranger.process.returncode == 1
    assert "node.secret" in printed
