"""Clients that use all nodes in turn during failures. Not a test itself."""

import itertools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import httpx2

from cluster.nodes import ClusterNode, wait_for
from http_clients import PLAIN

FOLLOWERS = 2
"""Clients that follow the events. One more changes an agent, and the others call a tool."""
GONE = 410
Job = Callable[[httpx2.Client], None]


class Load:
    """Clients that call a tool, change an agent or follow the events, and reconnect to the next node after a failure.

    The list of nodes may change meanwhile. `acknowledged` are the markers of answered calls, `readers` the numbers of
    the events that each follower received.

    """

    def __init__(self, nodes: list[ClusterNode], clients: int) -> None:
        self.acknowledged: list[str] = []
        self.changes = 0
        self.readers: list[list[int]] = [[] for _ in range(FOLLOWERS)]
        self._nodes = nodes
        self._ended = threading.Event()
        self._numbers = itertools.count()
        jobs = [*(self._follower(seen) for seen in self.readers), self._change]
        jobs += [self._call] * (clients - len(jobs))
        self._threads = [threading.Thread(target=self._run, args=(at, job), daemon=True) for at, job in enumerate(jobs)]

    def _run(self, at: int, job: Job) -> None:
        for turn in itertools.count(at):
            if self._ended.wait(0.1):
                return
            node = self._nodes[turn % len(self._nodes)]
            headers = {"authorization": f"Bearer {node.token}"}
            try:
                with httpx2.Client(base_url=node.url, verify=PLAIN, timeout=5.0, headers=headers) as client:
                    job(client)
            except (httpx2.HTTPError, OSError):
                continue

    def _call(self, client: httpx2.Client) -> None:
        marker = f"marker {next(self._numbers)}."
        body = {"arguments": {"marker": marker, "seconds": 0}}
        answer = client.post("/api/tools/counter/slow/call", json=body)
        if answer.status_code == 200 and not answer.json().get("isError"):
            self.acknowledged.append(marker)

    def _change(self, client: httpx2.Client) -> None:
        name = f"agent-{next(self._numbers)}"
        made = client.post("/api/agents", json={"id": name, "name": name, "systemPrompt": "x"})
        self.changes += made.status_code == 201

    def _follower(self, seen: list[int]) -> Job:
        def follow(client: httpx2.Client) -> None:
            after = {"after": seen[-1]} if seen else {}
            with client.stream("GET", "/api/events", params=after) as response:
                if response.status_code == GONE:
                    seen.append(-1)  # the history checker reports it as a gap
                for line in response.iter_lines() if response.status_code == 200 else ():
                    if line.startswith("id: "):
                        seen.append(int(line.removeprefix("id: ")))
                    if self._ended.is_set():
                        return

        return follow

    @contextmanager
    def running(self) -> Generator["Load"]:
        """Use the nodes until the block ends. Afterwards every kind of client must succeed once more."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
            before = len(self.acknowledged), self.changes, [seen[-1:] for seen in self.readers]
            wait_for(lambda: len(self.acknowledged) > before[0])
            wait_for(lambda: self.changes > before[1])
            wait_for(lambda: all(seen[-1:] != old for seen, old in zip(self.readers, before[2], strict=True)))
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join(20)
