"""TLS: between clients and nodes, between nodes, and between nodes and the database."""

import asyncio
import json
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx2
import psycopg
import pytest

from cluster.certificates import write_certificate
from cluster.failures import PlayedCluster
from cluster.nodes import ClusterNode, wait_for
from cluster.postgres_servers import OwnDatabase, free_port
from http_clients import PLAIN
from long_tests import takes_long


@contextmanager
def encrypted(database: OwnDatabase, certificate: Path) -> Generator[str]:
    """Offer TLS in front of a database, because the wheel's PostgreSQL has none. Yields its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            assert await reader.readexactly(8) == b"\0\0\0\x08\x04\xd2\x16\x2f", "Only TLS is accepted."
            writer.write(b"S")
            await writer.start_tls(context)
            there = await asyncio.open_connection(database.address, database.port)
            await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"postgresql://postgres@127.0.0.1:{server.sockets[0].getsockname()[1]}/postgres?gssencmode=disable"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def start(played: PlayedCluster, certificate: Path) -> ClusterNode:
    """Start a node that other machines can reach over TLS."""
    flags = ("--host", "0.0.0.0", "--port", str(free_port()), "--tls-cert", str(certificate))
    secret = ("--tls-key", str(certificate), "--node-secret-file", str(played.secret_file))
    node = played.launch(played.shell(len(played.nodes)), *flags, *secret)
    played.await_ready(node)
    return node


@takes_long
def test_clients_nodes_and_the_database_use_tls(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "own.pem", "127.0.0.1")
    other = write_certificate(tmp_path / "other.pem", "127.0.0.1")
    database = OwnDatabase().create().start()
    with encrypted(database, certificate) as address:
        secured = f"{address}&sslmode=verify-full&sslrootcert="
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            psycopg.connect(secured + str(other))
        played = PlayedCluster(tmp_path, secured + str(certificate))
        try:
            [seed] = played.start(1, "--node-secret-file", str(played.secret_file))
            made = seed.request("POST", "/api/tokens", {"name": "laptop", "source": "api"})
            assert made.status_code == 201, made.text
            secret = made.json()["secret"]
            first, second, stranger = (start(played, each) for each in (certificate, certificate, other))

            trusting = ssl.create_default_context(cafile=str(certificate))
            headers = {"authorization": f"Bearer {secret}"}
            for node in (first, second):
                assert node.url.startswith("https://127.0.0.1:")
                assert httpx2.get(f"{node.url}/api/tools", headers=headers, verify=trusting).status_code == 200
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                httpx2.get(f"{stranger.url}/api/tools", headers=headers, verify=trusting)
            with pytest.raises(httpx2.TransportError):
                httpx2.get(first.url.replace("https:", "http:"), headers=headers, verify=PLAIN)

            session = played.begin_turn(at_home(first), "hang")
            wait_for(lambda: played.owner(session)[1] == "running")
            path = f"/api/sessions/{session}/interrupt"
            refused = at_home(stranger).request("POST", path)
            assert (refused.status_code, refused.json()["code"]) == (503, "node.unreachable")
            assert at_home(second).request("POST", path).status_code == 200
            wait_for(lambda: played.owner(session)[1] == "idle")
        finally:
            played.close()
            database.close()


def at_home(node: ClusterNode) -> ClusterNode:
    """Return a node with the loopback address that its owner uses."""
    url = json.loads((node.home / "run.json").read_text(encoding="utf-8"))["url"]
    return replace(node, ready={"mcp": f"{url}/mcp"})
