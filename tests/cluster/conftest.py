"""Fixtures for tests of several nodes: a real PostgreSQL, and real processes that share it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from cluster.failures import PlayedCluster
from cluster.nodes import Cluster
from integration.store.databases import postgres, postgres_url

__all__ = ["cluster", "postgres", "postgres_url"]


@pytest.fixture
def cluster(postgres_url: str, tmp_path: Path) -> Generator[Cluster]:
    """A cluster without nodes yet; `start` adds some."""
    cluster = Cluster(tmp_path, postgres_url)
    yield cluster
    cluster.close()


@pytest.fixture
def played(postgres_url: str, tmp_path: Path) -> Generator[PlayedCluster]:
    """A cluster of played agents without nodes yet."""
    cluster = PlayedCluster(tmp_path, postgres_url)
    yield cluster
    cluster.close()
