"""Checks the environment of a crib: Python, settings, home, lock holder, port, open files, disk and clock.

Must never create, repair or lock anything during a check, or send data to a program that listens on the port.
"""

import ipaddress
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from toolcrib.base.home import Home, find_holder, read_run
from toolcrib.base.processes.orphans import leftovers, sweep
from toolcrib.doctor.finding import Finding, counted, of_problem
from toolcrib.doctor.surroundings import Surroundings

_OLDEST = (3, 11)
_LITTLE, _SCARCE = 1_000_000_000, 100_000_000
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{43,512}\s*")
_BUILT = 1_700_000_000
"""A moment before this program existed; a correct clock is never behind it."""
_AHEAD = 300.0
_LEFTOVER_SECONDS = 60.0
_MIN_FILES = 1_024
"""The number of open files a crib needs to work well."""
_LISTENING = "0A"
_PROBE_SECONDS = 1.0


def check_python(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that Python is new enough."""
    version, wanted = ".".join(map(str, surroundings.python)), ".".join(map(str, _OLDEST))
    if surroundings.python < _OLDEST:
        message = f"Python {version} is too old; Toolcrib needs {wanted} or newer."
        yield Finding("python", "error", message, sys.executable, f"uv python install {wanted}")
    else:
        yield Finding("python", "ok", f"Python {version}.", sys.executable)


def check_settings(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that every setting is valid and that the crib would listen on loopback only."""
    for problem in surroundings.loaded.errors:
        yield of_problem("settings", "error", problem)
    for problem in surroundings.loaded.problems:
        yield of_problem("settings", "warning", problem)
    host = surroundings.settings.host
    if host not in ("localhost", "::1") and not host.startswith("127."):
        message = f"The crib would not start: {host} is not a loopback address."
        yield Finding(
            "settings", "error", message, surroundings.settings.origin("host"), "toolcrib serve --host 127.0.0.1"
        )
    if not surroundings.loaded.errors and not surroundings.loaded.problems:
        yield Finding("settings", "ok", "All settings are valid.")


def check_home(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that the home is a writable directory of this user with a valid token."""
    root = surroundings.home.root
    if not os.path.lexists(root):
        yield _missing_home(root)
        return
    if not root.is_dir():
        yield Finding("home", "error", f"The home {root} is not a directory.", fix=f"mv {root} {root}.old")
        return
    owner = root.lstat().st_uid
    if sys.platform != "win32" and owner != os.geteuid():
        message = f"The home {root} belongs to another user."
        yield Finding("home", "error", message, f"uid {owner}", "Choose another home with --home or TOOLCRIB_HOME.")
        return
    if not os.access(root, os.W_OK | os.X_OK):
        yield Finding("home", "error", f"The home {root} cannot be written.", fix=f"chmod 700 {root}")
        return
    yield from _token(surroundings.home)
    yield Finding("home", "ok", f"The home is {root}.")


def _missing_home(root: Path) -> Finding:
    """Return a note, or an error if the home cannot be created."""
    parent = next(each for each in root.absolute().parents if os.path.lexists(each))
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return Finding("home", "note", f"There is no home at {root} yet.", fix="toolcrib serve")
    what = "cannot be written" if parent.is_dir() else "is not a directory"
    fix = "Choose another home with --home or TOOLCRIB_HOME."
    return Finding("home", "error", f"The home {root} cannot be created.", f"{parent} {what}.", fix)


def _token(home: Home) -> Iterator[Finding]:
    file = home.token_file
    try:
        content = file.read_bytes() if file.is_file() else None
    except OSError as error:
        yield Finding("home", "error", f"Could not read the owner's token: {error.strerror}.", str(file))
        return
    if content is not None and not _TOKEN.fullmatch(content[:600]):
        message = "The file of the owner's token contains no valid token."
        yield Finding("home", "error", message, str(file), f"rm {file} (the next start creates a new token)")


def check_modes(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that other users cannot read the home."""
    home = surroundings.home
    if sys.platform == "win32" or not home.root.is_dir():
        return
    wrong = list(_wrong_modes(home))
    for path, mode, wanted in wrong:
        yield Finding(
            "modes",
            "error",
            f"Other users can access {path}.",
            f"mode {mode:04o}, should be {wanted:04o}",
            f"chmod {wanted:o} {path}",
            partial(_chmod, path, wanted),
        )
    if not wrong:
        yield Finding("modes", "ok", "The home is private.")


def _wrong_modes(home: Home) -> Iterator[tuple[Path, int, int]]:
    for directory in (home.root, home.tools, home.logs):
        if directory.is_dir() and (mode := stat.S_IMODE(directory.stat().st_mode)) & 0o077:
            yield directory, mode, 0o700
    for directory in (home.root, home.logs):
        if not os.access(directory, os.R_OK):
            continue
        for path in sorted(directory.iterdir()):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and (mode := stat.S_IMODE(status.st_mode)) & 0o077:
                yield path, mode, 0o600


def _chmod(path: Path, mode: int) -> str:
    path.chmod(mode)
    return f"{path} has mode {mode:04o}."


def check_holder(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that the crib that holds the home is reachable and that no stale files are left."""
    home = surroundings.home
    if not home.lock_file.is_file():
        return
    holder = find_holder(home)
    if holder is not None:
        yield Finding("holder", "ok", f"A crib is running at {holder.url}.", f"process {holder.pid}, {holder.kind}")
    elif os.path.lexists(home.run_file):
        was = read_run(home)
        evidence = (
            f"the process id {was.pid} is in use by another process" if was is not None else "its process is gone"
        )
        message = "run.json describes a crib that is no longer running."
        yield Finding("holder", "warning", message, evidence, f"rm {home.run_file}", partial(_remove, home.run_file))
    else:
        yield Finding("holder", "ok", "No crib is running.")
    yield from _leftovers(home)


def _leftovers(home: Home) -> Iterator[Finding]:
    for path in sorted(home.root.glob(".*.tmp")):
        if path.is_file() and time.time() - path.lstat().st_mtime > _LEFTOVER_SECONDS:
            yield Finding(
                "holder", "note", f"{path.name} is left over from an interrupted write.", str(path), f"rm {path}",
                partial(_remove, path),
            )  # fmt: skip


def _remove(path: Path) -> str:
    path.unlink(missing_ok=True)
    return f"Removed {path}."


def check_orphans(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that no server process outlived the crib that started it."""
    home = surroundings.home
    if not home.lock_file.is_file() or find_holder(home) is not None:
        return  # the processes belong to the running crib
    left = leftovers(home.processes, home.marker)
    if not left:
        yield Finding("processes", "ok", "No orphaned server processes.")
        return
    numbers = " ".join(map(str, left))
    message = f"{counted(len(left), 'process')} of servers still running after their crib ended."
    yield Finding(
        "processes", "warning", message, f"process {numbers}", f"kill {numbers}",
        lambda: _sweep(home),
    )  # fmt: skip


def _sweep(home: Home) -> str:
    swept = sweep(home.processes, home.marker)
    kept = f"; {len(swept.left)} belong to no server and were not ended" if swept.left else ""
    return f"Ended {counted(len(swept.ended), 'process')}{kept}."


def check_port(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that the port is free or used by the crib itself."""
    host, port, home = surroundings.settings.host, surroundings.settings.port, surroundings.home
    holder = find_holder(home) if home.lock_file.is_file() else None
    if holder is not None or not port:
        return  # already listening, or any port will do
    occupant = _listener_on(host, port)
    if occupant is None:
        yield Finding("port", "ok", f"Port {port} is free.")
    else:
        message = f"Port {port} is in use by another program, so `toolcrib serve` would not start."
        yield Finding("port", "error", message, occupant, f"toolcrib serve --port {port + 1}")


def check_disk(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that there is disk space for the audit log."""
    place = next(each for each in (surroundings.home.root, *surroundings.home.root.parents) if each.is_dir())
    free = surroundings.free_bytes(place)
    evidence = f"{free / 1_000_000:.0f} MB free at {place}"
    if free < _SCARCE:
        message = "The disk is almost full; a crib that cannot record calls runs none."
        yield Finding("disk", "error", message, evidence, "Free some space, or move the home with --home.")
    elif free < _LITTLE:
        yield Finding("disk", "warning", "The disk has little free space.", evidence, "Free some space.")
    else:
        yield Finding("disk", "ok", "The disk has enough free space.", evidence)


def check_clock(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that the clock is not behind this program's release or its own files."""
    now = surroundings.now()
    if now < _BUILT:
        evidence = time.strftime("%Y-%m-%d", time.gmtime(now))
        yield Finding("clock", "error", "The clock of this machine is wrong.", evidence, "timedatectl set-ntp true")
        return
    files = [
        path
        for path in (surroundings.home.database, surroundings.home.audit_head, surroundings.home.run_file)
        if path.is_file()
    ]
    ahead = [path for path in files if path.stat().st_mtime > now + _AHEAD]
    for path in ahead:
        written = time.strftime("%Y-%m-%d %H:%M", time.gmtime(path.stat().st_mtime))
        message = f"{path.name} has a modification time in the future: the clock was set back, or was wrong before."
        yield Finding("clock", "warning", message, f"written {written} UTC", "timedatectl set-ntp true")
    if not ahead:
        yield Finding("clock", "ok", "The clock is plausible.")


def check_files(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that a crib may open enough files."""
    holder = find_holder(surroundings.home) if surroundings.home.lock_file.is_file() else None
    allowed = surroundings.allowed_files(holder.pid if holder else None)
    if allowed is None or allowed >= _MIN_FILES:
        yield Finding("files", "ok", "The limit on open files is sufficient.", f"limit {allowed or 'none'}")
        return
    subject = f"The running crib (process {holder.pid})" if holder else "A crib started here"
    message = f"{subject} may open only {allowed} files, which limits connections and servers."
    more = 4 * _MIN_FILES
    fix = f"Run `ulimit -n {more}` before `toolcrib serve`, or set LimitNOFILE={more} in its service file."
    yield Finding("files", "warning", message, f"limit {allowed}, at least {_MIN_FILES} recommended", fix)


def _listener_on(host: str, port: int) -> str | None:
    """Return a description of the program that listens on the port; None if the port is free."""
    address = "127.0.0.1" if host == "localhost" else host
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    except ValueError:
        return None
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        if probe.connect_ex((address, port)) != 0:
            return None
    return _program(port) or "another user's program"


def _program(port: int) -> str | None:
    if sys.platform != "linux":
        return None
    inodes = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _holds(process, inodes):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            return f"process {process.name} ({words[:200]})"
    return None


def _inodes(port: int) -> list[str]:
    found: list[str] = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        rows = [line.split() for line in lines]
        found += [row[9] for row in rows if row[3] == _LISTENING and row[1].endswith(f":{port:04X}")]
    return found


def _holds(process: Path, sockets: set[str]) -> bool:
    try:
        return any(str(each.readlink()) in sockets for each in (process / "fd").iterdir())
    except OSError:  # belongs to another user, or has exited
        return False
