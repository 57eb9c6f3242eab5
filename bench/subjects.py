"""The measured servers, each in its own process: its start, its address, and its resource use.

A subject prints one JSON line with `event: ready` and `mcp`; the time until then is its start. Each has its own home in
a temporary folder. Bytecode is written, as it is for users, so starts are those of an installed program.

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
"""The process, the URL of its endpoint, and the seconds until it was ready."""


class DidNotStart(Exception):
    """A subject ended, or printed no ready line in time."""


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
    """Return this process's environment without settings of a crib or of bytecode."""
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
def reference_server(kind: str, folder: Path, tools: int = 0) -> Generator[Subject]:
    """Run one of `bench.servers`: `sdk` or `floor`."""
    command = [sys.executable, "-m", "bench.servers", kind, str(tools)]
    with _running(command, {}, folder / f"{kind}.log") as (process, url, seconds):
        yield Subject(kind, "echo", Address(url), process, seconds)


def light_upstream_command(tools: int = 1) -> list[str]:
    """Return the command of the light upstream. `-S` skips the search for site packages."""
    return [sys.executable, "-S", "-m", "bench.light_upstream", str(tools)]


CHILD_VARIABLES = {"PYTHONPATH": str(ROOT)}
"""The variables that the light upstream needs to be imported."""


def write_servers(home: Path, servers: Mapping[str, Mapping[str, object]]) -> None:
    """Write the servers of a crib to its file."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


def stdio_entry(tools: int = 1, *more: str) -> dict[str, object]:
    """Return the light upstream as an entry of that file. It ignores further arguments."""
    command, *words = light_upstream_command(tools)
    return {"command": command, "args": [*words, *more], "env": CHILD_VARIABLES}


@contextlib.contextmanager
def fastmcp_proxy(name: str, folder: Path, *target: str) -> Generator[Subject]:
    """Run a FastMCP proxy before an upstream: a URL, or a command."""
    command = [str(PEERS), str(ROOT / "bench" / "fastmcp_proxy.py"), *target]
    with _running(command, CHILD_VARIABLES, folder / f"{name}.log") as (process, url, seconds):
        yield Subject(name, "echo", Address(url), process, seconds)


@contextlib.contextmanager
def crib(name: str, home: Path, extra: Mapping[str, str] | None = None) -> Generator[Subject]:
    """Run `toolcrib serve` on this home, with its tools."""
    command = [str(TOOLCRIB), "serve", "--no-open", "--json", "--port", "0"]
    variables = {"TOOLCRIB_HOME": str(home), "HOME": str(home.parent), **(extra or {})}
    with _running(command, variables, home.with_suffix(".log")) as (process, url, seconds):
        token = (home / "token").read_text(encoding="utf-8").strip()
        yield Subject(name, "bench_echo", Address(url, token), process, seconds)


@contextlib.contextmanager
def event_crib(home: Path) -> Generator[Subject]:
    """Run a crib with many sessions, whose agents emit events on request."""
    home.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bench.chatty_crib", str(home)]
    with _running(command, {}, home.with_suffix(".log")) as (process, url, seconds):
        token = (home / "token").read_text(encoding="utf-8").strip()
        yield Subject("event_crib", "", Address(url, token), process, seconds)


@contextlib.contextmanager
def model_server(folder: Path) -> Generator[str]:
    """Run the scripted model. Yields its URL."""
    with _running([sys.executable, "-m", "bench.model_process"], {}, folder / "model_server.log") as (_, url, _):
        yield url


@contextlib.contextmanager
def faulty_http_server(folder: Path) -> Generator[str]:
    """Run the faulty HTTP server. Yields the URL before its paths."""
    with _running([sys.executable, "-m", "bench.faulty_http_server"], {}, folder / "addresses.log") as (_, url, _):
        yield url


def help_seconds() -> float:
    """Return the wall time of `toolcrib --help`."""
    started = time.perf_counter()
    subprocess.run([TOOLCRIB, "--help"], check=True, env=environment({}), stdout=subprocess.DEVNULL, timeout=30)
    return time.perf_counter() - started
