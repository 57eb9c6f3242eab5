"""Logging: every record to `logs/toolcrib.log` in the home, warnings also to standard error.

One record is one line; continuation lines start with a bar, so that no logged text can imitate a record. The owner's
token is masked.

Must never write to standard output, which is data.
"""

import io
import logging
import os
import sys
from collections.abc import Collection
from logging.handlers import RotatingFileHandler
from pathlib import Path

from toolcrib.base.home import Home
from toolcrib.base.masking.text import mask_text
from toolcrib.base.masking.values import KnownSecrets
from toolcrib.base.settings import LogLevel
from toolcrib.cli.output import note, safe

_FILE_BYTES = 5 * 1_048_576
_FILES_KEPT = 3


def start_logging(home: Home, level: LogLevel, secrets: Collection[str], *, talk: bool = False) -> None:
    """Set up logging once per process. `talk` (or level `debug`) also logs warnings to standard error."""
    if log_file() is not None:
        return
    logging.raiseExceptions = False  # a full disk must not print traces to the terminal
    handlers: list[logging.Handler] = []
    try:
        handlers.append(_PrivateFile(home.logs / "toolcrib.log", maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT))
    except OSError as error:
        note(f"warning: Cannot write the log in {home.logs}: {error.strerror}.")
    if talk or level == "debug":
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[-1].setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    root = logging.getLogger()
    root.setLevel(logging.INFO if level == "debug" else logging.WARNING)
    logging.getLogger("toolcrib").setLevel(level.upper())
    for handler in handlers:
        handler.setFormatter(_OneLine(secrets))
        root.addHandler(handler)


def log_file() -> Path | None:
    """Return the log file of this process, or None."""
    files = (Path(each.baseFilename) for each in logging.getLogger().handlers if isinstance(each, _PrivateFile))
    return next(files, None)


class _PrivateFile(RotatingFileHandler):
    """A rotating log file readable only by its owner."""

    def _open(self) -> io.TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self.baseFilename, flags, 0o600)
        return io.TextIOWrapper(os.fdopen(descriptor, "ab"), encoding="utf-8", errors="backslashreplace")


class _OneLine(logging.Formatter):
    """Formats one record per line; continuation lines start with a bar, secrets are masked."""

    def __init__(self, secrets: Collection[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._secrets = KnownSecrets(secrets)

    def format(self, record: logging.LogRecord) -> str:
        text = mask_text(super().format(record), self._secrets.mask)
        return safe(text).replace("\n", "\n  | ")
