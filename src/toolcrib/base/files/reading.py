"""Reads configuration files without blocking, following unsafe links or exceeding a size limit.

An unreadable file is returned as a problem, a missing file as None. Must never open anything but a regular file.
"""

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from toolcrib.model.problems import Problem

MAX_BYTES = 16 * 1024 * 1024
BOM = "\ufeff"

_SAFE_FLAGS = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file without its byte order mark, and the digest of its bytes."""

    text: str = field(repr=False)
    bom: bool
    digest: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that exists but cannot be used."""

    problem: Problem


def content_digest(content: bytes) -> str:
    """Return the version of a file: the hex SHA-256 of its bytes."""
    return hashlib.sha256(content).hexdigest()


def read_text(path: Path, within: Path | None = None) -> FileText | Unreadable | None:
    """Read a text file; returns None if it does not exist.

    `within` is the real path of a project. Links that lead out of it are not followed; otherwise a repository could
    present the user's files as its own.
    """
    content = read_bytes(path, within)
    if not isinstance(content, bytes):
        return content
    if content.startswith(_UTF16) or b"\x00" in content[:4]:
        return _unreadable(path, "config.encoding", "the file is UTF-16 or UTF-32", "Save it as UTF-8.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _unreadable(path, "config.encoding", "the file is not UTF-8", "Save it as UTF-8.", line)
    bom = text.startswith(BOM)
    return FileText(text[1:] if bom else text, bom, content_digest(content))


def read_bytes(path: Path, within: Path | None = None) -> bytes | Unreadable | None:
    """Read the bytes of a regular file, up to the size limit."""
    try:
        if not os.path.lexists(path):
            return None
        if within is not None and not path.resolve(strict=True).is_relative_to(within):
            return _unreadable(path, "config.link", "a link leads out of the project, so it is not read")
        return _read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            return _unreadable(path, "config.unreadable", "the link leads nowhere")
        return None
    except RuntimeError:  # raised by pathlib for a loop of links
        return _unreadable(path, "config.unreadable", "the links form a loop")
    except (OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return _unreadable(path, "config.unreadable", f"the file cannot be read: {reason}")


def _read_regular(path: Path) -> bytes | Unreadable:
    kind = path.stat()
    if not stat.S_ISREG(kind.st_mode):
        return _unreadable(path, "config.not_a_file", f"this is {_kind_name(kind.st_mode)}, not a file")
    descriptor = os.open(path, os.O_RDONLY | _SAFE_FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        # Check again through the descriptor: the path may have been replaced by a pipe.
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            return _unreadable(path, "config.not_a_file", f"this is {_kind_name(opened.st_mode)}, not a file")
        content = file.read(MAX_BYTES + 1) if opened.st_size <= MAX_BYTES else None
    if content is None or len(content) > MAX_BYTES:
        limit = MAX_BYTES // (1024 * 1024)
        return _unreadable(path, "config.too_large", f"the file is larger than {limit} MB, so it is not read")
    return content


def _kind_name(mode: int) -> str:
    names = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


def _unreadable(path: Path, code: str, reason: str, hint: str | None = None, line: int | None = None) -> Unreadable:
    return Unreadable(Problem(code, f"{path.name}: {reason}", hint, str(path), line))
