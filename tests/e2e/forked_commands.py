"""Runs `toolcrib` commands in forks of a process that has already imported the program.

Starting the interpreter and importing the program take ten times as long as a command itself, and the tests run many
hundred commands. Each command gets its own process, directory, environment and standard streams. With
TOOLCRIB_TEST_ALL, each command starts in a new interpreter instead.

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
"""Standard input, output and error of a command, and the pipe that reports its process id and exit code."""
_MAX_BYTES: Final = 1024 * 1024
_DIGITS: Final = 10
"""Width of the process id in the report pipe."""


class ForkServer:
    """A process with the program imported, which forks for each command."""

    def __init__(self) -> None:
        local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        subprocess.run(
            [sys.executable, __file__, str(remote.fileno())],
            env={**inherited, "PYTHONWARNINGS": "error"},
            pass_fds=[remote.fileno()],
            stdin=subprocess.DEVNULL,
            check=True,
        )
        remote.close()
        self._socket = local  # the forking process ends when this socket closes

    def run(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdin: str | None, limit: float
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, like `subprocess.run`."""
        in_read, in_write = os.pipe()
        forked = self._fork(arguments, cwd, environment, in_read)
        try:
            output, errors = forked.exchange(in_write, (stdin or "").encode(), limit)
        except subprocess.TimeoutExpired:
            forked.kill()
            raise
        return subprocess.CompletedProcess(forked.args, forked.wait(limit), output, errors)

    def start(self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> "ForkedCommand":
        """Start a command without input and leave it running."""
        return self._fork(arguments, cwd, environment, os.open(os.devnull, os.O_RDONLY))

    def _fork(self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdin: int) -> "ForkedCommand":
        outs = os.pipe(), os.pipe(), os.pipe()
        requests = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)})
        socket.send_fds(self._socket, [requests.encode()], [stdin, *(write for _, write in outs)])
        for descriptor in (stdin, *(write for _, write in outs)):
            os.close(descriptor)
        return ForkedCommand(["toolcrib", *arguments], *(read for read, _ in outs))


class ForkedCommand:
    """A forked command, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, args: list[str], output: int, errors: int, report: int) -> None:
        self.args = args
        self.stdout = open(output, encoding="utf-8")  # noqa: SIM115 as in Popen
        self.stderr = open(errors, encoding="utf-8")  # noqa: SIM115
        self.returncode: int | None = None
        self._report = open(report, "rb")  # noqa: SIM115 closed by `wait`
        self.pid = int(self._report.read(_DIGITS))

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the command and return its exit code."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._report, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._report.read())
            self._report.close()
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
        """Read both outputs to their ends, then wait for the end of the command."""
        outputs = self.exchange(None, b"", timeout)
        self.wait(timeout)
        return outputs

    def exchange(self, into: int | None, data: bytes, limit: float | None) -> tuple[str, str]:
        """Write all input, and read both outputs to their ends."""
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
                        left = left[_write(key.fd, left) :]
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
def fork_server() -> ForkServer | None:
    """Return the forking process of this test process, or None if every command starts in a new interpreter."""
    return None if os.environ.get("TOOLCRIB_TEST_ALL") else ForkServer()


def _write(into: int, left: memoryview) -> int:
    try:
        return os.write(into, left[:4096]) if left else 0
    except BrokenPipeError:
        return len(left)


def _serve(number: int) -> None:
    """Fork for each request until the socket closes. Report the process id and exit code of each fork."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    forks: dict[int, int] = {}
    with socket.socket(fileno=number) as requests, selectors.DefaultSelector() as ready:
        wakeups, wakeup_writer = os.pipe()
        os.set_blocking(wakeup_writer, False)
        signal.signal(signal.SIGCHLD, _on_child_exit)
        signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
        ready.register(requests, selectors.EVENT_READ)
        ready.register(wakeups, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == wakeups:
                    os.read(wakeups, 4096)
                    _report_ended(forks)
                    continue
                message, streams, _, _ = socket.recv_fds(requests, _MAX_BYTES, _STREAMS)
                if not message:
                    return
                *standard, report = streams
                pid = os.fork()
                if pid == 0:
                    requests.close()
                    for other in (report, *forks.values()):
                        os.close(other)
                    _run_command(json.loads(message), standard)
                os.write(report, b"%*d" % (_DIGITS, pid))
                forks[pid] = report
                for stream in standard:
                    os.close(stream)


def _on_child_exit(number: int, frame: FrameType | None) -> None:
    """Do nothing. `set_wakeup_fd` writes only for signals that have a Python handler."""


def _report_ended(forks: dict[int, int]) -> None:
    while forks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        report = forks.pop(pid)
        os.write(report, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(report)


def _run_command(command: dict[str, Any], standard: list[int]) -> NoReturn:
    """Run the command in the fork and exit."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    random.seed()
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 open until the process exits
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    code = 1
    try:
        os.chdir(command["cwd"])
        os.environ.clear()
        os.environ.update(command["environment"])
        listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # a new interpreter reads it when it starts
        sys.path[:0] = [each for each in listed if each and each not in sys.path]
        sys.argv = ["toolcrib", *command["arguments"]]
        importlib.import_module("toolcrib.cli.main").run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 prints any error, like the interpreter
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if os.fork() == 0:  # a grandchild, because tests inspect the children of their process
        _serve(int(sys.argv[1]))
