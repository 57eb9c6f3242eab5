"""A crib with `audit_keep_days` moves older records into sealed files."""

from pathlib import Path

import pytest

from lab import eventually
from toolcrib.base.settings import Environment, Settings
from toolcrib.gate.audit import segments
from toolcrib.gate.audit.segments import KEPT
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.store.audit import Filters

pytestmark = pytest.mark.anyio

OLD: JsonObject = {"at": "2001-01-01T00:00:00.000+00:00", "phase": "intent"}


async def test_records_older_than_the_setting_are_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FIRST_LOOK", 0.0)
    environment = Environment({"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    folder = tmp_path / "home" / "audit"
    async with Crib(Settings(home=tmp_path / "home"), environment=environment) as crib:
        for _ in range(KEPT + 7):
            await crib.audit.record(OLD)
    assert not folder.exists(), "records were sealed without the setting"
    async with Crib(Settings(home=tmp_path / "home", audit_keep_days=30), environment=environment) as crib:
        await eventually(lambda: (folder / segments.LIST).exists())
        [sealed] = await crib.audit.segments.list()
        assert (sealed.first, sealed.last) == (1, 7)
        [record] = await crib.audit.find(Filters(tool="audit.seal"))
        assert (record["door"], record["principal"]["source"]) == ("library", "scheduler")
        assert (await crib.audit.verify()).ok
