"""A cluster of scripted agents for failure tests. Not a test itself."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psycopg.conninfo

import toolcrib
from cluster.load import Load
from cluster.nodes import Cluster, ClusterNode, wait_for
from e2e.shell import Shell
from integration.store.databases import fetch_rows
from toolcrib.model.json import JsonObject, loads
from toolcrib.store.engine import open_store
from toolcrib.testing.history import HistoryFinding, check_history

TESTS = Path(__file__).parents[1]
PATHS = ":".join(map(str, (TESTS, TESTS.parent, Path(toolcrib.__file__).parents[1])))
"""The import path of nodes: the tests, and the same source tree as the tests."""
CLIENTS = 20
"""The number of clients during every failure."""
COUNTER = '''
import anyio
from pathlib import Path
from toolcrib import tool

@tool(read_only=True)
async def slow(marker: str, seconds: float) -> str:
    """Wait."""
    with Path({calls!r}).open("a", encoding="utf-8") as file:
        file.write(marker + chr(10))
    await anyio.sleep(seconds)
    return marker
'''


class PlayedCluster(Cluster):
    """Nodes with scripted agents and a tool `counter/slow` that records each of its runs."""

    @property
    def calls(self) -> list[str]:
        """The markers of all calls that reached the tool."""
        file = self.folder / "calls"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def launch(
        self,
        shell: Shell,
        *flags: str,
        variables: Mapping[str, str] | None = None,
        kind: type[ClusterNode] = ClusterNode,
        within: Sequence[str] = (),
    ) -> ClusterNode:
        """Start a node of scripted agents without waiting for it. `within` is a command prefix for its program."""
        tools = shell.home / "tools"
        tools.mkdir(parents=True, exist_ok=True)
        (tools / "counter.py").write_text(COUNTER.format(calls=str(self.folder / "calls")), encoding="utf-8")
        agents = shell.folder / "agents"
        agents.mkdir(exist_ok=True)
        given = shell.having(AGENTS=str(agents), PYTHONPATH=PATHS, TOOLCRIB_HOME=str(shell.home), **(variables or {}))
        program = [*within, sys.executable, str(TESTS / "cluster" / "scripted_node.py")]
        database = (variables or {}).get("DATABASE", self.database)
        process = subprocess.Popen(
            [*program, "serve", "--json", "--port", "0", "--database", database, *flags],
            cwd=shell.folder,
            env=given.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        node = kind(given, process)
        self.nodes.append(node)
        return node

    def relaunch(self, node: ClusterNode) -> ClusterNode:
        """Start an ended node again, with its home, and return it when it is ready."""
        again = self.launch(node.shell)
        self.await_ready(again)
        return again

    def begin_turn(self, node: ClusterNode, script: str = "slow") -> str:
        """Start a session whose turn makes a call that never ends, and return the session's id."""
        before = len(self.calls)
        body: JsonObject = {"mode": "bypassPermissions", "cwd": str(self.folder)}
        created = node.request("POST", "/api/sessions", body)
        assert created.status_code < 300, created.text
        session = str(created.json()["id"])
        sent = node.request("POST", f"/api/sessions/{session}/messages", {"content": f"[[script:{script}]]"})
        assert sent.status_code < 300, sent.text
        if script == "slow":
            wait_for(lambda: len(self.calls) > before)
        return session

    def owner(self, session: str) -> tuple[str, str, int]:
        """Return the node, the state and the epoch of a session."""
        [row] = fetch_rows(self.database, f"SELECT crib, state, epoch FROM sessions WHERE id = '{session}'")
        return row[0], row[1], row[2]

    def await_continued(self, session: str) -> float:
        """Wait until another node has ended the turn of a session. Returns the seconds until it began."""
        started = time.monotonic()
        wait_for(lambda: self.owner(session)[2] > 1, 60)
        seconds = time.monotonic() - started
        wait_for(lambda: self.owner(session)[1] == "idle", 60)
        return seconds

    def settle(self) -> None:
        """Wait until every call has an outcome. Calls that ended without the database get theirs when it is back."""
        wait_for(lambda: not self._open_calls(), 60)

    def _open_calls(self) -> set[str]:
        bodies = [loads(bytes(body)) for (body,) in fetch_rows(self.database, "SELECT body FROM audit")]
        begun, ended = ({each["call"] for each in bodies if each["phase"] == phase} for phase in ("intent", "outcome"))
        return begun - ended

    async def findings(self, load: Load | None = None) -> list[HistoryFinding]:
        """Return the violations in the history and in the chains of the audit log."""
        verified = next(node for node in self.nodes if node.is_running).request("GET", "/api/audit/verify").json()
        broken = [] if verified["ok"] else [HistoryFinding("audit.chains", str(verified))]
        async with open_store(self.database) as store:
            if load is None:
                return [*broken, *await check_history(store)]
            return [*broken, *await check_history(store, acknowledged=load.acknowledged, readers=load.readers)]


def agents(node: ClusterNode) -> set[int]:
    """Return the ids of the running agent processes that this node started."""
    folder = node.shell.folder / "agents"
    return {int(file.name) for file in folder.iterdir() if runs(int(file.name))}


def runs(pid: int) -> bool:
    """Return whether a process runs and is not a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def unknown_calls(cluster: PlayedCluster) -> int:
    """Return the number of outcomes that are unknown."""
    return sum(
        b'"outcome":"unknown"' in bytes(body) for (body,) in fetch_rows(cluster.database, "SELECT body FROM audit")
    )


class Partition:
    """A way to the database that can be cut: packets are neither delivered nor refused, as if a cable were pulled."""

    def __init__(self, database: str) -> None:
        self._target = psycopg.conninfo.conninfo_to_dict(database)
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the database through this way."""
        given = {**self._target, "host": "127.0.0.1", "port": str(self._port), "sslmode": "disable"}
        pairs = "&".join(f"{key}={_quoted(value)}" for key, value in given.items() if key not in ("dbname", "user"))
        return f"postgresql://{given.get('user', 'postgres')}@/{given.get('dbname', 'postgres')}?{pairs}"

    def cut(self) -> None:
        """Stop delivering packets."""
        self._flowing.clear()

    def heal(self) -> None:
        """Deliver packets again, the delayed ones first."""
        self._flowing.set()

    def close(self) -> None:
        """Close the listener."""
        self.heal()
        self._listener.close()

    def _accept(self) -> None:
        for near in _connections(self._listener):
            far = socket.socket(socket.AF_UNIX)
            far.connect(f"{self._target['host']}/.s.PGSQL.{self._target.get('port') or 5432}")
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(65536):
                self._flowing.wait()
                sink.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()


def _connections(listener: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            yield listener.accept()[0]
        except OSError:
            return


def _quoted(value: object) -> str:
    return str(value).replace("%", "%25").replace("=", "%3D").replace(" ", "%20").replace("&", "%26")
