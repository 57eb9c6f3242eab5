"""What is measured, each a process of its own: how it starts, where it listens, what it has used.

A subject prints one JSON line with `event: ready` and `mcp`; the time until then is its start. Each has a home of its
own in a folder that is thrown away. Bytecode is written, as it is for everybody, so starts are those of an installed
program.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.client import Address

ROOT = Path(__file__).resolve().parent.parent
TOOLCRIB = Path(sys.executable).with_name("toolcrib")
PEERS = ROOT / ".tools" / "peers" / "bin" / "python"
READY_SECONDS = 60


Started = tuple[psutil.Process, str, float]
"""The process, the address of its endpoint, the seconds until it was ready."""


class DidNotStart(Exception):
    """A subject ended or stayed silent instead of getting ready."""


@dataclass(frozen=True)
class Subject:
    """A running server."""

    name: str
    tool: str
    address: Address
    process: psutil.Process
    ready_seconds: float

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        times = self.process.cpu_times()
        return times.user + times.system

    def rss_mb(self) -> float:
        """Resident memory now."""
        return self.process.memory_info().rss / 1e6


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of a crib or of bytecode."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOOLCRIB_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**kept, **extra}


def _ready_line(process: subprocess.Popen[bytes]) -> dict[str, str]:
    assert process.stdout is not None
    deadline = time.monotonic() + READY_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(deadline - time.monotonic()):
            line = process.stdout.readline()
            if not line:
                raise DidNotStart(f"It ended with {process.wait(5)}.")
            message = json.loads(line)
            if message.get("event") == "ready":
                return message
    raise DidNotStart(f"It was not ready within {READY_SECONDS} s.")


@contextlib.contextmanager
def _running(command: Sequence[str], extra: Mapping[str, str], log: Path) -> Generator[Started]:
    with log.open("ab") as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, bufsize=0, cwd=ROOT, env=environment(extra), stdout=subprocess.PIPE, stderr=stderr
        )
    try:
        try:
            url = _ready_line(process)["mcp"]
        except DidNotStart as error:
            talk = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise DidNotStart(f"{' '.join(command)}: {error}\n{talk}") from error
        yield psutil.Process(process.pid), url, time.perf_counter() - started
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        if process.stdout:
            process.stdout.close()


@contextlib.contextmanager
def other(kind: str, folder: Path, tools: int = 0) -> Generator[Subject]:
    """One of `bench.servers`: `sdk` or `floor`."""
    command = [sys.executable, "-m", "bench.servers", kind, str(tools)]
    with _running(command, {}, folder / f"{kind}.log") as (process, url, seconds):
        yield Subject(kind, "echo", Address(url), process, seconds)


def child(tools: int = 1) -> list[str]:
    """The command of the light upstream, without the time that site packages take to be found."""
    return [sys.executable, "-S", "-m", "bench.light_upstream", str(tools)]


CHILD_VARIABLES = {"PYTHONPATH": str(ROOT)}
"""What the light upstream needs to be found."""


def write_servers(home: Path, servers: Mapping[str, Mapping[str, object]]) -> None:
    """The servers of a crib, as in its file."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


def stdio_entry(tools: int = 1, *more: str) -> dict[str, object]:
    """The light upstream as an entry of that file, with more words that mean nothing to it."""
    command, *words = child(tools)
    return {"command": command, "args": [*words, *more], "env": CHILD_VARIABLES}


@contextlib.contextmanager
def peer(name: str, folder: Path, *target: str) -> Generator[Subject]:
    """A FastMCP proxy before an upstream: an address, or a command."""
    command = [str(PEERS), str(ROOT / "bench" / "fastmcp_proxy.py"), *target]
    with _running(command, CHILD_VARIABLES, folder / f"{name}.log") as (process, url, seconds):
        yield Subject(name, "echo", Address(url), process, seconds)


@contextlib.contextmanager
def crib(name: str, home: Path, extra: Mapping[str, str] | None = None) -> Generator[Subject]:
    """`toolcrib serve` on this home, with the tools that lie in it."""
    command = [str(TOOLCRIB), "serve", "--no-open", "--json", "--port", "0"]
    variables = {"TOOLCRIB_HOME": str(home), "HOME": str(home.parent), **(extra or {})}
    with _running(command, variables, home.with_suffix(".log")) as (process, url, seconds):
        token = (home / "token").read_text(encoding="utf-8").strip()
        yield Subject(name, "bench_echo", Address(url, token), process, seconds)


@contextlib.contextmanager
def talker(home: Path) -> Generator[Subject]:
    """A crib with many sessions, whose agents talk as much as they are asked to."""
    home.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bench.chatty_crib", str(home)]
    with _running(command, {}, home.with_suffix(".log")) as (process, url, seconds):
        token = (home / "token").read_text(encoding="utf-8").strip()
        yield Subject("talker", "", Address(url, token), process, seconds)


@contextlib.contextmanager
def thinker(folder: Path) -> Generator[str]:
    """The scripted model; gives its address."""
    with _running([sys.executable, "-m", "bench.model_process"], {}, folder / "thinker.log") as (_, url, _):
        yield url


@contextlib.contextmanager
def faulty_http_server(folder: Path) -> Generator[str]:
    """Addresses that misbehave; gives what their paths are put to."""
    with _running([sys.executable, "-m", "bench.faulty_http_server"], {}, folder / "addresses.log") as (_, url, _):
        yield url


def help_seconds() -> float:
    """Wall time of `toolcrib --help`."""
    started = time.perf_counter()
    subprocess.run([TOOLCRIB, "--help"], check=True, env=environment({}), stdout=subprocess.DEVNULL, timeout=30)
    return time.perf_counter() - started
