"""The home: the data directory of a crib, and the lock that allows one process to hold it.

Defines the paths and modes of its files, the owner's token, the holder's lock, and `run.json` with the holder's
address.

Must never use files that another user could have placed there: the home and its files belong to this user, with modes
0700 and 0600, or are rejected.
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

from toolcrib.base.files.lock import try_lock
from toolcrib.base.files.private import write_beside
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.model.json import Json, JsonObject

MARKER = "TOOLCRIB_CHILD_OF"
"""Environment variable that marks processes started by the crib of a home."""

HolderKind = Literal["serve", "stdio", "chat", "command", "library"]

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_SMALL_FILE = 65_536
_LEFTOVER_AGE = 60.0
_RESTORED_WITHIN = 5.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Home:
    """Paths in a home. `root` is a real directory, not a link."""

    root: Path

    @property
    def mcp_json(self) -> Path:
        """Servers added by the owner."""
        return self.root / "mcp.json"

    @property
    def settings_file(self) -> Path:
        """Settings, rules and limits."""
        return self.root / "toolcrib.toml"

    @property
    def database(self) -> Path:
        """The SQLite file, unless another database is configured."""
        return self.root / "toolcrib.db"

    @property
    def token_file(self) -> Path:
        """The owner's token."""
        return self.root / "token"

    @property
    def tools(self) -> Path:
        """The owner's Python tools."""
        return self.root / "tools"

    @property
    def logs(self) -> Path:
        """Log files."""
        return self.root / "logs"

    @property
    def lock_file(self) -> Path:
        """Locked by the process that holds the home."""
        return self.root / "lock"

    @property
    def succession_file(self) -> Path:
        """Locked by the process that takes over next."""
        return self.root / "lock.next"

    @property
    def run_file(self) -> Path:
        """Address of the holder."""
        return self.root / "run.json"

    @property
    def trust_file(self) -> Path:
        """Definitions that the owner trusts."""
        return self.root / "trust.json"

    @property
    def backups(self) -> Path:
        """Old versions of changed files, for undo."""
        return self.root / "backups"

    @property
    def runtimes(self) -> Path:
        """Files that agent runtimes need to start."""
        return self.root / "runtimes"

    @property
    def work(self) -> Path:
        """Worktrees of work tasks."""
        return self.root / "work"

    @property
    def sandboxes(self) -> Path:
        """Temporary directories of sandboxed servers, one for each."""
        return self.root / "sandboxes"

    @property
    def recordings(self) -> Path:
        """Recordings of sessions."""
        return self.root / "recordings"

    @property
    def server_bundles(self) -> Path:
        """Unpacked MCPB bundles of servers from the registry."""
        return self.root / "server-bundles"

    @property
    def audit_head(self) -> Path:
        """The head of the audit chain, kept outside the database."""
        return self.root / "audit.head"

    @property
    def database_backups(self) -> Path:
        """Backups of the database."""
        return self.root / "database-backups"

    @property
    def stop_marker(self) -> Path:
        """Exists while the kill switch is set."""
        return self.root / "stopped"

    @property
    def last_rules(self) -> Path:
        """The last readable version of each file with rules."""
        return self.root / "last-rules"

    @property
    def processes(self) -> Path:
        """Running server processes, to be ended after a crash."""
        return self.root / "processes.json"

    @property
    def ended_sessions(self) -> Path:
        """MCP sessions that clients have ended."""
        return self.root / "ended-sessions"

    @property
    def browser_sessions(self) -> Path:
        """Digests of the browsers that are signed in to the console."""
        return self.root / "browser-sessions"

    @property
    def credentials(self) -> Path:
        """OAuth credentials, if the system has no keyring."""
        return self.root / "credentials"

    @property
    def secrets(self) -> Path:
        """Names of stored secrets, records of moves, and the values if the system has no keyring."""
        return self.root / "secrets"

    @property
    def marker(self) -> str:
        """Value that marks processes started by a crib of this home."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:32]


def prepare_home(path: Path) -> Home:
    """Create or check the home, and reset the modes of its files, which a umask or a backup may have changed.

    Raises `home.unsafe` if it is not a directory, belongs to another user, or cannot be made private.
    """
    path = path.absolute()
    try:
        for missing in reversed([each for each in (path, *path.parents) if not os.path.lexists(each)]):
            # Another process may create the same home; its directories are checked the same way.
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
    """Raise `home.unsafe` if another user owns the path: they could replace it, or read its content."""
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
            raise ConfigError(
                "home.unsafe", f"Other users can read {path}, and its file system does not support private files."
            )


def _private_files(directory: Path) -> None:
    """Set mode 0600 on every file, and remove leftovers of interrupted writes. Ignores links."""
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


def _read_private(path: Path) -> bytes | None:
    """Return the content of a small private file, or None. Rejects links, pipes and files of other users."""
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


def _write_beside(path: Path, line: bytes) -> Path:
    """Write a line next to `path`, to be renamed to it. Raises `home.unsafe` if the disk is full or read-only."""
    try:
        return write_beside(path, line + b"\n")
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}."
        raise ConfigError(
            "home.unsafe", message, "Check the free disk space and the permissions of the home."
        ) from error


def sealing_key(home: Home) -> bytes:
    """Return the key that seals state carried by clients: constant for this home, useless elsewhere."""
    return hashlib.sha256(b"toolcrib sealed state\0" + owner_token(home).encode()).digest()


def owner_token(home: Home) -> str:
    """Return the owner's token: 256 random bits, created at first use. Concurrent callers get the same one.

    While a crib runs, only that crib writes the file. If the file was removed or damaged meanwhile, waits for the crib
    to restore it. Raises `home.token` if it does not.
    """
    deadline = time.monotonic() + _RESTORED_WITHIN
    while True:
        token = _read_token(home) or _kept_tokens.get(home.root)
        if token is not None:
            return token
        holder = find_holder(home)
        if holder is None:
            return _make_token(home)
        if time.monotonic() > deadline:
            message = f"{home.token_file} is not the token of the crib at {holder.url} (process {holder.pid})."
            raise ConfigError("home.token", message, "Stop that crib and start it again.")
        time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def kept_token(home: Home) -> Generator[str]:
    """Yield the owner's token to the holder of the home; within the block, `restore_token` can write it again."""
    token = _read_token(home) or _make_token(home)
    _kept_tokens[home.root] = token
    try:
        yield token
    finally:
        _kept_tokens.pop(home.root, None)


def replace_token(home: Home, token: str) -> None:
    """Write another owner's token; only for the holder of the home, before it keeps its token."""
    _write_beside(home.token_file, token.encode()).replace(home.token_file)


def restore_token(home: Home) -> bool:
    """Write the kept token again if its file is missing or invalid. Returns whether that was needed."""
    token = _kept_tokens.get(home.root)
    if token is None or _read_token(home) is not None:
        return False
    _write_beside(home.token_file, token.encode()).replace(home.token_file)
    return True


_kept_tokens: dict[Path, str] = {}
"""Tokens of the homes that this process holds."""


def _read_token(home: Home) -> str | None:
    """Return the token in the file, or None if it is missing or invalid."""
    content = _read_private(home.token_file) or b""
    token = content.decode("ascii", "replace").strip()
    return token if re.fullmatch(r"[A-Za-z0-9_-]{43,512}", token) else None


def _make_token(home: Home) -> str:
    """Create a token unless another process was first. Raises `home.token` if the file is invalid."""
    made = _write_beside(home.token_file, secrets.token_urlsafe(32).encode())
    try:
        # Unlike a rename, a link never replaces an existing file and never exposes a partial one.
        with contextlib.suppress(FileExistsError):
            home.token_file.hardlink_to(made)
    finally:
        made.unlink(missing_ok=True)
    token = _read_token(home)
    if token is None:
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
    """Close this descriptor in every child forked during the block.

    A tool may fork, and its children may outlive a killed crib; a lock they inherited would block the next one.
    """
    _not_for_children.add(descriptor)
    try:
        yield
    finally:
        _not_for_children.discard(descriptor)


class HomeLock:
    """The lock of a home. The system releases it when the process ends."""

    def __init__(self, home: Home, file: Path | None = None) -> None:
        self._path = file or home.lock_file
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Does not block."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _NOFOLLOW | _NONBLOCK, 0o600)
        except OSError as error:
            raise ConfigError("home.unsafe", f"{self._path} cannot be opened: {error.strerror or error}.") from error
        try:
            is_ours = try_lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            message = f"{self._path} cannot be locked: {error.strerror or error}."
            raise Unavailable("home.busy", message, "Choose a home on a file system that has locks.") from error
        if not is_ours:
            os.close(descriptor)
            return False
        with contextlib.suppress(OSError):  # the number is for messages only, and the disk may be full
            os.truncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        _not_for_children.add(descriptor)
        self._descriptor = descriptor
        return True

    def holder_pid(self) -> int | None:
        """Return the process that last took the lock, for messages. Only the lock proves that it still holds it."""
        try:
            content = _read_private(self._path) or b""
        except ConfigError:
            return None
        return int(content) if content.isdigit() else None

    def release(self) -> None:
        """Release the lock. Idempotent. The file stays: removing it would allow two holders."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _not_for_children.discard(descriptor)
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The holder of a home and its address. `started_at` is ISO 8601 in UTC."""

    pid: int
    url: str
    kind: HolderKind
    version: str
    started_at: str

    def to_json(self) -> JsonObject:
        """Return the shape of `run.json`."""
        return {
            "pid": self.pid,
            "url": self.url,
            "kind": self.kind,
            "version": self.version,
            "startedAt": self.started_at,
        }


def write_run(home: Home, info: RunInfo) -> None:
    """Write `run.json`. Only the holder of the lock may call this."""
    _write_beside(home.run_file, orjson.dumps(info.to_json())).replace(home.run_file)


def read_run(home: Home) -> RunInfo | None:
    """Return the content of `run.json` if it is valid and its process is alive, else None."""
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
    """Return whether the token may be sent to this URL: to this machine only, regardless of the file."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.port) and ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # signal 0 would end the process there; the lock is the proof
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
    """Return the crib that holds this home, if it has published its address.

    After a crash, other processes may reuse the pid and port in `run.json`. Only the lock proves that the holder is
    alive; without it, the token must never be sent.
    """
    info = read_run(home)
    probe = HomeLock(home)
    if info is None or not probe.try_acquire():
        return info
    probe.release()
    return None
