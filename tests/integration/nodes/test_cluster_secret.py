"""The node secret: sealed values open only for their purpose, and a node with another secret is refused."""

from pathlib import Path

import pytest

from toolcrib.model.errors import ConfigError
from toolcrib.nodes.cluster_secret import ClusterSecret, check_secret
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

SECRET = ClusterSecret(b"s" * 32)
OTHER = ClusterSecret(b"o" * 32)


def test_sealed_value_opens_only_with_its_secret_purpose_and_binding() -> None:
    sealed = SECRET.seal("credentials", b"token", "server a")
    assert b"token" not in sealed
    assert SECRET.open("credentials", sealed, "server a") == b"token"
    for secret, purpose, bound_to in (
        (OTHER, "credentials", "server a"),
        (SECRET, "sessions", "server a"),
        (SECRET, "credentials", "server b"),
    ):
        with pytest.raises(ConfigError) as refused:
            secret.open(purpose, sealed, bound_to)
        assert refused.value.code == "node.secret"


def test_short_and_missing_secrets_are_refused(tmp_path: Path) -> None:
    for content in (None, "short"):
        if content is not None:
            (tmp_path / "secret").write_text(content, encoding="ascii")
            (tmp_path / "secret").chmod(0o600)
        with pytest.raises(ConfigError):
            ClusterSecret.read(tmp_path / "secret")


async def test_node_with_another_secret_or_none_is_refused_once_the_cluster_has_one(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await check_secret(store, None, is_node=True)
        await check_secret(store, SECRET, is_node=True)
        await check_secret(store, SECRET, is_node=True)
        await check_secret(store, None, is_node=False)
        for secret in (OTHER, None):
            with pytest.raises(ConfigError) as refused:
                await check_secret(store, secret, is_node=True)
            assert refused.value.code == "node.secret"
