"""Failures of the database itself: a standby that is promoted, and a disk that is full."""

import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from cluster.failures import CLIENTS, PlayedCluster
from cluster.load import Load
from cluster.nodes import ClusterNode, wait_for
from cluster.postgres_servers import QUICK, OwnDatabase, needs_root
from integration.store.databases import fetch_rows
from long_tests import takes_long
from toolcrib.model.json import loads

pytestmark = pytest.mark.anyio

SYNCHRONOUS = (*QUICK, "synchronous_standby_names=*", "synchronous_commit=remote_apply")


@contextmanager
def pair() -> Generator[tuple[OwnDatabase, OwnDatabase]]:
    """Start a primary, and a standby that has every commit that the primary acknowledges."""
    primary, standby = OwnDatabase(), OwnDatabase()
    try:
        primary.create().start()
        standby.copy_of(primary).start()
        with psycopg.connect(primary.url, autocommit=True) as connection:
            for name, _, value in (option.partition("=") for option in SYNCHRONOUS[-2:]):
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        yield primary, standby
    finally:
        for each in (primary, standby):
            each.close()


def both(primary: OwnDatabase, standby: OwnDatabase) -> str:
    """Return a URL for whichever of two servers accepts writes."""
    hosts = f"{primary.address}:{primary.port},{standby.address}:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


@takes_long
async def test_nodes_continue_on_a_promoted_standby_without_a_lost_call(tmp_path: Path) -> None:
    with pair() as (primary, standby):
        played = PlayedCluster(tmp_path, standby.url)
        try:
            nodes = played.start(2, variables={"DATABASE": both(primary, standby)})
            load = Load(nodes, CLIENTS)
            with load.running():
                wait_for(lambda: len(load.acknowledged) > CLIENTS)
                primary.kill()
                assert nodes[0].call("counter/slow", {"marker": "between", "seconds": 0}).status_code == 503
                standby.promote()
                before = len(load.acknowledged)
                wait_for(lambda: len(load.acknowledged) > before + CLIENTS, 60)
            assert "between" not in played.calls
            played.settle()
            assert await played.findings(load) == []
        finally:
            played.close()


@contextmanager
def small_disk(megabytes: int) -> Generator[Path]:
    """Mount a file system of this size."""
    folder = tempfile.mkdtemp(prefix="toolcrib-disk-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield Path(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        Path(folder).rmdir()


def fill(folder: Path) -> Path:
    """Use all remaining space, and return the file that occupies it."""
    file = folder / "ballast"
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 65_536)
    with suppress(OSError), file.open("ab", buffering=0) as ballast:
        while True:
            ballast.write(b"x")
    return file


def is_denied(node: ClusterNode) -> bool:
    """Return whether a node refuses a call because it cannot be recorded."""
    answer = node.call("counter/slow", {"marker": "full", "seconds": 0})
    assert answer.status_code in (200, 503), answer.text
    return answer.status_code == 503


def recorded(played: PlayedCluster) -> set[str]:
    """Return the markers of all calls whose intent is in the audit log."""
    bodies = [
        loads(bytes(body)) for (body,) in fetch_rows(played.database, "SELECT body FROM audit WHERE phase = 'intent'")
    ]
    return {body["arguments"]["marker"] for body in bodies if body["tool"] == "slow"}


@needs_root
@takes_long
async def test_full_disk_of_the_database_denies_calls_and_loses_none(tmp_path: Path) -> None:
    with small_disk(96) as folder:
        database = OwnDatabase(folder).create("--wal-segsize=1").start((*QUICK, "max_wal_size=8MB", "min_wal_size=2MB"))
        played = PlayedCluster(tmp_path, database.url)
        try:
            nodes = played.start(2)
            load = Load(nodes, CLIENTS)
            with load.running():
                wait_for(lambda: len(load.acknowledged) > CLIENTS)
                ballast = fill(folder)
                wait_for(lambda: all(is_denied(node) for node in nodes), 120)
                ballast.unlink()
                if (
                    not database.runs
                ):  # PostgreSQL ends if it cannot write its log; a service manager would start it again
                    database.start()
                before = len(load.acknowledged)
                wait_for(lambda: len(load.acknowledged) > before + CLIENTS, 120)
            played.settle()
            assert set(played.calls) <= recorded(played)
            assert await played.findings(load) == []
        finally:
            played.close()
            database.close()
