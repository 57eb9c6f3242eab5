"""`toolcrib serve` with more connections than it has file descriptors."""

import json
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from e2e.shell import LIMIT, Serving, Shell
from http_clients import PLAIN

FEW_FILES = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell.at(tmp_path)


def test_owner_is_answered_with_64_files_and_300_idle_connections(shell: Shell) -> None:
    command = [*FEW_FILES, *shell.command("serve", "--json")]
    with (
        subprocess.Popen(
            command, cwd=shell.folder, env=shell.variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process,
        ExitStack() as crowd,
    ):
        crowd.callback(process.wait, LIMIT)
        crowd.callback(process.terminate)
        assert process.stdout is not None
        crib = Serving(process, json.loads(process.stdout.readline()))
        for _ in range(300):
            crowd.enter_context(socket.create_connection(("127.0.0.1", crib.port), timeout=LIMIT))
        secret = (shell.home / "token").read_text(encoding="ascii").strip()
        headers = {"authorization": f"Bearer {secret}"}
        for _ in range(3):
            with httpx2.Client(trust_env=False, verify=PLAIN, timeout=LIMIT, headers=headers) as owner:
                assert owner.get(f"{crib.url}/api/servers").status_code == 200
