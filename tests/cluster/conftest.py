"""Fixtures for tests of several nodes: a real PostgreSQL, and real processes that share it."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from cluster.failures import PlayedCluster
from cluster.nodes import Cluster, ClusterNode
from integration.store.databases import Server, new_schema, postgres, postgres_url

__all__ = ["cluster", "pair", "postgres", "postgres_url"]

TESTS = Path(__file__).parents[1]
APPROVAL_ADDRESS = "https://approve.example"
SHIFTS = {
    "command": sys.executable,
    "args": ["-S", "-m", "upstreams.changing_tools"],
    "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
}


@pytest.fixture
def cluster(postgres_url: str, tmp_path: Path) -> Generator[Cluster]:
    """Return a cluster without nodes; `start` adds them."""
    cluster = Cluster(tmp_path, postgres_url)
    yield cluster
    cluster.close()


@pytest.fixture
def played(postgres_url: str, tmp_path: Path) -> Generator[PlayedCluster]:
    """Return a cluster of scripted agents without nodes."""
    cluster = PlayedCluster(tmp_path, postgres_url)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def pair(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[ClusterNode, ClusterNode]]:
    """Start two nodes that several tests share. Each runs a process of the server `changing_tools`."""
    cluster = Cluster(tmp_path_factory.mktemp("pair"), new_schema(postgres))
    shells = [cluster.shell(number) for number in range(2)]
    for shell in shells:
        (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": {"changing_tools": SHIFTS}}), encoding="utf-8")
    variables = {"TOOLCRIB_APPROVAL_ADDRESS": APPROVAL_ADDRESS}
    first, second = [cluster.launch(shell, variables=variables) for shell in shells]
    for node in (first, second):
        cluster.await_ready(node)
    yield first, second
    cluster.close()
