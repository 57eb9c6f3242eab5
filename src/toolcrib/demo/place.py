"""The place of a demonstration: a directory with a home, a user's HOME and a project, all of it throw-away.

    crib/      the home: servers, rules, a module of Python tools
    user/      an empty HOME
    tmp/       what programs leave lying around
    kestrel/   the project the agents work in, with the team's data

Above: `toolcrib demo`. Below: the files beside this module. It must never write outside of the place.
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

from toolcrib.errors import Conflict
from toolcrib.home import prepare_home
from toolcrib.scripted import NEEDED, claude_variables
from toolcrib.settings import Environment, Settings

UPSTREAMS: Final = ("notes", "tracker")
_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is."""

    root: Path

    @property
    def crib(self) -> Path:
        """The home."""
        return self.root / "crib"

    @property
    def user(self) -> Path:
        """The HOME that agents and servers see."""
        return self.root / "user"

    @property
    def project(self) -> Path:
        """Where agents work."""
        return self.root / "kestrel"

    @property
    def data(self) -> Path:
        """The team's data."""
        return self.project / "data"

    def settings(self, port: int) -> Settings:
        """What the crib runs with; nothing that is set on this machine counts."""
        return Settings(home=self.crib, port=port, default_cwd=self.project)

    def environment(self, model: str) -> Environment:
        """What programs of the demonstration see: the scripted model, and nothing that belongs to the person."""
        current = Environment.current()
        kept = {name: current[name] for name in NEEDED & current.keys()}
        own = {"HOME": str(self.user), "TMPDIR": str(self.root / "tmp"), "ANTHROPIC_MODEL": "scripted"}
        return Environment({**kept, **own, **claude_variables(model)})


@contextmanager
def taken_place(folder: Path | None = None, *, keep: bool = False) -> Generator[Place]:
    """A place that is gone afterwards, unless it is to be kept or a folder was named.

    Raises `demo.place` for a folder that has something in it.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Conflict("demo.place", f"{folder} is not empty.")
    place = Place((folder or Path(mkdtemp(prefix="toolcrib-demo-"))).resolve())
    try:
        _fill(place)
        yield place
    finally:
        if folder is None and not keep:
            # What a process that is just ending still writes would be in the way: it is tried twice, then let go.
            shutil.rmtree(place.root, ignore_errors=True)
            shutil.rmtree(place.root, ignore_errors=True)


def _fill(place: Place) -> None:
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
        name: {"command": sys.executable, "args": ["-m", "toolcrib.demo.upstreams", name, str(place.data)]}
        for name in UPSTREAMS
    }
    home.mcp_json.write_text(json.dumps({"mcpServers": servers}, indent=2), encoding="utf-8")
