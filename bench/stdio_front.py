"""The cost of a front that joins a running crib, until its first answer."""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import subjects
from toolcrib.model.json import JsonObject

HELLO: JsonObject = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "0"},
}


class FrontCost(NamedTuple):
    """CPU and memory of one front after it has answered `initialize`."""

    cpu_ms: float
    rss_mb: float


def front_cost(home: Path) -> FrontCost:
    """Start a front for this home, whose crib runs, and measure it after its first answer."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    command = [str(subjects.TOOLCRIB), "stdio", "--home", str(home)]
    with subprocess.Popen(
        command, env=subjects.environment({}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as front:
        assert front.stdin is not None
        assert front.stdout is not None
        front.stdin.write(json.dumps(message).encode() + b"\n")
        front.stdin.flush()
        assert b'"result"' in front.stdout.readline()
        process = psutil.Process(front.pid)
        times, memory = process.cpu_times(), process.memory_info().rss
        front.stdin.close()
        front.wait(30)
    return FrontCost(1000 * (times.user + times.system), memory / 1e6)
