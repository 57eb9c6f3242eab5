"""Runs a program under `strace`, which writes the files and addresses it uses into a named pipe.

The program keeps its pid, because the tracer runs as its grandchild. Only the listed system calls stop it. Linux only:
macOS has no tracer that a user may run.

Must never report a tracer that does not work here.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Final

from toolcrib.base.processes.start import start

_OPENS: Final = ("open", "openat", "openat2", "creat")
_CHANGES: Final = (
    "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
    "symlinkat", "truncate", "mknod", "mknodat",
)  # fmt: skip
_CALLS: Final = (*_OPENS, *_CHANGES, "execve", "execveat", "connect", "chdir", "fchdir")
_PROBE_WAIT: Final = 10.0


@dataclass(frozen=True, slots=True)
class TracerSupport:
    """Whether programs can be traced here. `details` is why not; `fix` the next step if there is one."""

    program: str | None = None
    details: str = ""
    fix: str | None = None


@cache
def tracer_support() -> TracerSupport:
    """Return the tracer of this system. Runs it once."""
    if sys.platform != "linux":
        return TracerSupport(None, "Recording needs strace, which exists on Linux only.")
    program = shutil.which("strace")
    if program is None:
        return TracerSupport(None, "The program strace is not installed.", "Install the package `strace`.")
    try:
        probe = start([*tracer(program, os.devnull), "/bin/true"], {}, None)
    except OSError as error:
        return TracerSupport(None, f"{program} cannot be run: {error}.")
    with probe:
        try:
            _, errors = probe.communicate(timeout=_PROBE_WAIT)
        except subprocess.TimeoutExpired:
            probe.kill()
            return TracerSupport(None, f"{program} does not end.")
    if probe.returncode != 0:
        reason = (errors.decode(errors="replace").strip().splitlines() or ["it failed"])[-1][:200]
        return TracerSupport(None, f"{program} cannot trace programs here: {reason}.")
    return TracerSupport(program)


def tracer(program: str, output: str) -> list[str]:
    """Return the words to put before a command, so that what it uses is written into a named pipe."""
    calls = ",".join(f"?{name}" for name in _CALLS)  # not every processor has all of them
    shown = ["-yy", "-s", "1", "-e", "signal=none", "-e", f"trace={calls}"]
    return [program, "-D", "-f", "--seccomp-bpf", "-qqq", *shown, "-o", output, "--"]
