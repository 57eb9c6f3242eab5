"""Ends what tests started, also when the run is terminated or killed."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

_WATCH = """
import os, pathlib, shutil, signal, sys, time
sys.stdin.buffer.read()  # ends when the process that runs the tests does
folder = pathlib.Path(sys.argv[1])
try:
    pid = int((folder / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGINT)
    for _ in range(200):
        os.kill(pid, 0)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
except (OSError, ValueError, IndexError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


def end_on_sigterm() -> None:
    """Make SIGTERM end a run like Ctrl-C, so that fixtures are torn down."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


def end_database_with_tests(folder: Path) -> subprocess.Popen[bytes]:
    """Start a watcher that stops the PostgreSQL server of this folder after the end of this process."""
    command = [sys.executable, "-S", "-c", _WATCH, str(folder)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
