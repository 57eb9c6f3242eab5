"""Membership: every node knows the others, and notices one that ends or is killed."""

from cluster.nodes import Cluster, wait_for
from integration.store.databases import ask


def test_a_node_that_leaves_is_forgotten_and_one_that_is_killed_is_dead(cluster: Cluster) -> None:
    first, second, third = cluster.start(3)

    def addresses() -> set[str]:
        return {address for (address,) in ask(cluster.database, "SELECT address FROM nodes") if address}

    wait_for(lambda: addresses() == {first.url, second.url, third.url})
    epochs = ask(cluster.database, "SELECT epoch FROM nodes ORDER BY epoch")
    assert epochs == [(1,), (2,), (3,)]
    second.stop()
    assert addresses() == {first.url, third.url}
    third.kill()
    assert addresses() == {first.url, third.url}
