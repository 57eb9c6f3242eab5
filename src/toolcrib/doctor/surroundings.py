"""The input of every check: settings, environment and system."""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from toolcrib.base.home import Home
from toolcrib.base.processes.sandbox import SandboxSupport, sandbox_support
from toolcrib.base.processes.trace import TracerSupport, tracer_support
from toolcrib.base.settings import Environment, LoadedSettings, Settings


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


if sys.platform == "win32":

    def allowed_files(pid: int | None = None) -> int | None:
        """Return None: Windows has no such limit."""
        return None
else:
    import resource

    def allowed_files(pid: int | None = None) -> int | None:
        """Return how many files the process, or a crib started here, may open; None if unlimited or unknown."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if pid is not None:
            if sys.platform != "linux":
                return None
            try:
                soft, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            except OSError:
                return None
            return None if soft == resource.RLIM_INFINITY else soft
        # A crib raises its own soft limit to the hard limit.
        return None if hard == resource.RLIM_INFINITY else hard


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One user's machine, seen from a directory."""

    loaded: LoadedSettings
    environment: Environment
    cwd: Path
    python: tuple[int, int] = field(default=sys.version_info[:2])
    now: Callable[[], float] = time.time
    free_bytes: Callable[[Path], int] = _free_bytes
    allowed_files: Callable[[int | None], int | None] = allowed_files
    sandbox: Callable[[], SandboxSupport] = sandbox_support
    tracer: Callable[[], TracerSupport] = tracer_support

    @property
    def settings(self) -> Settings:
        """The loaded settings."""
        return self.loaded.settings

    @property
    def home(self) -> Home:
        """The home, whether it exists or not."""
        return Home(self.settings.home.absolute())

    @property
    def user_home(self) -> Path:
        """The user's home directory."""
        named = self.environment.get("HOME")
        return Path(named) if named else Path.home()

    @property
    def path(self) -> str:
        """The search path for programs."""
        return self.environment.get("PATH", "")
