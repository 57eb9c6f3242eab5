"""The faults that `bench.faults` goes through: misbehaving upstream servers, and the requests that trigger them.

Programs are the test servers in `tests/upstreams`; addresses are those of `bench.faulty_http_server`. The requests
repeat the fault again and again, and each answer proves that it happened.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.client import FIRST_ID, Address, plain, prepare
from bench.loads import TEXT
from bench.subjects import ROOT

SECONDS = 1.0
MANY, FEW = 16, 4
"""Concurrent callers where answers are missing, and where they are fast. More would be a load rather than a fault."""
STOP_SECONDS = 4.5
"""The time it takes to end a program that ignores its shutdown."""
SHORT_MS, LONGER_MS = 250, 300
CONNECTED = b'"state":"connected"'
VARIABLES = {"PYTHONPATH": str(ROOT / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}

Entry = dict[str, object]


@dataclass(frozen=True)
class Act:
    """A request that triggers or checks a fault: a POST for a server, or a call of its tool.

    The answer must contain `expected`.

    """

    server: str
    expected: bytes
    post: str = ""
    tool: str = ""
    arguments: Mapping[str, object] | None = None

    def request(self, address: Address) -> bytes:
        """Return the request as bytes."""
        if self.post:
            return plain(address, "POST", f"/api/servers/{self.server}/{self.post}")
        name = f"{self.server}_{self.tool}"
        return prepare(address, "tools/call", {"name": name, "arguments": self.arguments or {}}, name)(FIRST_ID)


@dataclass(frozen=True)
class Fault:
    """A kind of fault: bad servers, the requests that trigger it in turn, the number of callers, and the seconds.

    If `is_arrival`, adding the servers is the fault; it lasts until their tools are known, and no request is sent.

    """

    what: str
    servers: Mapping[str, Entry]
    acts: Sequence[Act]
    at_once: int = 1
    seconds: float = SECONDS
    is_arrival: bool = False


def faults(url: str) -> list[Fault]:
    """Return all faults. `url` is that of the faulty HTTP server."""
    return [*_greetings(), *_outputs(), *_lists(), *_addresses(url), *_stops()]


def call(tool: str, expected: str, server: str = "bad", **arguments: object) -> Act:
    """Return a call of a tool."""
    return Act(server, expected.encode(), tool=tool, arguments=arguments)


def post(what: str, server: str = "bad", expected: bytes = CONNECTED) -> Act:
    """Return an operation on a server."""
    return Act(server, expected, post=what)


def program(module: str, *words: str, **more: object) -> Entry:
    """Return an entry of one of the test servers."""
    return {"command": sys.executable, "args": ["-S", "-m", f"upstreams.{module}", *words], "env": VARIABLES, **more}


def address(url: str, **more: object) -> Entry:
    """Return an entry of an HTTP server."""
    return {"type": "http", "url": url, **more}


def misbehaving(word: str) -> dict[str, Entry]:
    """Return a server that misbehaves when its tools are called. The word only makes the definition unique."""
    return {"bad": program("misbehaving", word)}


AGAIN = post("test")


def _greetings() -> list[Fault]:
    exits = {
        "greeted": program("misbehaving", "leaves", "initialize"),
        "listed": program("misbehaving", "leaves", "tools/list"),
        "called": program("misbehaving", "leaves", "tools/call"),
    }
    leave = [post("test", name, b"exit code 3") for name in ("greeted", "listed")]
    silent = program("misbehaving", "silent", "initialize", timeout=LONGER_MS)
    return [
        Fault("exits at each step", exits, [*leave, call("echo", "exit code 3", "called"), post("test", "called")]),
        Fault("greetings that hang", {"bad": silent}, [post("test", expected=b"server.timeout")]),
        Fault(
            "calls that hang",
            {"bad": program("misbehaving", timeout=SHORT_MS)},
            [call("sleep", "did not answer")],
            at_once=MANY,
        ),
    ]


def _outputs() -> list[Fault]:
    broken = [call("half", "cannot be read"), AGAIN, call("babble", "other than messages"), AGAIN]
    return [
        Fault("garbage and half lines", misbehaving("garbage"), [call("garbage", "after garbage"), *broken]),
        Fault("lines of 50 MB", misbehaving("huge"), [call("huge", "more than", megabytes=50)]),
        Fault("bad UTF-8", misbehaving("bytes"), [call("bytes", "caf")]),
        Fault("duplicate and foreign ids", misbehaving("ids"), [call("ids", "truth")]),
        Fault("1 GB of stderr", misbehaving("stderr"), [call("stderr", "written", megabytes=1024)]),
    ]


def _lists() -> list[Fault]:
    """A test of a connected server lists its tools again. The crib handles list changes at most once a second."""
    crowd = program("legacy", "crowd", "9700")
    new = {"new": program("legacy", "crowd", "9990")}
    return [
        Fault("an endless cursor", {"bad": program("legacy", "endless")}, [AGAIN]),
        Fault("10,000 tools that appear", new, [call("echo", "content", "new")], is_arrival=True),
        Fault("10,000 tools that change", {"bad": crowd}, [call("grow", "content")], seconds=3),
        Fault("a storm of list_changed", misbehaving("storm"), [call("storm", "stormed", times=100_000)]),
    ]


def _addresses(url: str) -> list[Fault]:
    ends = {name: address(f"{url}/{name}") for name in ("resets", "cuts")}
    reset = [call("echo", "MCP error", name, text=TEXT) for name in ends]
    hang = call("echo", "did not answer", text=TEXT)
    refused = [*[call("echo", '"isError":true', text=TEXT)] * 9, post("test", expected=b'"state"')]
    return [
        Fault("resets over HTTP", ends, reset),
        Fault("half-open HTTP", {"bad": address(f"{url}/hangs", timeout=SHORT_MS)}, [hang], at_once=MANY),
        Fault("a storm of 401", {"bad": address(f"{url}/refuses")}, refused, at_once=FEW),
    ]


def _stops() -> list[Fault]:
    names = [f"bad{number}" for number in range(FEW)]
    reload = [post("reload", name) for name in names]
    return [
        Fault(what, {name: program("misbehaving", way, name) for name in names}, reload, FEW, STOP_SECONDS)
        for what, way in (("SIGTERM ignored", "term"), ("grandchildren that stay", "family"))
    ]
