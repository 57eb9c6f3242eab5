"""Shell completion of names: taken from the running crib, and never an error."""

from pathlib import Path

import anyio.to_thread
import pytest
import typer
from typer.main import get_command

from toolcrib import ToolServer, tool
from toolcrib.base.settings import Environment, Settings
from toolcrib.cli.completion import names_of
from toolcrib.cli.main import command_tree
from toolcrib.web.run import hold


@tool
async def greet(name: str) -> str:
    """Greet."""
    return name


def complete(kind: str, typed: str, home: Path | None = None) -> list[str]:
    outer = typer.Context(get_command(command_tree("open")))
    outer.params["home"] = str(home) if home is not None else None
    return names_of(kind)(typer.Context(outer.command, parent=outer), typed)


@pytest.mark.anyio
@pytest.mark.parametrize("is_option", [False, True])
async def test_names_of_the_running_crib_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_option: bool
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "other" if is_option else home))
    given = home if is_option else None
    async with hold(
        Settings(home=home), kind="serve", port=0, environment=Environment({"HOME": str(tmp_path)})
    ) as holding:
        holding.crib.register(ToolServer("hello", tools=[greet]))
        assert await anyio.to_thread.run_sync(complete, "tool", "hello/", given) == ["hello/greet"]
        assert "reviewer" in await anyio.to_thread.run_sync(complete, "agent", "rev", given)
        assert "cursor" in await anyio.to_thread.run_sync(complete, "client", "cur", given)


def test_completion_without_a_crib_is_empty_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "home"))
    assert complete("server", "") == []
    monkeypatch.setenv("TOOLCRIB_HOME", "/dev/null/home")
    assert complete("server", "") == []
    assert capfd.readouterr() == ("", "")
