"""A sound machine, and twenty ways to break it."""

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
"""A number that no process has."""


@dataclass
class Patient:
    """A person's machine with a home that a crib has used, and what is running on it for the test."""

    root: Path
    variables: dict[str, str]
    changes: dict[str, object] = field(default_factory=dict[str, object])
    running: list["subprocess.Popen[bytes]"] = field(default_factory=list["subprocess.Popen[bytes]"])

    @classmethod
    def at(cls, root: Path) -> "Patient":
        """A sound one."""
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
        """What the checks look at."""
        environment = Environment(self.variables)
        surroundings = Surroundings(read_settings(environment, {}), environment, self.root / "user")
        return replace(surroundings, **self.changes)  # pyright: ignore[reportArgumentType] fields of Ground

    def findings(self) -> list[Finding]:
        """What is found wrong."""
        return [each for each in examine(self.surroundings()) if each.severity in ("warning", "error")]

    def heal(self) -> list[Finding]:
        """What is wrong after everything was repaired that may be."""
        repaired(examine(self.surroundings()))
        return self.findings()

    def write(self, path: str, text: str) -> Path:
        """A file of the person."""
        file = self.root / "user" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def end(self) -> None:
        """End what runs."""
        for process in self.running:
            process.kill()
            process.communicate(timeout=10)


@contextmanager
def patient_at(root: Path) -> Generator[Patient]:
    """A sound machine, until the block ends."""
    patient = Patient.at(root)
    try:
        yield patient
    finally:
        patient.end()


def old_python(patient: Patient) -> None:
    patient.changes["python"] = (3, 10)


def wrong_setting(patient: Patient) -> None:
    patient.variables["TOOLCRIB_PORT"] = "many"


def misspelt_setting(patient: Patient) -> None:
    patient.home.settings_file.write_text("prot = 4242\n")
    patient.home.settings_file.chmod(0o600)


def open_address(patient: Patient) -> None:
    patient.variables["TOOLCRIB_HOST"] = "0.0.0.0"


def home_is_a_file(patient: Patient) -> None:
    file = patient.root / "file"
    file.write_text("")
    patient.variables["TOOLCRIB_HOME"] = str(file)


def home_below_a_file(patient: Patient) -> None:
    home_is_a_file(patient)
    patient.variables["TOOLCRIB_HOME"] += "/home"


def damaged_token(patient: Patient) -> None:
    patient.home.token_file.write_text("short")


def readable_token(patient: Patient) -> None:
    patient.home.token_file.chmod(0o644)


def open_home(patient: Patient) -> None:
    patient.home.root.chmod(0o755)


def stale_run_file(patient: Patient) -> None:
    write_run(patient.home, RunInfo(DEAD, "http://127.0.0.1:4242", "serve", "0.1.0", "2026-01-01T00:00:00+00:00"))


def orphan(patient: Patient) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, start_new_session=True, env={MARKER: patient.home.marker}
    )
    patient.running.append(process)
    records = Records(patient.home.processes)
    records.add(process.pid, start_time(process.pid) or 0, "clock")
    records.close()


def occupied_port(patient: Patient) -> None:
    listens = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    command = [sys.executable, "-c", f"{listens}; sys.stdin.read()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    patient.running.append(process)
    assert process.stdout is not None
    patient.variables["TOOLCRIB_PORT"] = process.stdout.readline().decode().strip()


def few_open_files(patient: Patient) -> None:
    patient.changes["allowed_files"] = lambda _pid: 64  # pyright: ignore[reportUnknownLambdaType]


def full_disk(patient: Patient) -> None:
    patient.changes["free_bytes"] = lambda _path: 1_000_000  # pyright: ignore[reportUnknownLambdaType]


def clock_before_its_time(patient: Patient) -> None:
    patient.changes["now"] = lambda: 0.0


def file_of_the_future(patient: Patient) -> None:
    patient.home.audit_head.write_text("")
    patient.home.audit_head.chmod(0o600)
    os.utime(patient.home.audit_head, (4_000_000_000, 4_000_000_000))


def no_database(patient: Patient) -> None:
    patient.home.database.write_bytes(b"this is not a database at all, only words " * 100)
    patient.home.database.chmod(0o600)


def damaged_database(patient: Patient) -> None:
    with closing(sqlite3.connect(patient.home.database)) as connection, connection:
        connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, body TEXT)")
        connection.executemany("INSERT INTO kept (body) VALUES (?)", [("x" * 500,)] * 100)
    with patient.home.database.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xa5" * 4096)
    patient.home.database.chmod(0o600)


def newer_database(patient: Patient) -> None:
    with closing(sqlite3.connect(patient.home.database)) as connection:
        connection.executescript(
            "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('9999');"
        )
    patient.home.database.chmod(0o600)


def broken_client_file(patient: Patient) -> None:
    patient.write(".cursor/mcp.json", '{"mcpServers": {\n  "a": {"command": "sh"},,\n}}')


def invalid_server(patient: Patient) -> None:
    patient.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": {"command": "sh", "url": "https://a.example"}}}))


def missing_command(patient: Patient) -> None:
    patient.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": {"command": "no-such-server"}}}))


def missing_variable(patient: Patient) -> None:
    entry = {"command": "sh", "env": {"API_KEY": "${env:NOT_SET_ANYWHERE}"}}
    patient.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": entry}}))


def broken_trust(patient: Patient) -> None:
    patient.home.trust_file.write_text("{")
    patient.home.trust_file.chmod(0o600)


def broken_agent(patient: Patient) -> None:
    patient.home.settings_file.write_text("[runners.mine]\ncommand = 5\n")
    patient.home.settings_file.chmod(0o600)


def nobody_signed_in(patient: Patient) -> None:
    del patient.variables["ANTHROPIC_API_KEY"]


def no_sandbox(patient: Patient) -> None:
    patient.write(".mcp.json", json.dumps({"mcpServers": {"a": {"command": "sh"}}}))
    patient.write(".git/HEAD", "")
    patient.changes["sandbox"] = lambda: SandboxSupport(False, "This kernel has no Landlock.")


def chosen_sandbox_cannot_be_enforced(patient: Patient) -> None:
    _choose_profile(patient, "strict")
    patient.changes["sandbox"] = lambda: SandboxSupport(False, "This kernel has no Landlock.")


def nothing_to_record_with(patient: Patient) -> None:
    _choose_profile(patient, "learn")
    patient.changes["tracer"] = lambda: TracerSupport(None, "The program strace is not installed.")


def no_search_model(patient: Patient) -> None:
    patient.variables["TOOLCRIB_SEARCH_MODEL"] = str(patient.root / "no-model")


def _choose_profile(patient: Patient, profile: str) -> None:
    file = patient.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": {"command": "sh"}}}))
    overlays = {f"{file}#a": {"sandbox": {"profile": profile}}}
    patient.home.mcp_json.write_text(json.dumps({"mcpServers": {}, "overlays": overlays}))
    patient.home.mcp_json.chmod(0o600)


FAULTS: dict[Callable[[Patient], None], tuple[str, str, str]] = {
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
    clock_before_its_time: ("clock", "error", "is wrong"),
    file_of_the_future: ("clock", "warning", "in the future"),
    no_database: ("database", "error", "cannot be used"),
    damaged_database: ("database", "error", "is damaged"),
    newer_database: ("database", "error", "newer Toolcrib"),
    broken_client_file: ("definitions", "warning", "not valid JSON"),
    invalid_server: ("definitions", "warning", "Invalid server config"),
    missing_command: ("definitions", "warning", "not on the PATH"),
    missing_variable: ("definitions", "warning", "NOT_SET_ANYWHERE"),
    broken_trust: ("trust", "error", "trust"),
    broken_agent: ("agents", "warning", "mine"),
    no_sandbox: ("sandbox", "warning", "start without one"),
    chosen_sandbox_cannot_be_enforced: ("sandbox", "warning", "profile strict cannot be enforced"),
    nothing_to_record_with: ("sandbox", "warning", "profile learn cannot be enforced"),
    no_search_model: ("search", "warning", "ranks by words only"),
    nobody_signed_in: ("claude", "warning", "signed in"),
}
"""Each fault, and the check that finds it, how bad it calls it, and a part of what it says."""

REPAIRED = {readable_token, open_home, stale_run_file, orphan}
"""Those that `--fix` mends."""
