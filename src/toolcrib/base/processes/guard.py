"""The guard: one small process per crib that outlives it by a second, to end what it left behind.

It reads the live process groups from a pipe. The pipe closes when the crib ends, even by SIGKILL; then the guard sends
SIGTERM to those groups and, a second later, SIGKILL. `PR_SET_PDEATHSIG` is no alternative: it needs Python code between
fork and exec (unsafe with threads), is tied to the *thread* that started the child, does not reach grandchildren, and
exists on Linux only. A guard costs a megabyte once and one short write per server.

Must never list a group whose leader is reaped: its number may be reused.
"""

import contextlib
import logging
import os
import subprocess
from typing import Final

from toolcrib.base.processes.start import start

logger = logging.getLogger(__name__)

SHELL: Final = "/bin/sh"
_LAST_WAIT = 2.0

# A constant script. Only digits arrive through the pipe.
_SCRIPT = """
trap '' HUP INT TERM QUIT
groups=' '
while read -r what group; do
    case $what in
        +) groups="$groups$group " ;;
        -) groups="${groups%% $group *} ${groups#* $group }" ;;
    esac
done
[ "$groups" = ' ' ] && exit 0
for group in $groups; do kill -s TERM -- "-$group"; kill -s CONT -- "-$group"; done
sleep 1
for group in $groups; do kill -s KILL -- "-$group"; done
"""


class ProcessGuard:
    """Starts with the first server, and again if it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def add(self, group: int) -> None:
        """Add a process group."""
        self._groups.add(group)
        if self._process is None or not self._send(f"+ {group}\n"):
            self._begin()

    def remove(self, group: int) -> None:
        """Remove a group, before its leader is reaped."""
        if group in self._groups:
            self._groups.discard(group)
            self._send(f"- {group}\n")

    def close(self) -> None:
        """Close the pipe: the guard ends the groups that are still listed."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            if not self._groups:
                _reap(process)

    def _begin(self) -> None:
        self._drop()
        try:
            self._process = start(
                (SHELL, "-c", _SCRIPT, "toolcrib-guard"), {"PATH": "/usr/bin:/bin"}, "/", is_heard=False
            )
        except OSError as error:
            # Servers then only end with us if they watch their input; the next crib ends the others.
            logger.warning("The guard of server processes did not start: %s", error)
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._send("".join(f"+ {group}\n" for group in sorted(self._groups)))

    def _send(self, lines: str) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            return os.write(self._process.stdin.fileno(), lines.encode()) == len(lines)
        except OSError:
            return False

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            # It is dead or does not read. The next guard gets the same list, so this one must not act on it.
            process.kill()
            process.stdin.close()
            _reap(process)


def _reap(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_WAIT)
