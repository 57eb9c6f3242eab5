"""Signatures and anchors, which reveal that the whole chain was rewritten."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import anyio
import orjson
import pytest

from e2e.shell import Shell
from integration.gate.audit.calls import make_calls
from integration.gate.audit.test_verify import record_calls, rewrite_everything_after
from integration.store.databases import fetch_rows, run
from integration.web.crib import Running, running_crib
from toolcrib.base.settings import Settings
from toolcrib.gate.audit.anchors import Anchor
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.signing import read_signed
from toolcrib.gate.audit.verify import Verification
from toolcrib.host import Crib
from toolcrib.host.audit_key import open_key
from toolcrib.model.errors import InvalidRequest, Unavailable
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio


class FakeKeyring:
    """A keyring in memory that outlives cribs."""

    def __init__(self) -> None:
        self.passwords: dict[tuple[str, str], str] = {}

    def get_password(self, service_name: str, username: str) -> str | None:
        return self.passwords.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        self.passwords[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        del self.passwords[service_name, username]


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    fake = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", fake)  # type: ignore[arg-type]
    return fake


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Running]:
    """Run a crib on a free port."""
    async with running_crib(tmp_path / "home") as crib:
        yield crib


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return tmp_path / "audit.head"


async def record_and_verify(url: str, head: Path, calls: int = 0, anchors: list[Anchor] | None = None) -> Verification:
    """Open a chain with the key of the keyring, record calls, and verify it."""
    async with open_store(url) as store, Audit(store, head) as audit:
        await audit.sign_with(await open_key(head.parent))
        await make_calls(audit, calls)
        await audit.remember_head()
        return await audit.verify(anchors or [])


def forge_head(url: str, head: Path) -> None:
    """Write a head that fits the current records, as a program with access to the home could."""
    (number, digest) = fetch_rows(url, "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1")[0]
    head.write_bytes(b"%020d %b\n" % (number, str(digest).encode()))


async def test_rewritten_chain_with_a_forged_head_is_found_by_its_signature(
    sqlite_url: str, head: Path, keyring: FakeKeyring
) -> None:
    assert (await record_and_verify(sqlite_url, head, 5)).ok
    assert (await record_and_verify(sqlite_url, head, 1)).ok
    rewrite_everything_after(sqlite_url)
    forge_head(sqlite_url, head)
    for _ in range(2):
        verification = await record_and_verify(sqlite_url, head, 1)
        assert "signed" in verification.findings[0].message, "the finding lasts"


async def test_unsigned_chain_hides_a_rewrite_and_verify_notes_it(
    sqlite_url: str, head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)  # type: ignore[arg-type]
    assert (await record_and_verify(sqlite_url, head, 5)).signed is False
    rewrite_everything_after(sqlite_url)
    forge_head(sqlite_url, head)
    verification = await record_and_verify(sqlite_url, head)
    assert verification.ok
    assert "replace the whole chain" in verification.to_json()["note"]


async def test_restored_old_signature_is_found(sqlite_url: str, head: Path, keyring: FakeKeyring) -> None:
    await record_and_verify(sqlite_url, head, 2)
    signature = head.with_name("audit.signature")
    old = {path: path.read_bytes() for path in (signature, head)}
    await record_and_verify(sqlite_url, head, 3)
    run(sqlite_url, "DELETE FROM audit WHERE id > 4")
    for path, content in old.items():
        path.write_bytes(content)
    verification = await record_and_verify(sqlite_url, head)
    assert [each.message.partition(" ")[2] for each in verification.findings if "signed" in each.message] == [
        "Record 10 was signed and is missing: the chain ends at 4."
    ]


@pytest.mark.parametrize("content", [None, b"", b"0" * 151, b"\xff" * 151])
async def test_missing_or_invalid_signature_is_found(
    sqlite_url: str, head: Path, keyring: FakeKeyring, content: bytes | None
) -> None:
    await record_and_verify(sqlite_url, head, 2)
    signature = head.with_name("audit.signature")
    if content is None:
        signature.unlink()
    else:
        signature.write_bytes(content)
    assert "missing, or not signed" in (await record_and_verify(sqlite_url, head)).findings[0].message


async def test_failing_keyring_leaves_the_audit_unsigned(
    sqlite_url: str, head: Path, keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise RuntimeError("locked")

    monkeypatch.setattr(FakeKeyring, "get_password", refuse)
    verification = await record_and_verify(sqlite_url, head, 2)
    assert (verification.ok, verification.signed) == (True, False)


async def test_anchor_reveals_a_rewritten_or_cut_chain(sqlite_url: str, head: Path) -> None:
    await record_calls(sqlite_url, head)
    async with open_store(sqlite_url) as store, Audit(store, head) as audit:
        anchor = await audit.anchor("home")
        await make_calls(audit, 2)
        checked = await audit.verify([anchor])
        assert (checked.ok, checked.anchors) == (True, 1)
    rewrite_everything_after(sqlite_url)
    forge_head(sqlite_url, head)
    async with open_store(sqlite_url) as store, Audit(store, head) as audit:
        assert (await audit.verify()).ok
        [finding] = (await audit.verify([anchor])).findings
        assert (finding.kind, finding.record) == ("anchor", 10)
    run(sqlite_url, "DELETE FROM audit WHERE id > 3")
    forge_head(sqlite_url, head)
    async with open_store(sqlite_url) as store, Audit(store, head) as audit:
        assert "which is gone" in (await audit.verify([anchor])).findings[0].message


async def test_anchor_with_a_foreign_signature_is_found(sqlite_url: str, head: Path, keyring: FakeKeyring) -> None:
    async with open_store(sqlite_url) as store, Audit(store, head) as audit:
        await audit.sign_with(await open_key(head.parent))
        await make_calls(audit, 1)
        anchor = await audit.anchor("home")
        assert anchor.signature is not None
        assert (await audit.verify([anchor])).ok
        forged = Anchor(anchor.crib, anchor.head, anchor.records, anchor.at, "0" * 64)
        assert [finding.kind for finding in (await audit.verify([forged])).findings] == ["anchor"]


async def test_anchors_of_sealed_records_are_checked_in_the_segments(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home") as running:
        crib = running.holding.crib
        for _ in range(60):
            await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())
        early = Anchor.of_json((await crib.anchoring.write(None)).to_json())
        number = 5
        digest = fetch_rows(f"sqlite:///{crib.home.database}", "SELECT hash FROM audit WHERE id = 5")[0][0]
        within = Anchor(early.crib, early.head._replace(number=number, hash=str(digest)), number, early.at)
        async with running.client() as client:
            assert (await client.post("/api/audit/seal", json={"olderThanDays": 0})).json()[0]["first"] == 1
        assert (await crib.audit.verify([within, early])).ok
        other = Anchor(within.crib, within.head._replace(hash="0" * 64), number, within.at)
        assert [finding.kind for finding in (await crib.audit.verify([other])).findings] == ["anchor"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with a commit, and a hook that must not run."""
    place = tmp_path / "repository"
    place.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    hook = place / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    return place


async def test_anchors_are_written_to_a_file_or_tags_and_read_back(running: Running, repository: Path) -> None:
    crib, tmp_path = running.holding.crib, repository.parent
    file = tmp_path / "anchors.jsonl"
    await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())
    for place in (str(file), f"git:{repository}"):
        await crib.anchoring.write(place)
        await crib.anchoring.write(place)
        found = await crib.anchoring.read(place)
        assert {anchor.head.number for anchor in found} == {2}
        assert (await crib.audit.verify(found)).ok
    assert file.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "hooked").exists(), "a hook of the repository ran"


async def test_anchors_of_another_home_are_ignored(running: Running, tmp_path: Path) -> None:
    file = tmp_path / "anchors.jsonl"
    crib = running.holding.crib
    await crib.anchoring.write(str(file))
    line = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps({**line, "crib": "another", "hash": "0" * 64, "number": 7}))
    assert await crib.anchoring.read(str(file)) == []


async def test_anchors_in_the_home_or_at_relative_paths_are_refused(running: Running) -> None:
    crib = running.holding.crib
    for place in (str(crib.home.root / "anchors"), f"git:{crib.home.root}", "relative", "git:relative"):
        with pytest.raises(InvalidRequest):
            await crib.anchoring.write(place)


def damage(database: Path) -> None:
    """Overwrite all pages but the first, so that the file is still a database but cannot be read."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("PRAGMA page_size").fetchone()
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(page)
        file.write(b"\xa5" * (size - page))


async def test_verify_of_a_damaged_database_is_unavailable(running: Running) -> None:
    crib = running.holding.crib
    for _ in range(3):
        await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())
    async with running.client() as client:
        assert (await client.get("/api/audit/verify")).json()["ok"] is True
        damage(crib.home.database)
        answer = await client.get("/api/audit/verify")
    assert (answer.status_code, answer.json()["code"]) == (503, "database.damaged")


def test_audit_commands_write_and_verify_anchors(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    printed = shell.json("audit", "anchor")
    assert (printed["number"], printed["toolcribAnchor"]) == (2, 1)
    outside = tmp_path / "elsewhere.jsonl"
    assert shell.run("audit", "anchor", "--to", str(outside)).returncode == 0
    checked = shell.json("audit", "verify", "--anchor", str(outside))
    assert (checked["ok"], checked["anchors"]) == (True, 1)
    shape = orjson.loads(outside.read_bytes())
    outside.write_bytes(orjson.dumps({**shape, "hash": "0" * 64}))
    broken = shell.run("audit", "verify", "--anchor", str(outside))
    assert (broken.returncode, "The anchor of" in broken.stdout) == (1, True)


def test_verify_of_a_damaged_database_exits_with_unavailable(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    home = Path(next(row["value"] for row in shell.json("settings") if row["name"] == "home"))
    for name in ("toolcrib.db-wal", "toolcrib.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "toolcrib.db").write_bytes(b"damaged" * 1000)
    done = shell.run("audit", "verify")
    assert done.returncode == 5, (done.stdout, done.stderr)
    assert "broken" not in done.stdout


def test_verify_of_a_database_that_is_no_file_exits_with_unavailable(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    home = Path(next(row["value"] for row in shell.json("settings") if row["name"] == "home"))
    for name in ("toolcrib.db", "toolcrib.db-wal", "toolcrib.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "toolcrib.db").mkdir()
    done = shell.run("audit", "verify")
    assert done.returncode == 5, (done.stdout, done.stderr)
    assert "is not a plain file" in done.stderr


async def test_verification_waits_for_the_lookup_of_the_key(sqlite_url: str, head: Path, keyring: FakeKeyring) -> None:
    async with open_store(sqlite_url) as store, Audit(store, head) as audit:
        audit.seal.look()
        found: list[Verification] = []
        async with anyio.create_task_group() as tasks:

            async def verify() -> None:
                found.append(await audit.verify())

            tasks.start_soon(verify)
            await audit.sign_with(await open_key(head.parent))
        assert found[0].signed


async def test_crib_that_ends_at_once_signs_its_records(tmp_path: Path, keyring: FakeKeyring) -> None:
    answers, home = threading.Event(), tmp_path / "home"
    before = keyring.get_password

    def slow(service_name: str, username: str) -> str | None:
        answers.wait(5)
        return before(service_name, username)

    keyring.get_password = slow
    async with Crib(Settings(home=home)) as crib:
        await crib.call("toolcrib/ping", principal=crib.owner())
        written = crib.audit.records
        threading.Timer(0.2, answers.set).start()
    signature = read_signed(home / "audit.signature")
    assert signature is not None
    assert signature.head.number >= written > 0


async def test_unreachable_anchor_webhook_is_an_error(running: Running) -> None:
    with pytest.raises(Unavailable):
        await running.holding.crib.anchoring.write("http://127.0.0.1:9/anchors")
