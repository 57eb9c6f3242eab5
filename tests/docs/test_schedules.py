"""docs/schedules.md: its commands work, and its table lists every route."""

import os
import re
import shlex
import sys
from pathlib import Path

import anyio
import pytest

from toolcrib.base.settings import Environment, Settings
from toolcrib.testing.played import PlayedRunner
from toolcrib.web.api.routes import create_api
from toolcrib.web.login import Logins
from toolcrib.web.run import hold

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schedules.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.anyio


class Runtime(PlayedRunner):
    """Answers every prompt alike, in place of Claude Code."""

    name = "claude"


async def test_commands_work_in_order_and_the_table_lists_every_route(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    async with hold(settings, kind="serve", port=0, environment=Environment({"HOME": str(tmp_path)})) as holding:
        holding.crib.runners.add(Runtime({"default": [{"blocks": [{"text": "Nothing changed."}]}]}))
        paths = create_api(holding.crib, Logins("127.0.0.1:1")).openapi()["paths"]
        printed: dict[str, str] = {}
        for line in re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE):
            found = {schedule.name: schedule.id for schedule in await holding.crib.schedules.list()}
            words = [found["Morning"] if word == "ID" else word for word in shlex.split(line, comments=True)]
            printed[" ".join(words[1:3]) + f" {len(printed)}"] = await output_of(words, tmp_path)
        assert await holding.crib.schedules.list() != []
    outputs = list(printed.values())
    assert "At 09:00 on Monday through Friday (Europe/Berlin)" in outputs[0]
    assert "Ready to run." in outputs[0]
    assert "Not ready" in outputs[1]  # no person can approve the tool that the schedule needs
    assert "completed" in next(text for name, text in printed.items() if name.startswith("schedule run"))
    routes = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method in methods
        if path.startswith("/api/schedules")
    }
    assert set(re.findall(r"^\| `(\w+ /api/schedules[^`]*)`", PAGE, re.MULTILINE)) == routes


async def output_of(words: list[str], folder: Path) -> str:
    """Run a command that joins the running crib, and return its output."""
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    environment = {"HOME": str(folder), "TOOLCRIB_HOME": str(folder / "home"), "PATH": path}
    with anyio.fail_after(60):
        done = await anyio.run_process(words, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr.decode()}"
    return done.stdout.decode()
