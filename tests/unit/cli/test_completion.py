"""Completion of names by the shell: from the running crib, never an error."""

from pathlib import Path

import anyio.to_thread
import pytest

from toolcrib import ToolServer, tool
from toolcrib.base.settings import Environment, Settings
from toolcrib.cli.completion import names_of
from toolcrib.web.run import hold


@tool
async def greet(name: str) -> str:
    """Greet."""
    return name


@pytest.mark.anyio
async def test_names_of_the_running_crib_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "home"))
    environment = Environment({"HOME": str(tmp_path)})
    async with hold(Settings(home=tmp_path / "home"), kind="serve", port=0, environment=environment) as holding:
        holding.crib.register(ToolServer("hello", tools=[greet]))
        assert await anyio.to_thread.run_sync(names_of("tool"), "hello/") == ["hello/greet"]
        assert "reviewer" in await anyio.to_thread.run_sync(names_of("agent"), "rev")


def test_without_a_crib_nothing_is_completed_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "home"))
    assert names_of("server")("") == []
    monkeypatch.setenv("TOOLCRIB_HOME", "/dev/null/home")
    assert names_of("server")("") == []
    assert capfd.readouterr() == ("", "")
