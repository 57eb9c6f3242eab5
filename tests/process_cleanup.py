"""What tests started ends with them, also when the run is terminated or killed."""

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
    """Let SIGTERM end a run as Ctrl-C does: fixtures are torn down, and what they started ends."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


def end_database_with_tests(folder: Path) -> subprocess.Popen[bytes]:
    """Start a watcher that stops the PostgreSQL server of this folder once this process has ended, however it did."""
    command = [sys.executable, "-S", "-c", _WATCH, str(folder)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
