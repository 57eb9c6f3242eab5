"""Backups of a home, and restoring a damaged database from one."""

import json
import os
import zipfile
from functools import partial
from pathlib import Path

import anyio
import orjson
import pytest

from e2e.shell import Shell
from integration.gate.audit.test_anchors import damage
from integration.store.databases import create_at
from integration.web.crib import running_crib
from toolcrib.base.home import Home
from toolcrib.base.settings import Settings
from toolcrib.host import backups
from toolcrib.host.restore import restoring
from toolcrib.model.errors import Conflict, InvalidRequest, Unavailable
from toolcrib.model.principals import Principal
from toolcrib.store.audit import Filters
from toolcrib.store.backup import read_backup, unpack_backup
from toolcrib.store.engine import open_store
from toolcrib.store.schema import HEAD

pytestmark = pytest.mark.anyio

OWNER = Principal("owner", "owner", "cli")


async def make_calls(home: Path, number: int) -> int:
    """Make calls in a crib of this home; return the number of the newest record."""
    async with running_crib(home) as running:
        crib = running.holding.crib
        for _ in range(number):
            await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())
        return int((await crib.audit.find(Filters(limit=1)))[0]["id"])


async def create_backup(home: Path, to: Path) -> None:
    async with running_crib(home) as running:
        await running.holding.crib.backups.create(to)


async def test_backup_of_a_running_crib_includes_the_journal_and_no_secrets(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home") as running:
        crib = running.holding.crib
        await crib.tokens.create("robot")
        for _ in range(5):
            await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())
        backup = await crib.backups.create(tmp_path / "copy.zip")
        assert backup.number == 10
        assert (tmp_path / "copy.zip").stat().st_mode & 0o777 == 0o600
        secret = crib.home.token_file.read_bytes().strip()
    with zipfile.ZipFile(tmp_path / "copy.zip") as packed:
        assert {"manifest.json", "toolcrib.db", "audit.head"} <= set(packed.namelist())
        assert not any(secret in packed.read(name) for name in packed.namelist()), "the backup holds no owner token"
    with pytest.raises(Conflict):
        await create_backup(tmp_path / "home", tmp_path / "copy.zip")


async def test_restore_reports_lost_records_and_is_recorded(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await make_calls(home, 3)
    await create_backup(home, tmp_path / "copy.zip")
    last = await make_calls(home, 4)
    damage(home / "toolcrib.db")
    async with restoring(Settings(home=home), tmp_path / "copy.zip") as restore:
        assert (restore.plan.backup.number, restore.plan.lost, restore.plan.findings) == (6, last - 6, ())
        aside = await restore.execute(OWNER)
    assert (aside / "toolcrib.db").exists()
    async with running_crib(home) as running:
        crib = running.holding.crib
        assert (await crib.audit.verify()).findings == ()
        [outcome, _] = await crib.audit.find(Filters(tool="crib.restore"))
        assert (outcome["arguments"]["lost"], outcome["principal"]["name"]) == (last - 6, "owner")
        await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())
        assert (await crib.audit.verify()).ok


async def test_call_in_flight_during_the_backup_gets_an_unknown_outcome_after_restore(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_crib(home) as running, anyio.create_task_group() as tasks:
        crib = running.holding.crib
        tasks.start_soon(partial(crib.call, "bench/wait", {}, principal=crib.owner()))
        await running.bench.started.wait()
        await crib.backups.create(tmp_path / "copy.zip")
        tasks.cancel_scope.cancel()
    async with restoring(Settings(home=home), tmp_path / "copy.zip") as restore:
        await restore.execute(OWNER)
    async with running_crib(home) as running:
        outcome, intent = await running.holding.crib.audit.find(Filters(server="bench"))
    assert (intent["phase"], outcome["outcome"]) == ("intent", "unknown")


async def test_restore_is_refused_while_a_crib_runs(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home") as running:
        await running.holding.crib.backups.create(tmp_path / "copy.zip")
        with pytest.raises(Unavailable) as refused:
            async with restoring(Settings(home=tmp_path / "home"), tmp_path / "copy.zip"):
                pass
        assert refused.value.code == "crib.running"


async def test_incomplete_backup_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await make_calls(home, 1)
    await create_backup(home, tmp_path / "copy.zip")
    whole = (tmp_path / "copy.zip").read_bytes()
    before = (home / "toolcrib.db").read_bytes()
    renamed = whole.replace(b"toolcrib.db", b"toolcrib.xx")
    for number, content in enumerate((b"", b"PK", whole[: len(whole) // 2], renamed)):
        broken = tmp_path / f"broken{number}.zip"
        broken.write_bytes(content)
        with pytest.raises(InvalidRequest) as refused:
            async with restoring(Settings(home=home), broken):
                pass
        assert refused.value.code == "backup.invalid"
    assert (home / "toolcrib.db").read_bytes() == before
    assert [path.name for path in home.glob(".restore-*")] == []


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "c:evil"])
def test_backup_cannot_write_outside_its_folder(tmp_path: Path, name: str) -> None:
    manifest = {
        "toolcribBackup": 1,
        "at": "2026-01-01T00:00:00+00:00",
        "revision": HEAD,
        "record": {"number": 0, "hash": "0" * 64},
        "files": {"toolcrib.db": "0", name: "0"},
    }
    file = tmp_path / "evil.zip"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("manifest.json", orjson.dumps(manifest))
        packed.writestr(name, b"evil")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidRequest, match="outside of it"):
        unpack_backup(file, tmp_path / "folder")


async def test_database_is_backed_up_before_it_is_migrated(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'toolcrib.db'}"
    create_at(database, "0012")
    async with open_store(database):
        pass
    [backup] = (tmp_path / "database-backups").glob("before-migration-0012-*.zip")
    assert read_backup(backup).revision == "0012"


async def test_daily_backup_is_made_once_and_old_ones_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "FIRST", 0.0)
    home = tmp_path / "home"
    folder = home / "database-backups"
    folder.mkdir(parents=True, mode=0o700)
    for day in range(5):
        old = folder / f"daily-2020010{day}-000000.zip"
        old.write_bytes(b"old")
        os.utime(old, (0, 0))
    async with running_crib(home) as running:
        with anyio.fail_after(20):
            while len(list(folder.glob("daily-*.zip"))) != backups.KEPT:  # noqa: ASYNC110 nothing announces it
                await anyio.sleep(0.02)
        assert len(await running.holding.crib.backups.list()) == 1


def test_commands_report_a_damaged_database_and_restore_it(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    made = shell.json("backup")
    home = Home(Path(made["file"]).parents[1])
    assert shell.json("backup", "--list")[0]["file"] == made["file"]
    damage(home.database)
    for command in (("serve", "--port", "0", "--no-open"), ("tools", "list")):
        failed = shell.run(*command)
        assert failed.returncode == 5
        assert "damaged" in failed.stderr
        assert "toolcrib restore" in failed.stderr
        assert "Traceback" not in failed.stderr
    found = shell.run("doctor", "--json")
    findings = {each["check"]: each for each in json.loads(found.stdout)["findings"]}
    assert found.returncode == 1
    assert findings["database"]["severity"] == "error"
    assert findings["database"]["fix"] == f"toolcrib restore {made['file']}"
    assert shell.run("restore", made["file"]).returncode == 2, "there is no terminal to confirm"
    assert shell.run("restore", made["file"], "--yes").returncode == 0
    assert shell.run("audit", "verify").returncode == 0
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
