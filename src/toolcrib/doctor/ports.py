"""Finds the program that listens on a local port, as far as the system reveals it.

Must never send data to the listener.
"""

import ipaddress
import socket
import sys
from pathlib import Path

_LISTENING = "0A"
_LOOK_SECONDS = 1.0


def listener_on(host: str, port: int) -> str | None:
    """Return a description of the program that listens on the port; None if the port is free."""
    address = "127.0.0.1" if host == "localhost" else host
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    except ValueError:
        return None
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_LOOK_SECONDS)
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
