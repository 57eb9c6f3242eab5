"""Stopping `toolcrib serve`: calls in flight finish, new calls are refused, and a front takes over and hands back."""

import json
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.shell import LIMIT, Serving, Shell
from http_clients import PLAIN
from toolcrib.model.json import JsonObject

HELLO: JsonObject = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
CLIENT: JsonObject = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell.at(tmp_path)


def wait_for(path: Path) -> None:
    pause = threading.Event()
    for _ in range(int(LIMIT * 50)):
        if path.exists():
            return
        pause.wait(0.02)
    raise AssertionError(path)


@contextmanager
def owner(shell: Shell, url: str) -> Generator[httpx2.Client]:
    secret = (shell.home / "token").read_text(encoding="ascii").strip()
    headers = {"authorization": f"Bearer {secret}", "accept": "application/json, text/event-stream"}
    with httpx2.Client(base_url=url, headers=headers, trust_env=False, verify=PLAIN, timeout=LIMIT) as client:
        yield client


class HeldCall:
    """A call of `lab/hold` in flight, in a thread."""

    def __init__(self, shell: Shell, crib: Serving) -> None:
        self.started, self.until = shell.folder / "started", shell.folder / "until"
        self.answer: httpx2.Response | None = None
        arguments = {"started": str(self.started), "until": str(self.until)}

        def call() -> None:
            with owner(shell, crib.url) as client, suppress(httpx2.HTTPError):
                self.answer = client.post("/api/tools/lab/hold/call", json={"arguments": arguments})

        self.thread = threading.Thread(target=call, daemon=True)
        self.thread.start()
        wait_for(self.started)


def stopping(crib: Serving) -> str:
    """Send SIGTERM and return the line in which the crib reports its pending calls."""
    crib.process.send_signal(signal.SIGTERM)
    assert crib.process.stderr is not None
    return crib.process.stderr.readline()


def test_calls_in_flight_finish_and_new_ones_are_refused_while_the_crib_stops(shell: Shell) -> None:
    with shell.serving() as crib:
        held = HeldCall(shell, crib)
        assert "1 call to finish (lab/hold)" in stopping(crib)
        with owner(shell, crib.url) as client:
            refused = client.post("/api/tools/lab/greet/call", json={"arguments": {"name": "Ada"}})
            assert (refused.status_code, refused.json()["code"]) == (503, "crib.stopping")
            assert refused.headers["retry-after"]
            assert client.get("/healthz").status_code == 503
            assert client.get("/api/audit").status_code == 200
            legacy = client.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": HELLO})
            assert (legacy.status_code, legacy.json()["id"]) == (503, 7)
            assert legacy.json()["error"]["data"]["code"] == "crib.stopping"
            call = {"name": "lab_greet", "arguments": {"name": "Ada"}, "_meta": CLIENT}
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "lab_greet"}
            message = {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": call}
            modern = client.post("/mcp", json=message, headers=headers)
            assert (modern.status_code, modern.json()["id"]) == (503, 8)
            assert modern.headers["retry-after"]
        held.until.touch()
        held.thread.join(LIMIT)
        assert held.answer is not None
        assert held.answer.json()["content"][0]["text"] == "held"
        assert crib.process.wait(LIMIT) == 143
    assert shell.json("audit", "verify")["ok"] is True


def test_second_signal_ends_the_wait(shell: Shell) -> None:
    with shell.having(TOOLCRIB_STOP_GRACE="3600").serving() as crib:
        HeldCall(shell, crib)
        assert "Waiting up to 3600 s" in stopping(crib)
        assert crib.end(signal.SIGTERM) == 143


def test_calls_get_no_more_than_the_grace_time(shell: Shell) -> None:
    with shell.having(TOOLCRIB_STOP_GRACE="0.2").serving() as crib:
        HeldCall(shell, crib)
        assert "Waiting up to 0.2 s" in stopping(crib)
        assert crib.process.wait(LIMIT) == 143


class Front:
    """A `toolcrib stdio` process and its client."""

    def __init__(self, shell: Shell) -> None:
        self.process = subprocess.Popen(
            shell.command("stdio"),
            cwd=shell.folder,
            env=shell.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._watchdog = threading.Timer(2 * LIMIT, self.process.kill)
        self._watchdog.start()
        self.ask("initialize", HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer. Skips notifications."""
        assert self.process.stdout is not None
        self._send({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == method:
                return answer

    def port(self) -> int:
        """Call a tool and return the port of the crib that answers."""
        called = self.ask("tools/call", {"name": "toolcrib_get_server_info", "arguments": {}})
        return called["result"]["structuredContent"]["port"]

    def end(self) -> None:
        """Close standard input; the process must exit with 0."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(LIMIT) == 0
        self._watchdog.cancel()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_front_takes_over_on_the_same_port_and_hands_back_to_the_next_serve(shell: Shell) -> None:
    run = shell.home / "run.json"
    with shell.serving() as crib:
        front = Front(shell)
        with owner(shell, crib.url) as client:
            opened = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        assert front.port() == crib.port
        assert crib.end(signal.SIGTERM) == 143
        assert front.port() == crib.port
        holder = json.loads(run.read_text(encoding="utf-8"))
        assert (holder["pid"], holder["kind"], holder["url"]) == (front.process.pid, "stdio", crib.url)
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        with owner(shell, crib.url) as client:
            assert client.post("/mcp", json=ping, headers=session).status_code == 200
    with shell.serving("--port", str(crib.port)) as successor:
        assert successor.port == crib.port
        assert json.loads(run.read_text(encoding="utf-8"))["pid"] == successor.process.pid
        assert front.port() == crib.port
        assert front.process.poll() is None
        with owner(shell, crib.url) as client:
            assert client.post("/mcp", json=ping, headers=session).status_code == 200
        front.end()


HEAVY = frozenset({
    "toolcrib.host", "toolcrib.web.run", "toolcrib.web.api_client.api_client", "mcp", "pydantic", "sqlalchemy",
    "starlette", "httpx2", "uvicorn", "typer",
})  # fmt: skip


def test_front_that_joins_imports_no_host_and_no_web_stack(shell: Shell) -> None:
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "toolcrib_ping"}}),
    ]
    with shell.serving():
        command = shell.command("stdio")
        done = subprocess.run(
            [command[0], "-X", "importtime", *command[1:]],
            cwd=shell.folder,
            env=shell.variables,
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    assert done.returncode == 0
    assert '"pong' in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert "toolcrib.web.stdio" in imported
    assert not imported & HEAVY


def test_removed_token_file_is_written_again_and_commands_still_work(shell: Shell) -> None:
    with shell.serving() as crib:
        file = shell.home / "token"
        secret = file.read_text(encoding="ascii")
        for damage in (file.unlink, lambda: file.write_text("", encoding="ascii")):
            damage()
            assert shell.run("tools", "call", "toolcrib/ping").returncode == 0
            assert file.read_text(encoding="ascii") == secret
            assert file.stat().st_mode & 0o777 == 0o600
        with httpx2.Client(base_url=crib.url, trust_env=False, verify=PLAIN) as stranger:
            for empty in ("Bearer", "Basic", ""):
                assert stranger.get("/api/servers", headers={"authorization": empty}).status_code == 401
