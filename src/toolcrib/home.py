"""The home: one directory of one person that holds everything a crib keeps, and the one process that may hold it.

Here are the places of the files, the care for their modes, the owner's token, the lock that makes one process the
holder, and `run.json`, in which the holder says where it can be reached.

Above: `host` and `server` hold a home, `cli` joins the holder. Below: `errors`, `model`. It must never follow what
somebody else could have put there: the home and its files belong to this user, 0700 and 0600, or they are refused.
"""

import contextlib
import hashlib
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import orjson

from toolcrib.errors import ConfigError, Unavailable
from toolcrib.model.json import Json, JsonObject

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


HolderKind = Literal["serve", "stdio", "chat", "command", "library"]

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_SMALL_FILE = 65_536
_LEFTOVER_AGE = 60.0


@dataclass(frozen=True, slots=True)
class Home:
    """The places in a home. `root` is a real directory, not a link to one."""

    root: Path

    @property
    def mcp_json(self) -> Path:
        """Servers added here."""
        return self.root / "mcp.json"

    @property
    def settings_file(self) -> Path:
        """Settings, rules and limits as the owner writes them."""
        return self.root / "toolcrib.toml"

    @property
    def database(self) -> Path:
        """The SQLite file, where no other database is set."""
        return self.root / "toolcrib.db"

    @property
    def token_file(self) -> Path:
        """The owner's token."""
        return self.root / "token"

    @property
    def tools(self) -> Path:
        """The owner's own Python tools."""
        return self.root / "tools"

    @property
    def logs(self) -> Path:
        """Logs."""
        return self.root / "logs"

    @property
    def lock_file(self) -> Path:
        """Locked by the one process that holds the home."""
        return self.root / "lock"

    @property
    def run_file(self) -> Path:
        """Where the holder can be reached."""
        return self.root / "run.json"

    @property
    def trust_file(self) -> Path:
        """What the owner agreed to start."""
        return self.root / "trust.json"

    @property
    def backups(self) -> Path:
        """Old versions of changed files, for undo."""
        return self.root / "backups"

    @property
    def runtimes(self) -> Path:
        """What the runtimes of agents need to start."""
        return self.root / "runtimes"

    @property
    def work(self) -> Path:
        """Where agents work in the background, each in a copy of a repository."""
        return self.root / "work"

    @property
    def audit_head(self) -> Path:
        """The head of the audit chain, kept outside the database."""
        return self.root / "audit.head"

    @property
    def last_rules(self) -> Path:
        """The files with rules as they were when they could last be read."""
        return self.root / "last-rules"

    @property
    def processes(self) -> Path:
        """The servers' processes that run, for whoever has to end them after a crash."""
        return self.root / "processes.json"

    @property
    def credentials(self) -> Path:
        """Sign-ins at servers, where the system has no keyring."""
        return self.root / "credentials"

    @property
    def marker(self) -> str:
        """What marks a process as started by a crib of this home, and of no other."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:32]


def prepare_home(path: Path) -> Home:
    """Make or check the home and set the modes of all it holds again, whatever the umask or a backup made of them.

    Raises `home.unsafe` if it is not a directory, belongs to another user, or cannot be kept from others.
    """
    path = path.absolute()
    try:
        for missing in reversed([each for each in (path, *path.parents) if not os.path.lexists(each)]):
            # Another process may be making the same home; what it made is checked like any other.
            with contextlib.suppress(FileExistsError):
                missing.mkdir(mode=0o700)
        _check_owner(path, path.lstat())
        root = path.resolve(strict=True)
        home = Home(root)
        for directory in (root, home.tools, home.logs):
            _private_directory(directory)
        for directory in (root, home.logs):
            _private_files(directory)
    except OSError as error:
        raise ConfigError("home.unsafe", f"The home {path} cannot be used: {error.strerror or error}.") from error
    return home


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse what another user owns: they could replace it, or read what is put into it."""
    if sys.platform != "win32" and status.st_uid != os.geteuid():
        message = f"{path} belongs to another user (uid {status.st_uid}, this process runs as {os.geteuid()})."
        raise ConfigError("home.unsafe", message)


def _private_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise ConfigError("home.unsafe", f"{path} is not a directory.") from error
    status = path.stat()
    _check_owner(path, status)
    if sys.platform != "win32" and stat.S_IMODE(status.st_mode) != 0o700:
        path.chmod(0o700)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError("home.unsafe", f"Others can read {path}, and its file system does not let that change.")


def _private_files(directory: Path) -> None:
    """Set 0600 on every file of ours; sweep what an interrupted write left behind. Links are left alone."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
            if _is_leftover(entry.name) and time.time() - status.st_mtime > _LEFTOVER_AGE:
                Path(entry.path).unlink(missing_ok=True)
            elif sys.platform != "win32" and stat.S_IMODE(status.st_mode) != 0o600:
                _check_owner(Path(entry.path), status)
                Path(entry.path).chmod(0o600)


def _is_leftover(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _write_beside(path: Path, content: bytes) -> Path:
    """Write a whole new file of mode 0600 next to `path`, to be moved or linked into its place."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        if sys.platform != "win32":
            os.fchmod(descriptor, 0o600)
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)
    return beside


def _read_private(path: Path) -> bytes | None:
    """The content of a small private file, None if there is none; refuses links, pipes and files of others."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NOFOLLOW | _NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError("home.unsafe", f"{path} cannot be read: {error.strerror or error}.") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ConfigError("home.unsafe", f"{path} is not a file.")
    with os.fdopen(descriptor, "rb") as stream:
        _check_owner(path, status)
        if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
        return stream.read(_SMALL_FILE)


def sealing_key(home: Home) -> bytes:
    """The key of what clients carry for a crib of this home: the same in every run, and of no use elsewhere."""
    return hashlib.sha256(b"toolcrib sealed state\0" + owner_token(home).encode()).digest()


def owner_token(home: Home) -> str:
    """The owner's token: 256 random bits, made at first use. Several processes may ask at once; all get the same."""
    while (content := _read_private(home.token_file)) is None:
        made = _write_beside(home.token_file, secrets.token_urlsafe(32).encode() + b"\n")
        try:
            # Unlike a rename, a link never replaces what another process made first, and never shows half a file.
            with contextlib.suppress(FileExistsError):
                home.token_file.hardlink_to(made)
        finally:
            made.unlink(missing_ok=True)
    token = content.decode("ascii", "replace").strip()
    if not re.fullmatch(r"[A-Za-z0-9_-]{43,512}", token):
        raise ConfigError("home.token", f"{home.token_file} does not hold a token.")
    return token


_not_for_children: set[int] = set()


def _close_in_child() -> None:
    for descriptor in _not_for_children:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _not_for_children.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def kept_from_children(descriptor: int) -> Generator[None]:
    """Close this descriptor in every child that is forked meanwhile.

    A tool may fork, and its children may outlive a process that is killed: what they hold, nobody else can take.
    """
    _not_for_children.add(descriptor)
    try:
        yield
    finally:
        _not_for_children.discard(descriptor)


class HomeLock:
    """The lock of a home. The system frees it when its process ends, however that happens."""

    def __init__(self, home: Home) -> None:
        self._path = home.lock_file
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; never waits."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _NOFOLLOW | _NONBLOCK, 0o600)
        except OSError as error:
            raise ConfigError("home.unsafe", f"{self._path} cannot be opened: {error.strerror or error}.") from error
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            message = f"{self._path} cannot be locked: {error.strerror or error}."
            raise Unavailable("home.busy", message, "Choose a home on a file system that has locks.") from error
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        _not_for_children.add(descriptor)
        self._descriptor = descriptor
        return True

    def holder_pid(self) -> int | None:
        """The process that last took the lock, for messages; only the lock itself proves that it still has it."""
        try:
            content = _read_private(self._path) or b""
        except ConfigError:
            return None
        return int(content) if content.isdigit() else None

    def release(self) -> None:
        """Free the lock; nothing happens if it is not held. The file stays: removing it would let two hold it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _not_for_children.discard(descriptor)
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Who holds a home and where it listens. `started_at` is ISO 8601 in UTC."""

    pid: int
    url: str
    kind: HolderKind
    version: str
    started_at: str

    def to_json(self) -> JsonObject:
        """The shape of `run.json`."""
        return {
            "pid": self.pid,
            "url": self.url,
            "kind": self.kind,
            "version": self.version,
            "startedAt": self.started_at,
        }


def write_run(home: Home, info: RunInfo) -> None:
    """Say where this process can be reached; only the holder of the lock does."""
    _write_beside(home.run_file, orjson.dumps(info.to_json(), option=orjson.OPT_APPEND_NEWLINE)).replace(home.run_file)


def read_run(home: Home) -> RunInfo | None:
    """What `run.json` says, if it is whole and its process lives; else None."""
    try:
        shape = orjson.loads(_read_private(home.run_file) or b"null")
    except (ConfigError, orjson.JSONDecodeError):
        return None
    info = _run_info(shape)
    return info if info and _alive(info.pid) else None


def _run_info(shape: Json) -> RunInfo | None:
    match shape:
        case {
            "pid": int(pid),
            "url": str(url),
            "kind": "serve" | "stdio" | "chat" | "command" | "library" as kind,
            "version": str(version),
            "startedAt": str(started_at),
        } if 0 < pid < 2**31 and _is_loopback(url):
            return RunInfo(pid, url, kind, version, started_at)
        case _:
            return None


def _is_loopback(url: str) -> bool:
    """Whether the token may be sent there: to this machine only, whatever the file says."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.port) and ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # signal 0 would end the process there; the lock tells instead
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def clear_run(home: Home) -> None:
    """Remove `run.json` if this process wrote it."""
    info = read_run(home)
    if info and info.pid == os.getpid():
        home.run_file.unlink(missing_ok=True)


def find_holder(home: Home) -> RunInfo | None:
    """The crib that holds this home, if it has said where it listens.

    A process that ended without cleaning up leaves a `run.json` whose number and port others may have by now. Only the
    lock proves that the holder lives; without it nobody is sent the token.
    """
    info = read_run(home)
    probe = HomeLock(home)
    if info is None or not probe.try_acquire():
        return info
    probe.release()
    return None
