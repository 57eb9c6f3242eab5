"""What checks look at: the settings, the environment, the system. Above: all checks. Values and small functions."""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from toolcrib.home import Home
from toolcrib.settings import Environment, LoadedSettings, Settings


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


@dataclass(frozen=True, slots=True)
class Ground:
    """One machine of one person, seen from a directory."""

    loaded: LoadedSettings
    environment: Environment
    cwd: Path
    python: tuple[int, int] = field(default=sys.version_info[:2])
    now: Callable[[], float] = time.time
    free_bytes: Callable[[Path], int] = _free_bytes

    @property
    def settings(self) -> Settings:
        """What is set."""
        return self.loaded.settings

    @property
    def home(self) -> Home:
        """The home, whether it is there or not."""
        return Home(self.settings.home.absolute())

    @property
    def user_home(self) -> Path:
        """The person's home."""
        named = self.environment.get("HOME")
        return Path(named) if named else Path.home()

    @property
    def path(self) -> str:
        """Where programs are looked for."""
        return self.environment.get("PATH", "")
