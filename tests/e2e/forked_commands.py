"""`toolcrib` without its start: a process that has imported the program forks for each command.

Interpreter and imports take ten times what a command itself does, and the tests have many hundred commands. A command
gets its own process, directory, environment and standard streams; with TOOLCRIB_TEST_ALL each is started anew instead.
"""

import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

_IMPORTED: Final = (
    "toolcrib.cli.main",
    "toolcrib.cli.crib",
    "toolcrib.cli.loop",
    "typer._adapters",
    "toolcrib.web.run",
)
_STREAMS: Final = 4
"""Standard input, output and error of a command, and where it says its number and its exit code."""
_LONGEST: Final = 1024 * 1024
_DIGITS: Final = 10
"""Width of the number of a process where it is said."""


class Warm:
    """The process that forks."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        subprocess.run(
            [sys.executable, __file__, str(theirs.fileno())],
            env={**kept, "PYTHONWARNINGS": "error"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            check=True,
        )
        theirs.close()
        self._socket = ours  # it ends when this does

    def run(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdin: str | None, limit: float
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, as `subprocess.run` would."""
        in_read, in_write = os.pipe()
        forked = self._fork(arguments, cwd, environment, in_read)
        try:
            output, errors = forked.exchange(in_write, (stdin or "").encode(), limit)
        except subprocess.TimeoutExpired:
            forked.kill()
            raise
        return subprocess.CompletedProcess(forked.args, forked.wait(limit), output, errors)

    def start(self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> "Forked":
        """Start a command without input and leave it running."""
        return self._fork(arguments, cwd, environment, os.open(os.devnull, os.O_RDONLY))

    def _fork(self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdin: int) -> "Forked":
        outs = os.pipe(), os.pipe(), os.pipe()
        asked = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)})
        socket.send_fds(self._socket, [asked.encode()], [stdin, *(write for _, write in outs)])
        for descriptor in (stdin, *(write for _, write in outs)):
            os.close(descriptor)
        return Forked(["toolcrib", *arguments], *(read for read, _ in outs))


class Forked:
    """A command in a process of its own, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, args: list[str], output: int, errors: int, told: int) -> None:
        self.args = args
        self.stdout = open(output, encoding="utf-8")  # noqa: SIM115 as in Popen
        self.stderr = open(errors, encoding="utf-8")  # noqa: SIM115
        self.returncode: int | None = None
        self._told = open(told, "rb")  # noqa: SIM115 closed by `wait`
        self.pid = int(self._told.read(_DIGITS))

    def poll(self) -> int | None:
        """The exit code; None while the command runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the command; returns the exit code."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._told, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._told.read())
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both outputs to their ends and wait for the end of the command."""
        said = self.exchange(None, b"", timeout)
        self.wait(timeout)
        return said

    def exchange(self, into: int | None, data: bytes, limit: float | None) -> tuple[str, str]:
        """Write all of the input, and read both outputs to their ends."""
        parts = {out.fileno(): bytearray() for out in (self.stdout, self.stderr)}
        ends = None if limit is None else time.monotonic() + limit
        with selectors.DefaultSelector() as ready:
            for out in parts:
                ready.register(out, selectors.EVENT_READ)
            if into is not None:
                ready.register(into, selectors.EVENT_WRITE)
            left = memoryview(data)
            while ready.get_map():
                found = ready.select(None if ends is None else max(0.0, ends - time.monotonic()))
                if not found:
                    raise subprocess.TimeoutExpired(self.args, limit or 0)
                for key, _ in found:
                    if key.fd == into:
                        left = left[_written(key.fd, left) :]
                        is_over = not left
                    else:
                        chunk = os.read(key.fd, 65_536)
                        parts[key.fd] += chunk
                        is_over = not chunk
                    if is_over:
                        ready.unregister(key.fd)
                        if key.fd == into:
                            os.close(key.fd)
        self.stdout.close()
        self.stderr.close()
        output, errors = (part.decode("utf-8") for part in parts.values())
        return output, errors


@lru_cache(maxsize=1)
def warm() -> Warm | None:
    """The one of this test process; None where every command is to be started anew."""
    return None if os.environ.get("TOOLCRIB_TEST_ALL") else Warm()


def _written(into: int, left: memoryview) -> int:
    try:
        return os.write(into, left[:4096]) if left else 0
    except BrokenPipeError:
        return len(left)


def _serve(number: int) -> None:
    """Fork for whatever is asked, until the other side is gone; tell of each fork its number, and how it ended."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    forks: dict[int, int] = {}
    with socket.socket(fileno=number) as asked, selectors.DefaultSelector() as ready:
        noticed, notices = os.pipe()
        os.set_blocking(notices, False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(notices, warn_on_full_buffer=False)
        ready.register(asked, selectors.EVENT_READ)
        ready.register(noticed, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == noticed:
                    os.read(noticed, 4096)
                    _tell_ended(forks)
                    continue
                message, streams, _, _ = socket.recv_fds(asked, _LONGEST, _STREAMS)
                if not message:
                    return
                *standard, told = streams
                pid = os.fork()
                if pid == 0:
                    asked.close()
                    for other in (told, *forks.values()):
                        os.close(other)
                    _become(json.loads(message), standard)
                os.write(told, b"%*d" % (_DIGITS, pid))
                forks[pid] = told
                for stream in standard:
                    os.close(stream)


def _wake(number: int, frame: FrameType | None) -> None:
    """Without a handler of one's own nothing is written where `set_wakeup_fd` says."""


def _tell_ended(forks: dict[int, int]) -> None:
    while forks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        told = forks.pop(pid)
        os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(told)


def _become(command: dict[str, Any], standard: list[int]) -> NoReturn:
    """In the fork: be the command."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    random.seed()
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 they are open until the end
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    code = 1
    try:
        os.chdir(command["cwd"])
        os.environ.clear()
        os.environ.update(command["environment"])
        sys.argv = ["toolcrib", *command["arguments"]]
        importlib.import_module("toolcrib.cli.main").run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 as the interpreter would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if os.fork() == 0:  # no child of the tests, which look at theirs
        _serve(int(sys.argv[1]))
