"""A node without the database refuses calls, because it cannot record them, and answers again once it is back."""

from cluster.nodes import Cluster, wait_for
from integration.store.databases import Server
from long_tests import takes_long


@takes_long
def test_node_without_the_database_refuses_calls_until_it_is_back(cluster: Cluster, postgres: Server) -> None:
    (node,) = cluster.start(1)
    assert node.call("lab/greet", {"name": "Ada"}).status_code == 200
    postgres.stop()
    try:
        refused = node.call("lab/greet", {"name": "Ada"})
        assert (refused.status_code, refused.json()["code"]) == (503, "audit.unavailable")
        wait_for(lambda: node.request("GET", "/healthz").status_code == 503)
        assert node.request("GET", "/healthz").json()["code"] == "node.lost"
        listed = node.shell.run("rules", "list")
        assert "does not respond" not in listed.stderr, listed.stderr
    finally:
        postgres.ensure_postgres_running()
    wait_for(lambda: node.call("lab/greet", {"name": "Ada"}).status_code == 200)
    wait_for(lambda: node.request("GET", "/healthz").status_code == 200)
    verified = node.request("GET", "/api/audit/verify").json()
    assert verified["ok"], verified
