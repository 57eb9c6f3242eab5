"""A command that finds the home held by another process."""

from pathlib import Path

import anyio
import pytest

from toolcrib.base.home import Home, HomeLock, RunInfo, find_holder, prepare_home
from toolcrib.base.settings import Settings
from toolcrib.cli import crib

pytestmark = pytest.mark.anyio


async def test_command_waits_longer_for_a_crib_that_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = prepare_home(tmp_path / "home")
    starting = HomeLock(home)
    assert starting.try_acquire()
    monkeypatch.setattr(crib, "RESPONSE_SECONDS", 0.0)
    monkeypatch.setattr(crib, "_NOTE_SECONDS", 0.0)
    looks = 0

    def look(held: Home) -> RunInfo | None:
        nonlocal looks
        looks += 1
        if looks == 3:
            starting.release()
        return find_holder(held)

    monkeypatch.setattr(crib, "find_holder", look)
    with anyio.fail_after(60):
        async with crib.reach(Settings(home=home.root, port=0)) as client:
            assert await client.health()
    assert "which holds" in capsys.readouterr().err
