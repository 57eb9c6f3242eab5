"""Tampering with stored audit records is found."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from sqlalchemy import update

from integration.gate.audit.calls import make_calls
from integration.store.databases import engine_of, fetch_rows, run
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.verify import Verification
from toolcrib.model.errors import ConfigError
from toolcrib.store.audit import Filters
from toolcrib.store.engine import open_store
from toolcrib.store.schema import audit as table

pytestmark = pytest.mark.anyio

Tamper = Callable[[str], None]


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return tmp_path / "audit.head"


async def record_calls(database: str, head: Path, calls: int = 5) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        await make_calls(audit, calls)


async def record_and_verify(database: str, head: Path, more: int = 0) -> Verification:
    async with open_store(database) as store, Audit(store, head) as audit:
        await make_calls(audit, more)
        return await audit.verify()


def kinds(verification: Verification) -> set[tuple[str, int | None]]:
    return {(finding.kind, finding.record) for finding in verification.findings}


def bodies(database: str) -> dict[int, bytes]:
    return {number: bytes(body) for number, body in fetch_rows(database, "SELECT id, body FROM audit")}


def replace(database: str, number: int, body: bytes, digest: str | None = None) -> None:
    changed = update(table).where(table.c.id == number).values(body=body)
    with engine_of(database).begin() as connection:
        connection.execute(changed if digest is None else changed.values(hash=digest))


def hashed(body: bytes) -> str:
    return hashlib.sha256(orjson.loads(body)["prev"].encode() + body).hexdigest()


def edit(database: str) -> None:
    replace(database, 4, bodies(database)[4].replace(b"forecast", b"forecasd"))


def edit_and_hash_again(database: str) -> None:
    body = bodies(database)[4].replace(b"forecast", b"forecasd")
    replace(database, 4, body, hashed(body))


def rewrite_everything_after(database: str) -> None:
    prev = ""
    for number, body in sorted(bodies(database).items()):
        record = orjson.loads(body)
        if number == 4:
            record["decision"] = "deny"
        record["prev"] = prev or record["prev"]
        forged = orjson.dumps(record)
        prev = hashed(forged)
        replace(database, number, forged, prev)
    run(database, "UPDATE audit SET decision = 'deny' WHERE id = 4")


def swap(database: str) -> None:
    run(
        database,
        "UPDATE audit SET id = 1000 WHERE id = 4",
        "UPDATE audit SET id = 4 WHERE id = 5",
        "UPDATE audit SET id = 5 WHERE id = 1000",
    )


def copy(database: str) -> None:
    replace(database, 4, bodies(database)[3], fetch_rows(database, "SELECT hash FROM audit WHERE id = 3")[0][0])


def scramble(database: str) -> None:
    replace(database, 4, b"\xff not JSON")


def empty_object(database: str) -> None:
    replace(database, 4, b"{}", hashlib.sha256(b"{}").hexdigest())


def sql(*statements: str) -> Tamper:
    return lambda database: run(database, *statements)


CUT_ALL = sql("DELETE FROM audit")
TAMPERED: list[tuple[str, Tamper, set[tuple[str, int | None]]]] = [
    ("edited", edit, {("edited", 4), ("columns", 4)}),
    ("edited and hashed again", edit_and_hash_again, {("unlinked", 5), ("columns", 4)}),
    ("all later records rewritten", rewrite_everything_after, {("head", 10), ("head", None)}),
    ("hash changed", sql(f"UPDATE audit SET hash = '{'a' * 64}' WHERE id = 4"), {("edited", 4), ("unlinked", 5)}),
    ("body scrambled", scramble, {("edited", 4)}),
    ("body emptied", empty_object, {("edited", 4)}),
    ("two swapped", swap, {("moved", 4), ("moved", 5), ("unlinked", 6)}),
    ("one copied over another", copy, {("moved", 4), ("unlinked", 5)}),
    ("one deleted", sql("DELETE FROM audit WHERE id = 4"), {("missing", 5)}),
    ("three deleted", sql("DELETE FROM audit WHERE id IN (4, 5, 6)"), {("missing", 7)}),
    ("first deleted", sql("DELETE FROM audit WHERE id = 1"), {("missing", 2)}),
    ("tail cut", sql("DELETE FROM audit WHERE id > 7"), {("cut", 10), ("head", None)}),
    ("all cut", CUT_ALL, {("cut", 10), ("head", None)}),
    ("column changed", sql("UPDATE audit SET server = 'x' WHERE id = 4"), {("columns", 4)}),
    ("column emptied", sql("UPDATE audit SET door = NULL WHERE id = 4"), {("columns", 4)}),
    ("column filled", sql("UPDATE audit SET agent = 'x' WHERE id = 4"), {("columns", 4)}),
    ("time changed", sql("UPDATE audit SET at = '2000' WHERE id = 4"), {("columns", 4)}),
]


@pytest.mark.parametrize(("tamper", "expected"), [case[1:] for case in TAMPERED], ids=[case[0] for case in TAMPERED])
async def test_tampering_is_found_by_the_running_crib_and_after_a_restart(
    database: str, head: Path, tamper: Tamper, expected: set[tuple[str, int | None]]
) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        await make_calls(audit, 5)
        assert (await audit.verify()).ok
        tamper(database)
        running = await audit.verify()
        assert not running.ok
        assert {found for found in expected if found != ("head", None)} <= kinds(running)
    restarted = await record_and_verify(database, head)
    lasting = expected - {("cut", 10), ("head", 10)}
    assert lasting <= kinds(restarted)
    assert not restarted.ok


async def test_cut_tail_is_still_found_after_the_chain_has_grown(database: str, head: Path) -> None:
    await record_calls(database, head)
    run(database, "DELETE FROM audit WHERE id > 7")
    for times in range(1, 4):
        verification = await record_and_verify(database, head, more=4)
        assert [finding.message for finding in verification.findings if "8 to 10 are missing" in finding.message]
        assert verification.records == 7 + 8 * times


async def test_head_behind_the_database_is_valid(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        await make_calls(audit, 2)
        earlier = (await audit.find(Filters()))[2]
    write(head, f"{earlier['id']:020d} {earlier['hash']}\n")
    assert (await record_and_verify(database, head)).ok


async def test_missing_unreadable_or_foreign_head_is_found(database: str, head: Path) -> None:
    await record_calls(database, head)
    for damage in (remove, empty, garble, foreign, pipe, linked):
        async with open_store(database) as store, Audit(store, head) as audit:
            damage(head)
            assert {finding.kind for finding in (await audit.verify()).findings} == {"head"}, damage
        remove(head)
        write_head(database, head)
        assert (await record_and_verify(database, head)).ok


CHANGED = ["no head\n", f"{3:020d} {'a' * 64}\n", f"{99:020d} {'a' * 64}\n", f"{'9' * 20} {'a' * 64}\n", "x"]


@pytest.mark.parametrize("text", CHANGED, ids=range(len(CHANGED)))
async def test_head_changed_before_the_start_is_a_lasting_finding(database: str, head: Path, text: str) -> None:
    await record_calls(database, head)
    write(head, text)
    for _ in range(2):
        verification = await record_and_verify(database, head, more=1)
        assert "head" in {finding.kind for finding in verification.findings}


async def test_head_removed_before_the_start_is_a_lasting_finding(sqlite_url: str, head: Path) -> None:
    await record_calls(sqlite_url, head)
    remove(head)
    for _ in range(2):
        verification = await record_and_verify(sqlite_url, head, more=1)
        assert [finding.kind for finding in verification.findings] == ["head"]
        assert "missing at record 10" in verification.findings[0].message


async def test_new_crib_continues_a_shared_chain(postgres_url: str, tmp_path: Path) -> None:
    await record_calls(postgres_url, tmp_path / "one.head")
    assert (await record_and_verify(postgres_url, tmp_path / "two.head", more=1)).ok
    assert (await record_and_verify(postgres_url, tmp_path / "one.head", more=1)).ok


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    write(path, "")


def garble(path: Path) -> None:
    write(path, "no head\n")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def foreign(path: Path) -> None:
    write(path, f"{3:020d} {'a' * 64}\n")


def write_head(database: str, head: Path) -> None:
    number, digest = fetch_rows(database, "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1")[0]
    write(head, f"{number:020d} {digest}\n")


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


async def test_symlink_as_head_is_refused(sqlite_url: str, head: Path, tmp_path: Path) -> None:
    link(head, tmp_path / "elsewhere")
    async with open_store(sqlite_url) as store:
        with pytest.raises(ConfigError) as raised:
            async with Audit(store, head):
                pass
    assert raised.value.code == "file.unsafe"


async def test_empty_chain_is_valid(database: str, head: Path) -> None:
    verification = await record_and_verify(database, head)
    shape = verification.to_json()
    assert "not signed" in shape.pop("note")
    assert shape == {"ok": True, "records": 0, "findings": [], "signed": False, "anchors": 0}


async def test_chain_of_several_pages_is_valid(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        waiting = [audit.record({"phase": "intent", "number": number}) for number in range(2500)]
        assert await waiting[-1] == 2500
    verification = await record_and_verify(database, head)
    assert (verification.ok, verification.records) == (True, 2500)


async def test_findings_name_the_record_and_are_limited(database: str, head: Path) -> None:
    await record_calls(database, head, calls=100)
    run(database, "UPDATE audit SET server = 'x'")
    verification = await record_and_verify(database, head)
    assert len(verification.findings) == 100
    first = verification.findings[0].to_json()
    assert first == {
        "code": "audit.broken",
        "kind": "columns",
        "message": "Columns of record 1 differ from its content: server.",
        "record": 1,
    }


async def test_damaged_records_are_listed_as_damaged(database: str, head: Path) -> None:
    await record_calls(database, head, calls=2)
    scramble(database)
    async with open_store(database) as store, Audit(store, head) as audit:
        found = await audit.find(Filters())
    assert [record["id"] for record in found] == [4, 3, 2, 1]
    assert found[0]["damaged"] is True


async def test_value_of_the_wrong_type_is_a_finding(sqlite_url: str, head: Path) -> None:
    await record_calls(sqlite_url, head)
    run(
        sqlite_url,
        "UPDATE audit SET body = 'text' WHERE id = 2",
        "UPDATE audit SET body = 7 WHERE id = 3",
        "UPDATE audit SET hash = x'00ff' WHERE id = 5",
        "UPDATE audit SET tool = x'00ff' WHERE id = 7",
    )
    verification = await record_and_verify(sqlite_url, head)
    assert {("edited", 2), ("edited", 3), ("edited", 5), ("columns", 7)} <= kinds(verification)


async def test_undecodable_text_is_a_finding(sqlite_url: str, head: Path) -> None:
    await record_calls(sqlite_url, head)
    run(sqlite_url, "UPDATE audit SET tool = CAST(x'ff' AS TEXT) WHERE id = 7")
    assert "unreadable" in {finding.kind for finding in (await record_and_verify(sqlite_url, head)).findings}
