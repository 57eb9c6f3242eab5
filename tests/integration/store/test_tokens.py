"""Named tokens on both databases: the secret is told once, works until it is revoked, and is never kept."""

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


async def test_a_token_is_told_once_and_stands_for_its_principal(store: Store, database: str) -> None:
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


async def test_tokens_work_after_a_restart(store: Store) -> None:
    token, secret = await NamedTokens(store).create("laptop")
    tokens = NamedTokens(store)
    principals = Principals(OWNER_TOKEN, tokens)
    assert principals.authenticate(secret.encode()) is None
    await tokens.refresh()
    credential = principals.authenticate(secret.encode())
    assert credential is not None
    assert credential.principal == Principal("token", "laptop", "ide", "acceptEdits", token_id=token.id)


async def test_a_revoked_token_is_refused_at_once_and_what_is_open_under_it_ends(store: Store) -> None:
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


async def test_a_name_is_free_again_once_its_token_is_revoked(store: Store) -> None:
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


async def test_what_another_crib_revoked_or_made_is_taken_up(store: Store) -> None:
    one, two = NamedTokens(store), NamedTokens(store)
    _, secret = await one.create("laptop")
    await two.refresh()
    seen = Principals(OWNER_TOKEN, two).authenticate(secret.encode())
    assert seen is not None
    assert seen.ended is not None
    await one.revoke("laptop")
    await two.refresh()
    assert seen.ended.is_set()
    assert Principals(OWNER_TOKEN, two).authenticate(secret.encode()) is None


@pytest.mark.parametrize("name", ["", "owner", "Owner", "a b", "a/b", "x" * 101, "ü", "a\n"])
async def test_a_name_that_would_mislead_is_refused(store: Store, name: str) -> None:
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


async def test_a_token_that_may_approve_reaches_approvals_until_it_is_revoked(store: Store) -> None:
    tokens = NamedTokens(store)
    principals = Principals(OWNER_TOKEN, tokens)
    phone, _ = await tokens.create("phone", source="api", may_approve=True)
    script, _ = await tokens.create("script", source="api")
    assert principals.may_reach(phone.principal, "/api/approvals/1")
    assert not principals.may_reach(script.principal, "/api/approvals/1")
    await tokens.revoke("phone")
    assert not principals.may_reach(phone.principal, "/api/approvals/1")
