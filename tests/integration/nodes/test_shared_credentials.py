"""Sign-ins across nodes: stored once, encrypted, and refreshed by one node at a time."""

from pathlib import Path

import anyio
import pytest

from integration.store.databases import fetch_rows
from toolcrib.model.errors import ConfigError
from toolcrib.nodes.cluster_secret import ClusterSecret
from toolcrib.store.engine import Store, open_store
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential, Registration
from toolcrib.upstream.shared_credentials import SharedCredentialStore

pytestmark = pytest.mark.anyio

SECRET = ClusterSecret(b"s" * 32)
URL = "https://mcp.example.com/mcp"
CREDENTIAL = OAuthCredential(
    "files", URL, Registration("https://issuer.example.com", "client"), "https://issuer.example.com/token", "hidden"
)


def open_node_credentials(
    store: Store, node: str, folder: Path, secret: ClusterSecret = SECRET
) -> SharedCredentialStore:
    return SharedCredentialStore(store, secret, node, folder / node)


async def test_sign_in_on_one_node_serves_all_and_is_encrypted(postgres_url: str, tmp_path: Path) -> None:
    async with open_store(postgres_url) as store:
        first, second = (
            open_node_credentials(store, "a", tmp_path),
            open_node_credentials(store, "b", tmp_path),
        )
        await first.keep(CREDENTIAL)
        assert await second.credential("files", URL) == CREDENTIAL
        assert all(
            b"hidden" not in bytes(body) for (body,) in fetch_rows(postgres_url, "SELECT body FROM sealed_values")
        )
        with pytest.raises(ConfigError, match="another node secret"):
            await open_node_credentials(store, "c", tmp_path, ClusterSecret(b"o" * 32)).credential("files", URL)
        await second.forget("files")
        assert await first.credential("files", URL) is None


async def test_sign_in_of_a_home_is_shared_when_it_joins_a_cluster(postgres_url: str, tmp_path: Path) -> None:
    alone = CredentialStore(tmp_path / "a")
    await alone.keep(CREDENTIAL)
    async with open_store(postgres_url) as store:
        first, second = (
            open_node_credentials(store, "a", tmp_path),
            open_node_credentials(store, "b", tmp_path),
        )
        assert await first.credential("files", URL) == CREDENTIAL
        assert await second.credential("files", URL) == CREDENTIAL


async def test_one_node_at_a_time_refreshes_the_tokens_of_a_server(postgres_url: str, tmp_path: Path) -> None:
    at_work, most = 0, 0
    async with open_store(postgres_url) as store:

        async def refresh(node: str) -> None:
            nonlocal at_work, most
            credentials = open_node_credentials(store, node, tmp_path)
            async with credentials.renewing("files", 20) as is_mine:
                assert is_mine
                at_work += 1
                most = max(most, at_work)
                await anyio.lowlevel.checkpoint()
                at_work -= 1

        async with anyio.create_task_group() as tasks:
            for node in ("a", "b", "c"):
                tasks.start_soon(refresh, node)
    assert most == 1
