"""The directory of a demo, removed afterwards: a home, a user's HOME and a project.

    crib/      the home: servers, rules, a module of Python tools
    user/      an empty HOME
    tmp/       temporary files
    kestrel/   the project the agents work in, with the team's data

Must never write outside of this directory.
"""

import json
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from toolcrib.base.home import prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.errors import Conflict
from toolcrib.testing.scripted_model.variables import NEEDED, claude_variables

UPSTREAMS: Final = ("notes", "tracker")
_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class DemoDirectory:
    """The directories of a demo."""

    root: Path

    @property
    def crib(self) -> Path:
        """The home of the crib."""
        return self.root / "crib"

    @property
    def user(self) -> Path:
        """The HOME that agents and servers see."""
        return self.root / "user"

    @property
    def project(self) -> Path:
        """The project that agents work in."""
        return self.root / "kestrel"

    @property
    def data(self) -> Path:
        """The team's data."""
        return self.project / "data"

    def settings(self, port: int) -> Settings:
        """Return the settings of the crib, independent of this machine's."""
        return Settings(home=self.crib, port=port, default_cwd=self.project)

    def environment(self, model: str) -> Environment:
        """Return the environment of the demo's processes: the scripted model, and nothing of the user's."""
        current = Environment.current()
        kept = {name: current[name] for name in NEEDED & current.keys()}
        own = {"HOME": str(self.user), "TMPDIR": str(self.root / "tmp"), "ANTHROPIC_MODEL": "scripted"}
        return Environment({**kept, **own, **claude_variables(model)})


@contextmanager
def demo_directory(folder: Path | None = None, *, keep: bool = False) -> Generator[DemoDirectory]:
    """Yield a demo directory; it is removed afterwards unless kept or given.

    Raises `demo.place` if the given directory is not empty.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Conflict("demo.place", f"{folder} is not empty.")
    place = DemoDirectory((folder or Path(mkdtemp(prefix="toolcrib-demo-"))).resolve())
    try:
        _fill(place)
        yield place
    finally:
        if folder is None and not keep:
            # A process that is just exiting may still write files, so removal is tried twice.
            shutil.rmtree(place.root, ignore_errors=True)
            shutil.rmtree(place.root, ignore_errors=True)


def _fill(place: DemoDirectory) -> None:
    home = prepare_home(place.crib)
    for folder in (place.user, place.root / "tmp", place.data, home.tools):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_HERE / "orders.py", home.tools)
    shutil.copy(_HERE / "files" / "toolcrib.toml", home.settings_file)
    shutil.copy(_HERE / "files" / "README.md", place.project)
    for name in ("issues.json", "orders.json"):
        shutil.copy(_HERE / "files" / name, place.data)
    shutil.copytree(_HERE / "files" / "notes", place.data / "notes")
    servers = {
        name: {"command": sys.executable, "args": ["-m", "toolcrib.cli.demo.upstreams", name, str(place.data)]}
        for name in UPSTREAMS
    }
    home.mcp_json.write_text(json.dumps({"mcpServers": servers}, indent=2), encoding="utf-8")
