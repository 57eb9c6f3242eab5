"""Runs programs that print a value: `!command` in our own files and in those of oh-my-pi.

Used only to connect to trusted definitions. The command is split like in a shell but runs without one, in the user's
home directory, with only the base and network variables, and for at most ten seconds. Its output is cached.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.abc

from toolcrib.base.processes.start import BASE_NAMES, NETWORK_NAMES
from toolcrib.model.errors import Unavailable

TIMEOUT = 10.0
MAX_OUTPUT = 64 * 1024


_EXPANSION = re.compile(r"\$[A-Za-z_0-9({@*#?!$-]|`")
_ASSIGNMENT = re.compile(r"\s*[A-Za-z_]\w*=")
_OPERATORS = frozenset("|&;<>()*?\n")


def shell_syntax(command: str) -> str | None:
    """Return the first part of a command that only a shell would interpret; None if it runs the same without one."""
    if _ASSIGNMENT.match(command):
        return "="
    quote = ""
    position = 0
    while position < len(command):
        mark = command[position]
        expansion = _EXPANSION.match(command, position) if quote != "'" else None
        starts_word = position == 0 or command[position - 1].isspace()
        if mark == "\\" and quote != "'":
            position += 1
        elif mark in ("'", '"') and quote in ("", mark):
            quote = "" if quote else mark
        elif expansion is not None:
            return expansion[0]
        elif not quote and (mark in _OPERATORS or (mark in "~#" and starts_word)):
            return mark.strip() or "a line break"
        position += 1
    return None


def start_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory for programs outside projects: the user's home directory.

    In the crib's own working directory, a repository could put its files before those of the program: `python -m`
    imports from there, and `npx` looks there first.
    """
    home = environment.get("HOME") or environment.get("USERPROFILE")
    path = Path(home) if home else Path(os.sep)
    return path if path.is_absolute() and path.is_dir() else Path(os.sep)


class SecretCommands:
    """Runs each command once and caches its output; a failure is not cached."""

    def __init__(self, environment: Mapping[str, str], timeout: float = TIMEOUT) -> None:
        self._environment = {name: environment[name] for name in (*BASE_NAMES, *NETWORK_NAMES) if name in environment}
        self._directory = start_directory(environment)
        self._timeout = timeout
        self._known: dict[str, str] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def output(self, command: str) -> str:
        """Return the trimmed output of a command. Raises `secret.command_failed`, never with the output."""
        async with self._locks.setdefault(command, anyio.Lock()):
            if command not in self._known:
                self._known[command] = await self._run(command)
            return self._known[command]

    async def _run(self, command: str) -> str:
        if (syntax := shell_syntax(command)) is not None:
            raise _failure(f'it uses shell syntax ("{syntax}"), but runs without a shell')
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise _failure(f"the command cannot be split into words: {error}") from None
        if not words:
            raise _failure("the command is empty")
        try:
            process = await anyio.open_process(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd=self._directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _failure(f"{words[0]} cannot be started: {getattr(error, 'strerror', None) or error}") from None
        try:
            with anyio.fail_after(self._timeout):
                return await self._collect(process, words[0])
        except TimeoutError:
            raise _failure(f"{words[0]} did not answer within {self._timeout:g} seconds") from None
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)

    async def _collect(self, process: anyio.abc.Process, name: str) -> str:
        output = b""
        assert process.stdout is not None
        async for chunk in process.stdout:
            output += chunk
            if len(output) > MAX_OUTPUT:
                raise _failure(f"{name} printed more than {MAX_OUTPUT // 1024} KB")
        code = await process.wait()
        if code != 0:
            raise _failure(f"{name} ended with exit code {code}")
        return output.decode("utf-8", "replace").strip()


async def _end(process: anyio.abc.Process) -> None:
    """Kill the command and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.aclose()


def _failure(reason: str) -> Unavailable:
    return Unavailable("secret.command_failed", f"The command for a secret failed: {reason}.")
