"""A user at a terminal: runs `toolcrib` as a program, with its own home and environment."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.forked_commands import ForkedCommand, fork_server
from http_clients import NO_KEYRING
from toolcrib.model.json import Json, JsonObject

LIMIT = 60.0
Running = subprocess.Popen[str] | ForkedCommand
"""A command that was started and may still run."""
TOOLS = '''
"""Tools to try from the command line."""

import time
from pathlib import Path

import anyio

from toolcrib import tool


@tool(read_only=True)
def greet(name: str, times: int = 1) -> str:
    """Greet somebody.

    As often as is asked.
    """
    return f"Hello, {name}. " * times


@tool
def fail(message: str) -> str:
    """Raise."""
    raise ValueError(message)


@tool
def hostile() -> str:
    """Return \\x1b[31mwhat\\x1b[0m a terminal\\u202e would obey."""
    return "\\x1b]52;c;ZXZpbA==\\x07\\u202egpj.exe\\r done"


@tool(privileged=True)
def secret() -> str:
    """Only for those who were given it."""
    return "opened"


@tool(timeout=0.2)
def stuck() -> str:
    """Hang where nothing can stop it."""
    time.sleep(300)
    return "never"


@tool(timeout=0.2)
async def stubborn() -> str:
    """Hang, and take no notice of being cancelled."""
    while True:
        try:
            await anyio.sleep(300)
        except BaseException:
            pass


@tool
def hold(started: str, until: str) -> str:
    """Write one file, then wait for another."""
    Path(started).touch()
    for _ in range(3000):
        if Path(until).exists():
            return "held"
        time.sleep(0.01)
    raise TimeoutError(until)
'''


@dataclass(frozen=True)
class Shell:
    """A user's working directory and environment variables."""

    folder: Path
    variables: dict[str, str]

    @classmethod
    def at(cls, folder: Path) -> "Shell":
        """Return a shell with an empty HOME and a crib's home with the tools above."""
        (folder / "home" / "tools").mkdir(parents=True)
        (folder / "home" / "tools" / "lab.py").write_text(TOOLS, encoding="utf-8")
        variables = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TOOLCRIB_HOME": str(folder / "home")}
        inherited = {
            name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ
        }  # so that commands import the tree under test
        return cls(folder, {**inherited, **variables, **NO_KEYRING, "TOOLCRIB_PORT": "0", "PYTHONWARNINGS": "error"})

    @property
    def home(self) -> Path:
        """The crib's home."""
        return self.folder / "home"

    def having(self, **variables: str) -> "Shell":
        """Return the same shell with more variables."""
        return replace(self, variables={**self.variables, **variables})

    def run(
        self, *arguments: str, stdin: str | None = None, preexec: Sequence[str] = ()
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end. `preexec` is a command prefix, such as `sh -c 'umask 0; exec "$@"' sh`."""
        if not preexec and (server := fork_server()) is not None:
            return server.run(arguments, self.folder, self.variables, stdin, LIMIT)
        command = [*preexec, *self.command(*arguments)]
        return subprocess.run(
            command, cwd=self.folder, env=self.variables, input=stdin, capture_output=True, text=True, timeout=LIMIT
        )

    def json(self, *arguments: str) -> Json:
        """Run a command with `--json` and return its output. Fails if the command does."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *arguments: str) -> Running:
        """Start a command and leave it running."""
        if (server := fork_server()) is not None:
            return server.start(arguments, self.folder, self.variables)
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def serving(self, *flags: str) -> "Generator[Serving]":
        """Run `toolcrib serve` until the block ends. Yields when it is ready."""
        process = self.start("serve", "--json", *flags)
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield Serving(process, json.loads(line))
        finally:
            watchdog.cancel()
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            process.communicate(timeout=LIMIT)

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """Return the command line of `toolcrib` with these arguments."""
        return [sys.executable, "-m", "toolcrib", *arguments]


@dataclass(frozen=True)
class Serving:
    """A running `toolcrib serve` and its ready line."""

    process: Running
    ready: JsonObject

    @property
    def url(self) -> str:
        """The URL of the crib."""
        return str(self.ready["mcp"]).removesuffix("/mcp")

    @property
    def port(self) -> int:
        """The port of the crib."""
        return int(self.url.rpartition(":")[2])

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT)


def modes(root: Path) -> dict[str, int]:
    """Return the modes of a directory and everything below it."""
    paths = [root, *root.rglob("*")]
    return {str(path.relative_to(root)): os.lstat(path).st_mode & 0o777 for path in paths}
