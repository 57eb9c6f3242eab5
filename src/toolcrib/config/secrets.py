"""Values that a program gives: `!command` in our own and in oh-my-pi's files.

Only `connect` uses this, and only for trusted definitions. The command is split like a shell would and run without
one, with nothing of this process's environment but the base names, for ten seconds at most; its answer is kept.
"""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping

import anyio
import anyio.abc

from toolcrib.errors import Unavailable

BASE_NAMES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
TIMEOUT = 10.0
MAX_OUTPUT = 64 * 1024


class SecretCommands:
    """Runs each command once and remembers what it printed; a failure is not remembered."""

    def __init__(self, environment: Mapping[str, str], timeout: float = TIMEOUT) -> None:
        self._environment = {name: environment[name] for name in BASE_NAMES if name in environment}
        self._timeout = timeout
        self._known: dict[str, str] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def output(self, command: str) -> str:
        """The trimmed output of a command. Raises `secret.command_failed`, never with what it printed."""
        async with self._locks.setdefault(command, anyio.Lock()):
            if command not in self._known:
                self._known[command] = await self._run(command)
            return self._known[command]

    async def _run(self, command: str) -> str:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise _failed(f"the command cannot be split into words: {error}") from None
        if not words:
            raise _failed("the command is empty")
        try:
            process = await anyio.open_process(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _failed(f"{words[0]} cannot be started: {getattr(error, 'strerror', None) or error}") from None
        try:
            with anyio.fail_after(self._timeout):
                return await self._collect(process, words[0])
        except TimeoutError:
            raise _failed(f"{words[0]} did not answer within {self._timeout:g} seconds") from None
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)

    async def _collect(self, process: anyio.abc.Process, name: str) -> str:
        output = b""
        assert process.stdout is not None
        async for chunk in process.stdout:
            output += chunk
            if len(output) > MAX_OUTPUT:
                raise _failed(f"{name} printed more than {MAX_OUTPUT // 1024} KB")
        code = await process.wait()
        if code != 0:
            raise _failed(f"{name} ended with exit code {code}")
        return output.decode("utf-8", "replace").strip()


async def _end(process: anyio.abc.Process) -> None:
    """Leave nothing of the command behind, its children included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.aclose()


def _failed(reason: str) -> Unavailable:
    return Unavailable("secret.command_failed", f"A secret could not be had: {reason}.")
