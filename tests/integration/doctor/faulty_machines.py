"""A sound machine, and the faults that tests introduce into it."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolcrib.base.home import Home, HomeLock, RunInfo, owner_token, prepare_home, write_run
from toolcrib.base.processes.orphans import Records, start_time
from toolcrib.base.processes.sandbox import SandboxSupport
from toolcrib.base.processes.start import MARKER
from toolcrib.base.processes.trace import TracerSupport
from toolcrib.base.settings import Environment, read_settings
from toolcrib.doctor.examine import examine, repaired
from toolcrib.doctor.finding import Finding
from toolcrib.doctor.surroundings import Surroundings

DEAD = 2**22 - 3
"""A process id that is not in use."""


@dataclass
class Machine:
    """A user's machine with a used home, and the processes that a test runs on it."""

    root: Path
    variables: dict[str, str]
    changes: dict[str, object] = field(default_factory=dict[str, object])
    running: list["subprocess.Popen[bytes]"] = field(default_factory=list["subprocess.Popen[bytes]"])

    @classmethod
    def at(cls, root: Path) -> "Machine":
        """Return a sound machine."""
        home = prepare_home(root / "crib")
        owner_token(home)
        lock = HomeLock(home)
        assert lock.try_acquire()
        lock.release()
        (root / "user").mkdir()
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = str(free.getsockname()[1])
        variables = {"HOME": str(root / "user"), "PATH": "/usr/bin:/bin", "TOOLCRIB_HOME": str(home.root)}
        return cls(root, {**variables, "TOOLCRIB_PORT": port, "ANTHROPIC_API_KEY": "x"})

    @property
    def home(self) -> Home:
        """The crib's home."""
        return Home((self.root / "crib").resolve())

    def surroundings(self) -> Surroundings:
        """Return what the checks examine."""
        environment = Environment(self.variables)
        surroundings = Surroundings(read_settings(environment, {}), environment, self.root / "user")
        return replace(surroundings, **self.changes)  # pyright: ignore[reportArgumentType] fields of Surroundings

    def findings(self) -> list[Finding]:
        """Return the warnings and errors."""
        return [each for each in examine(self.surroundings()) if each.severity in ("warning", "error")]

    def repair(self) -> list[Finding]:
        """Return the warnings and errors that are left after all repairs."""
        repaired(examine(self.surroundings()))
        return self.findings()

    def write(self, path: str, text: str) -> Path:
        """Write a file of the user."""
        file = self.root / "user" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def end(self) -> None:
        """End the running processes."""
        for process in self.running:
            process.kill()
            process.communicate(timeout=10)


@contextmanager
def machine_at(root: Path) -> Generator[Machine]:
    """Yield a sound machine; end its processes afterwards."""
    machine = Machine.at(root)
    try:
        yield machine
    finally:
        machine.end()


def old_python(machine: Machine) -> None:
    machine.changes["python"] = (3, 10)


def wrong_setting(machine: Machine) -> None:
    machine.variables["TOOLCRIB_PORT"] = "many"


def misspelt_setting(machine: Machine) -> None:
    machine.home.settings_file.write_text("prot = 4242\n")
    machine.home.settings_file.chmod(0o600)


def open_address(machine: Machine) -> None:
    machine.variables["TOOLCRIB_HOST"] = "0.0.0.0"


def home_is_a_file(machine: Machine) -> None:
    file = machine.root / "file"
    file.write_text("")
    machine.variables["TOOLCRIB_HOME"] = str(file)


def home_below_a_file(machine: Machine) -> None:
    home_is_a_file(machine)
    machine.variables["TOOLCRIB_HOME"] += "/home"


def damaged_token(machine: Machine) -> None:
    machine.home.token_file.write_text("short")


def readable_token(machine: Machine) -> None:
    machine.home.token_file.chmod(0o644)


def open_home(machine: Machine) -> None:
    machine.home.root.chmod(0o755)


def stale_run_file(machine: Machine) -> None:
    write_run(machine.home, RunInfo(DEAD, "http://127.0.0.1:4242", "serve", "0.1.0", "2026-01-01T00:00:00+00:00"))


def orphan(machine: Machine) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, start_new_session=True, env={MARKER: machine.home.marker}
    )
    machine.running.append(process)
    records = Records(machine.home.processes)
    records.add(process.pid, start_time(process.pid) or 0, "clock")
    records.close()


def occupied_port(machine: Machine) -> None:
    listens = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    command = [sys.executable, "-c", f"{listens}; sys.stdin.read()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    machine.running.append(process)
    assert process.stdout is not None
    machine.variables["TOOLCRIB_PORT"] = process.stdout.readline().decode().strip()


def few_open_files(machine: Machine) -> None:
    machine.changes["allowed_files"] = lambda _pid: 64  # pyright: ignore[reportUnknownLambdaType]


def full_disk(machine: Machine) -> None:
    machine.changes["free_bytes"] = lambda _path: 1_000_000  # pyright: ignore[reportUnknownLambdaType]


def clock_in_the_past(machine: Machine) -> None:
    machine.changes["now"] = lambda: 0.0


def file_from_the_future(machine: Machine) -> None:
    machine.home.audit_head.write_text("")
    machine.home.audit_head.chmod(0o600)
    os.utime(machine.home.audit_head, (4_000_000_000, 4_000_000_000))


def invalid_database(machine: Machine) -> None:
    machine.home.database.write_bytes(b"this is not a database at all, only words " * 100)
    machine.home.database.chmod(0o600)


def damaged_database(machine: Machine) -> None:
    with closing(sqlite3.connect(machine.home.database)) as connection, connection:
        connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, body TEXT)")
        connection.executemany("INSERT INTO kept (body) VALUES (?)", [("x" * 500,)] * 100)
    with machine.home.database.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xa5" * 4096)
    machine.home.database.chmod(0o600)


def newer_database(machine: Machine) -> None:
    with closing(sqlite3.connect(machine.home.database)) as connection:
        connection.executescript(
            "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('9999');"
        )
    machine.home.database.chmod(0o600)


def invalid_app_file(machine: Machine) -> None:
    machine.write(".cursor/mcp.json", '{"mcpServers": {\n  "a": {"command": "sh"},,\n}}')


def invalid_server(machine: Machine) -> None:
    machine.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": {"command": "sh", "url": "https://a.example"}}}))


def missing_command(machine: Machine) -> None:
    machine.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": {"command": "no-such-server"}}}))


def missing_variable(machine: Machine) -> None:
    entry = {"command": "sh", "env": {"API_KEY": "${env:NOT_SET_ANYWHERE}"}}
    machine.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": entry}}))


def broken_trust(machine: Machine) -> None:
    machine.home.trust_file.write_text("{")
    machine.home.trust_file.chmod(0o600)


def broken_agent(machine: Machine) -> None:
    machine.home.settings_file.write_text("[runners.mine]\ncommand = 5\n")
    machine.home.settings_file.chmod(0o600)


def not_signed_in(machine: Machine) -> None:
    del machine.variables["ANTHROPIC_API_KEY"]


def no_sandbox(machine: Machine) -> None:
    machine.write(".mcp.json", json.dumps({"mcpServers": {"a": {"command": "sh"}}}))
    machine.write(".git/HEAD", "")
    machine.changes["sandbox"] = lambda: SandboxSupport(False, "This kernel has no Landlock.")


def chosen_sandbox_cannot_be_enforced(machine: Machine) -> None:
    _choose_profile(machine, "strict")
    machine.changes["sandbox"] = lambda: SandboxSupport(False, "This kernel has no Landlock.")


def missing_tracer(machine: Machine) -> None:
    _choose_profile(machine, "learn")
    machine.changes["tracer"] = lambda: TracerSupport(None, "The program strace is not installed.")


def no_search_model(machine: Machine) -> None:
    machine.variables["TOOLCRIB_SEARCH_MODEL"] = str(machine.root / "no-model")


def _choose_profile(machine: Machine, profile: str) -> None:
    file = machine.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": {"command": "sh"}}}))
    overlays = {f"{file}#a": {"sandbox": {"profile": profile}}}
    machine.home.mcp_json.write_text(json.dumps({"mcpServers": {}, "overlays": overlays}))
    machine.home.mcp_json.chmod(0o600)


FAULTS: dict[Callable[[Machine], None], tuple[str, str, str]] = {
    old_python: ("python", "error", "too old"),
    wrong_setting: ("settings", "error", "TOOLCRIB_PORT"),
    misspelt_setting: ("settings", "warning", "`prot` is not a setting"),
    open_address: ("settings", "error", "0.0.0.0"),
    home_is_a_file: ("home", "error", "is not a directory"),
    home_below_a_file: ("home", "error", "cannot be created"),
    damaged_token: ("home", "error", "contains no valid token"),
    readable_token: ("modes", "error", "Other users can access"),
    open_home: ("modes", "error", "Other users can access"),
    stale_run_file: ("holder", "warning", "no longer running"),
    orphan: ("processes", "warning", "after their crib ended"),
    occupied_port: ("port", "error", "in use by another program"),
    few_open_files: ("files", "warning", "may open only 64 files"),
    full_disk: ("disk", "error", "almost full"),
    clock_in_the_past: ("clock", "error", "is wrong"),
    file_from_the_future: ("clock", "warning", "in the future"),
    invalid_database: ("database", "error", "cannot be used"),
    damaged_database: ("database", "error", "is damaged"),
    newer_database: ("database", "error", "newer Toolcrib"),
    invalid_app_file: ("definitions", "warning", "not valid JSON"),
    invalid_server: ("definitions", "warning", "Invalid server config"),
    missing_command: ("definitions", "warning", "not on the PATH"),
    missing_variable: ("definitions", "warning", "NOT_SET_ANYWHERE"),
    broken_trust: ("trust", "error", "trust"),
    broken_agent: ("agents", "warning", "mine"),
    no_sandbox: ("sandbox", "warning", "start without one"),
    chosen_sandbox_cannot_be_enforced: ("sandbox", "warning", "profile strict cannot be enforced"),
    missing_tracer: ("sandbox", "warning", "profile learn cannot be enforced"),
    no_search_model: ("search", "warning", "ranks by words only"),
    not_signed_in: ("claude", "warning", "signed in"),
}
"""Each fault with the check that finds it, the severity, and a part of the message."""

REPAIRED = {readable_token, open_home, stale_run_file, orphan}
"""The faults that `--fix` repairs."""
