"""`toolcrib audit seal`, `segments`, `erase`, `verify` and `--export` beside a running crib."""

import gzip
import json
import re
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from e2e.shell import Shell, modes
from toolcrib.base.home import Home, owner_token
from toolcrib.gate.audit.export import follow
from toolcrib.gate.audit.head import ChainHead
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient

CALLS = 60


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    """Run a crib that has audit records."""
    person = Shell.at(tmp_path)
    with person.serving() as serving:

        async def use() -> None:
            async with ApiClient(serving.url, owner_token(Home(person.home)), source="api") as client:
                for number in range(CALLS):
                    await client.call(ToolRef("lab", "greet"), {"name": str(number)})

        anyio.run(use)
        yield person


def test_old_records_are_sealed_and_the_chain_stays_whole(shell: Shell) -> None:
    before = follow(shell.run("audit", "--export", "-").stdout.encode().splitlines(keepends=True), ChainHead())
    assert before.number == 2 * CALLS
    assert shell.run("audit", "seal", "--older-than", "1").stderr == "Nothing to seal.\n"
    done = shell.run("audit", "seal", "--older-than", "0")
    assert re.fullmatch(r"Sealed records 1 to 20 in 0{11}1-0{10}20\.jsonl\.gz\.\n", done.stdout), done.stderr
    report = shell.json("audit", "verify")
    assert (report["ok"], report["records"]) == (True, 2 * CALLS + 1)
    lines = shell.run("audit", "--export", "-").stdout.encode().splitlines(keepends=True)
    assert follow(lines, ChainHead()).number == len(lines) == 2 * CALLS + 1
    [sealed] = shell.json("audit", "segments")
    assert (sealed["first"], sealed["last"], sealed["hash"]) == (1, 20, json.loads(lines[19])["hash"])
    with gzip.open(shell.home / "audit" / sealed["file"]) as file:
        assert file.readlines() == lines[:20]
    assert sealed["file"] in shell.run("audit", "segments").stdout
    [record] = shell.json("audit", "--tool", "toolcrib/audit.seal")
    assert (record["door"], record["principal"]["name"], record["arguments"]["sha256"]) == (
        "cli",
        "owner",
        sealed["sha256"],
    )
    found = modes(shell.home / "audit")
    assert (found.pop("."), set(found.values())) == (0o700, {0o600})


def test_table_names_the_entry_point_via_and_json_keeps_door(shell: Shell) -> None:
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    table = shell.run("audit", "--via", "cli", "--phase", "outcome").stdout.splitlines()
    assert table[0].split()[:5] == ["ID", "AT", "PHASE", "VIA", "PRINCIPAL"]
    assert len(table) == 2
    records = shell.json("audit", "--door", "cli", "--phase", "outcome")
    assert [record["door"] for record in records] == ["cli"]


def test_changed_segment_fails_verification(shell: Shell) -> None:
    [sealed] = shell.json("audit", "seal", "--older-than", "0")
    file = shell.home / "audit" / sealed["file"]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    done = shell.run("audit", "verify")
    assert (done.returncode, f"{sealed['file']} was changed." in done.stdout) == (1, True)


def test_erase_requires_confirmation_and_leaves_a_record(shell: Shell) -> None:
    [sealed] = shell.json("audit", "seal", "--older-than", "0")
    refused = shell.run("audit", "erase", "--older-than", "0")
    assert (refused.returncode, "Add `--yes`" in refused.stderr) == (2, True)
    assert (shell.home / "audit" / sealed["file"]).exists()
    done = shell.run("audit", "erase", "--older-than", "0", "--yes")
    assert done.stdout == f"Erased records 1 to 20 ({sealed['file']}).\n"
    assert not (shell.home / "audit" / sealed["file"]).exists()
    assert shell.json("audit", "verify")["ok"]
    [record] = shell.json("audit", "--tool", "toolcrib/audit.erase")
    assert record["arguments"]["first"] == 1
    assert shell.run("audit", "erase", "--older-than", "0", "--yes").stderr == "Nothing to erase.\n"
