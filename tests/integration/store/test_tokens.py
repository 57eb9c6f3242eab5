"""Named tokens on both databases: shown once, valid until revoked, stored only as a digest."""

import hashlib
from collections.abc import AsyncGenerator

import anyio
import pytest

from integration.store.databases import fetch_rows
from toolcrib.gate.principals import NamedTokens, Principals
from toolcrib.model.errors import Conflict, InvalidRequest, NotFound
from toolcrib.model.principals import Principal
from toolcrib.store.engine import Store, open_store

pytestmark = pytest.mark.anyio

OWNER_TOKEN = "o" * 43


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Store]:
    async with open_store(database) as opened:
        yield opened


async def test_created_token_authenticates_its_principal_and_only_its_digest_is_stored(
    store: Store, database: str
) -> None:
    tokens = NamedTokens(store)
    token, secret = await tokens.create("laptop", agent="reviewer", source="api", mode="plan", may_approve=True)
    assert secret.startswith("tcb_")
    assert len(secret) >= 4 + 43
    credential = Principals(OWNER_TOKEN, tokens).authenticate(secret.encode())
    assert credential is not None
    assert credential.principal == Principal("token", "laptop", "api", "plan", "reviewer", token_id=token.id)
    (row,) = fetch_rows(database, "SELECT * FROM tokens")
    assert secret not in repr(row)
    assert secret.removeprefix("tcb_") not in repr(row)
    assert hashlib.sha256(secret.encode()).hexdigest() in repr(row)
    assert "digest" not in token.to_json()
    assert token.digest.hex() not in repr(token.to_json())


async def test_tokens_are_valid_after_a_restart(store: Store) -> None:
    token, secret = await NamedTokens(store).create("laptop")
    tokens = NamedTokens(store)
    principals = Principals(OWNER_TOKEN, tokens)
    assert principals.authenticate(secret.encode()) is None
    await tokens.refresh()
    credential = principals.authenticate(secret.encode())
    assert credential is not None
    assert credential.principal == Principal("token", "laptop", "ide", "acceptEdits", token_id=token.id)


async def test_revoked_token_is_refused_and_ends_its_open_connections(store: Store) -> None:
    ended: list[Principal] = []
    tokens = NamedTokens(store)
    tokens.listen(ended.append)
    principals = Principals(OWNER_TOKEN, tokens)
    token, secret = await tokens.create("laptop")
    _, other = await tokens.create("desktop")
    credential = principals.authenticate(secret.encode())
    assert credential is not None
    assert credential.ended is not None
    assert not credential.ended.is_set()
    await tokens.revoke("laptop")
    with anyio.fail_after(5):
        await credential.ended.wait()
    assert ended == [token.principal]
    assert principals.authenticate(secret.encode()) is None
    assert principals.authenticate(other.encode()) is not None
    again = NamedTokens(store)
    await again.refresh()
    assert Principals(OWNER_TOKEN, again).authenticate(secret.encode()) is None
    with pytest.raises(NotFound):
        await tokens.revoke("laptop")


async def test_name_of_a_revoked_token_can_be_reused(store: Store) -> None:
    tokens = NamedTokens(store)
    _, old = await tokens.create("laptop")
    with pytest.raises(Conflict) as raised:
        await tokens.create("laptop")
    assert raised.value.code == "token.exists"
    await tokens.revoke("laptop")
    _, new = await tokens.create("laptop")
    principals = Principals(OWNER_TOKEN, tokens)
    assert principals.authenticate(old.encode()) is None
    assert principals.authenticate(new.encode()) is not None
    assert [(token.name, token.revoked_at) for token in await tokens.list()] == [("laptop", None)]


async def test_revocation_by_another_crib_is_noticed(store: Store) -> None:
    one, two = NamedTokens(store), NamedTokens(store)
    _, secret = await one.create("laptop")
    await two.refresh()
    credential = Principals(OWNER_TOKEN, two).authenticate(secret.encode())
    assert credential is not None
    assert credential.ended is not None
    await one.revoke("laptop")
    await two.refresh()
    assert credential.ended.is_set()
    assert Principals(OWNER_TOKEN, two).authenticate(secret.encode()) is None


@pytest.mark.parametrize("name", ["", "owner", "Owner", "a b", "a/b", "x" * 101, "ü", "a\n"])
async def test_misleading_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await NamedTokens(store).create(name)
    assert raised.value.code == "token.name"


async def test_revoked_tokens_stay_listed(store: Store) -> None:
    tokens = NamedTokens(store)
    await tokens.create("one")
    await tokens.create("two", source="cli")
    await tokens.revoke("one")
    shapes = [token.to_json() for token in await tokens.list()]
    assert [("revokedAt" in shape, shape["name"], shape["mode"]) for shape in shapes] == [
        (True, "one", "acceptEdits"),
        (False, "two", "default"),
    ]


async def test_token_with_approval_permission_reaches_approvals_until_revoked(store: Store) -> None:
    tokens = NamedTokens(store)
    principals = Principals(OWNER_TOKEN, tokens)
    phone, _ = await tokens.create("phone", source="api", may_approve=True)
    script, _ = await tokens.create("script", source="api")
    assert principals.may_reach(phone.principal, "/api/approvals/1")
    assert not principals.may_reach(script.principal, "/api/approvals/1")
    await tokens.revoke("phone")
    assert not principals.may_reach(phone.principal, "/api/approvals/1")
