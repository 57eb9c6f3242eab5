"""Logs of a process: every record to `logs/toolcrib.log` in the home, and what a person should see to standard error.

One record is one line, and what belongs to it stands behind a bar: no message of others can pass for a record. The
owner's token never gets in.

Above: `serve`, `stdio` and the commands. Below: `home`. It must never write to standard output, which is data.
"""

import io
import logging
import os
import sys
from collections.abc import Collection
from logging.handlers import RotatingFileHandler
from pathlib import Path

from toolcrib.cli.output import note, safe
from toolcrib.home import Home
from toolcrib.settings import LogLevel

_FILE_BYTES = 5 * 1_048_576
_FILES_KEPT = 3


def start_logging(home: Home, level: LogLevel, secrets: Collection[str], *, talk: bool = False) -> None:
    """Log this process into its home, once. `talk` also shows warnings on standard error; so does level `debug`."""
    if log_file() is not None:
        return
    logging.raiseExceptions = False  # a full disk must not print traces into somebody's terminal
    handlers: list[logging.Handler] = []
    try:
        handlers.append(_PrivateFile(home.logs / "toolcrib.log", maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT))
    except OSError as error:
        note(f"warning: the log in {home.logs} cannot be written: {error.strerror}.")
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
    """The file this process logs into, if it does."""
    files = (Path(each.baseFilename) for each in logging.getLogger().handlers if isinstance(each, _PrivateFile))
    return next(files, None)


class _PrivateFile(RotatingFileHandler):
    """A log that only its owner reads, also after it was turned over."""

    def _open(self) -> io.TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self.baseFilename, flags, 0o600)
        return io.TextIOWrapper(os.fdopen(descriptor, "ab"), encoding="utf-8", errors="backslashreplace")


class _OneLine(logging.Formatter):
    """One line a record; further lines of a message or trace behind a bar; secrets masked."""

    def __init__(self, secrets: Collection[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return safe(text).replace("\n", "\n  | ")
