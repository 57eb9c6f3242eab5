"""Events over nodes: one numbering, resumed on any node, and live everywhere."""

import json
import threading
import time
from collections.abc import Callable

import httpx2

from cluster.nodes import WAIT_SECONDS, Cluster, ClusterNode, wait_for
from deadlines import stretched
from http_clients import PLAIN
from long_tests import takes_long
from toolcrib.model.json import JsonObject

Until = Callable[[list[JsonObject]], bool]


def follow(
    node: ClusterNode, until: Until, after: int | None = None, started: threading.Event | None = None
) -> list[JsonObject]:
    """Return the events of a node, read until `enough` holds."""
    seen: list[JsonObject] = []
    query = {} if after is None else {"after": after}
    headers = {"authorization": f"Bearer {node.token}"}
    with (
        httpx2.Client(base_url=node.url, verify=PLAIN, timeout=stretched(WAIT_SECONDS)) as client,
        client.stream("GET", "/api/events", params=query, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        if started is not None:
            started.set()
        for line in response.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: ")) | {"arrived": time.time()})
                if until(seen):
                    return seen
    raise AssertionError(f"The stream ended after {seen}.")


def names(events: list[JsonObject]) -> list[str]:
    """Return the agents that events report."""
    return [event["agentId"] for event in events if event["kind"] == "agent_changed"]


def create(node: ClusterNode, name: str) -> None:
    """Create an agent, which publishes one event."""
    assert node.request("POST", "/api/agents", {"id": name, "name": name, "systemPrompt": "x"}).status_code == 201


def test_events_have_one_numbering_and_are_resumed_on_another_node(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    seen: list[JsonObject] = []
    started = threading.Event()
    reader = threading.Thread(
        target=lambda: seen.extend(follow(second, lambda all: len(names(all)) == 4, started=started)), daemon=True
    )
    reader.start()
    assert started.wait(stretched(WAIT_SECONDS))
    for number in range(2):
        create(first, f"a{number}")
        create(second, f"b{number}")
    reader.join(stretched(WAIT_SECONDS))
    assert names(seen) == ["a0", "b0", "a1", "b1"]
    numbers = [event["seq"] for event in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    second.stop()
    create(first, "a2")
    (third,) = cluster.start(1)
    create(third, "c0")
    resumed = follow(third, lambda all: "c0" in names(all), after=numbers[-1])
    assert names(resumed) == ["a2", "c0"]
    assert [event["seq"] for event in resumed] == list(range(numbers[-1] + 1, resumed[-1]["seq"] + 1))
    again = follow(first, lambda all: "c0" in names(all), after=numbers[0] - 1)
    assert [event["seq"] for event in again if event["seq"] <= numbers[-1]] == numbers


@takes_long
def test_agent_created_on_one_node_is_known_on_the_other_at_once(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    create(first, "fresh")
    wait_for(lambda: second.request("GET", "/api/agents/fresh").status_code == 200)
