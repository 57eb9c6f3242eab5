"""A changed file is noticed; a broken one leaves what it last said in force."""

import json
from pathlib import Path

import anyio
import pytest

from toolcrib.config import LastGood, changes, discover
from toolcrib.model.servers import Discovery


def servers(*names: str) -> str:
    """A file with these servers."""
    return json.dumps({"mcpServers": {name: {"command": name} for name in names}})


@pytest.mark.anyio
@pytest.mark.parametrize("poll", [0.05, 30.0])
async def test_new_changed_replaced_and_removed_files_are_noticed(tmp_path: Path, poll: float) -> None:
    """By looking from time to time, and by listening alone."""
    file = tmp_path / "mcp.json"
    file.write_text(servers("a"), "utf-8")
    noticed = changes(lambda: [file, tmp_path / "other.json"], poll_seconds=poll, debounce_ms=50)
    steps = [
        lambda: file.write_text(servers("a", "b"), "utf-8"),
        lambda: _replace(file, servers("c")),
        lambda: (tmp_path / "other.json").write_text("{}", "utf-8"),
        file.unlink,
    ]
    with anyio.fail_after(60):
        for step in steps:
            changed: frozenset[Path] = frozenset()
            async with anyio.create_task_group() as tasks:

                async def act(step: object = step) -> None:
                    # Listening begins a moment after it is asked for.
                    await anyio.sleep(0.5 if poll > 1 else 0)
                    assert callable(step)
                    step()

                tasks.start_soon(act)
                changed = await anext(noticed)
            assert changed
    await noticed.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - an async generator


def _replace(file: Path, text: str) -> None:
    beside = file.with_suffix(".new")
    beside.write_text(text, "utf-8")
    beside.replace(file)


def _discover(memory: LastGood, home: Path) -> Discovery:
    return discover(
        {}, home / "cwd", home=home, crib=home / ".crib", trusted=lambda _: False, platform="linux", read=memory.read
    )


def test_a_file_that_broke_leaves_the_last_good_state_in_force_with_a_problem(tmp_path: Path) -> None:
    """Until it is whole again, or gone."""
    (tmp_path / "cwd").mkdir()
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(servers("a"), "utf-8")
    memory = LastGood()
    assert [entry.name for entry in _discover(memory, tmp_path).servers] == ["a"]
    file.write_text('{"mcpServers": {', "utf-8")
    broken = _discover(memory, tmp_path)
    assert [entry.name for entry in broken.servers] == ["a"]
    assert [problem.code for problem in broken.problems] == ["config.syntax"]
    file.unlink()
    file.mkdir()
    assert [entry.name for entry in _discover(memory, tmp_path).servers] == ["a"]
    file.rmdir()
    assert _discover(memory, tmp_path).servers == ()
    file.write_text('{"mcpServers": {', "utf-8")
    assert _discover(memory, tmp_path).servers == ()
