"""Nodes of one cluster: real `toolcrib serve` processes, each with its own home, on one real PostgreSQL.

Not a test itself.

"""

import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import httpx2

from deadlines import stretched
from e2e.shell import Running, Shell
from http_clients import PLAIN
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Source
from toolcrib.web.api_client.api_client import ApiClient

T = TypeVar("T")
READY_SECONDS = 60.0
WAIT_SECONDS = 30.0
UNAVAILABLE = 503
SECRET = "the secret of the nodes under test, long enough"


def wait_for(look: Callable[[], T], seconds: float = WAIT_SECONDS) -> T:
    """Return the first true value of `look`; fail after the deadline, stretched on a busy machine."""
    deadline = time.monotonic() + stretched(seconds)
    while not (found := look()):
        assert time.monotonic() < deadline, f"no result within {seconds:g} s: {found!r}"
        time.sleep(0.05)
    return found


@dataclass
class ClusterNode:
    """One running node."""

    shell: Shell
    process: Running
    messages: list[str] = field(default_factory=list[str])
    ready: JsonObject = field(default_factory=dict[str, Json])

    @property
    def home(self) -> Path:
        """The node's own home."""
        return self.shell.home

    @property
    def url(self) -> str:
        """The URL of the node."""
        return str(self.ready["mcp"]).removesuffix("/mcp")

    @property
    def token(self) -> str:
        """The owner's token of the node."""
        return (self.home / "token").read_text(encoding="ascii").strip()

    @property
    def stderr(self) -> str:
        """What the node has printed to standard error."""
        return "".join(self.messages)

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def api(self, source: Source = "cli") -> ApiClient:
        """Return the owner's API client of this node, for `async with`."""
        return ApiClient(self.url, self.token, source=source)

    def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Send one REST request with the owner's token, or another one."""
        with httpx2.Client(base_url=self.url, verify=PLAIN, timeout=stretched(WAIT_SECONDS)) as client:
            given = {"authorization": f"Bearer {token or self.token}", **(headers or {})}
            return client.request(method, path, json=body, headers=given)

    def call(self, ref: str, arguments: JsonObject, *, token: str | None = None) -> httpx2.Response:
        """Call a tool over REST."""
        return self.request("POST", f"/api/tools/{ref}/call", {"arguments": arguments}, token=token)

    def decided_call(self, ref: str, arguments: JsonObject, *, token: str | None = None) -> httpx2.Response:
        """Call a tool. Repeats the call while the node has no lease, because a busy machine may miss heartbeats."""
        deadline = time.monotonic() + stretched(WAIT_SECONDS)
        while (answer := self.call(ref, arguments, token=token)).status_code == UNAVAILABLE:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)
        return answer

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process of the node."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, like a power cut."""
        self.process.kill()
        self.process.wait(WAIT_SECONDS)

    def stop(self) -> int:
        """Stop the process with SIGTERM and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(stretched(WAIT_SECONDS))


class Cluster:
    """Nodes on one database. `folder` holds their homes; `close` ends them all."""

    def __init__(self, folder: Path, database: str) -> None:
        self.database = database
        self.folder = folder
        self.nodes: list[ClusterNode] = []
        self.secret_file = folder / "node-secret"
        self.secret_file.write_text(SECRET, encoding="ascii")
        self.secret_file.chmod(0o600)

    def start(self, count: int = 2, *flags: str, variables: Mapping[str, str] | None = None) -> list[ClusterNode]:
        """Start nodes at once and return them when all are ready."""
        first = len(self.nodes)
        new = [self.launch(self.shell(first + number), *flags, variables=variables) for number in range(count)]
        for node in new:
            self.await_ready(node)
        return new

    def shell(self, number: int) -> Shell:
        """Return the shell of a new node, with an empty home."""
        folder = self.folder / f"node{number + 1}"
        folder.mkdir()
        return Shell.at(folder)

    def launch(self, shell: Shell, *flags: str, variables: Mapping[str, str] | None = None) -> ClusterNode:
        """Start a node without waiting for it."""
        given = shell.having(**(variables or {}))
        process = given.start(
            "serve", "--json", "--port", "0", "--database", self.database, *self._secret_flags(flags), *flags
        )
        node = ClusterNode(given, process)
        self.nodes.append(node)
        return node

    def _secret_flags(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        return () if "--node-secret-file" in flags else ("--node-secret-file", str(self.secret_file))

    def await_ready(self, node: ClusterNode) -> None:
        """Wait for the ready line, and collect standard error."""
        stdout, stderr = node.process.stdout, node.process.stderr
        assert stdout is not None
        assert stderr is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_collect, args=(stderr, node.messages), daemon=True).start()
        threading.Thread(target=_pass_on, args=(stdout, lines), daemon=True).start()
        line = lines.get(timeout=stretched(READY_SECONDS))
        assert line, node.stderr
        node.ready = json.loads(line)

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
                node.process.terminate()
        for node in self.nodes:
            try:
                node.process.wait(stretched(WAIT_SECONDS))
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()


def _pass_on(stream: IO[str], lines: "queue.Queue[str]") -> None:
    """Pass on the lines of a stream, and an empty one at its end."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


def _collect(stream: IO[str], messages: list[str]) -> None:
    """Collect the lines of a stream until its end."""
    with stream:
        messages.extend(stream)
