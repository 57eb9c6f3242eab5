"""Moving secrets out of the files of all apps: what is stored and written, exact undo, and masking."""

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.servers.user_machine import SECRET, Serving, UserMachine
from long_tests import takes_long
from toolcrib.base.named_secrets import NamedSecrets
from toolcrib.base.settings import Environment
from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.servers.apps.connectable import CONNECTABLE
from toolcrib.servers.export import snippet
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.servers.resolve import resolve
from toolcrib.servers.secret_commands import SecretCommands
from toolcrib.servers.variables import SYNTAXES
from toolcrib.store.audit import Filters

pytestmark = pytest.mark.anyio

RECORDS_ITS_TOKEN = """
import os, runpy, sys
with open(sys.argv[1], "a") as seen:
    seen.write(os.environ["API_TOKEN"])
sys.path.insert(0, sys.argv[2])
runpy.run_module("upstreams.well_behaved", run_name="__main__")
"""
NO_FILE = {"toolcrib", "mcp-json", "fastmcp", "registry", "mcpb", "dot-agents"}


def value_of(client: str) -> str:
    """Return the secret in the file of an app."""
    return "ghp_" + "".join(f"{ord(letter):x}" for letter in client.ljust(20, "z"))[:36]


async def write_files(machine: UserMachine, clients: tuple[str, ...]) -> dict[str, Path]:
    """Write a file with a secret for each writable app, and return the files."""
    places = (await machine.open_servers().view(None)).places.files
    files: dict[str, Path] = {}
    for client, dialect in ((each, CLIENTS[each]) for each in clients):
        place = next((each for each in places if each.format == client and each.scope == "user"), None)
        if place is None or client in NO_FILE or not dialect.writable or place.file.name.startswith("*"):
            continue
        env = {"API_TOKEN": value_of(client)}
        source = DefinitionSource("toolcrib", "user", "x")
        spec = ServerSpec(f"of-{client}", "stdio", command="run", args=(client,), env=env, source=source)
        text, _ = snippet({spec.name: spec}, client)
        files[client] = machine.write(place.file, text)
    return files


async def request_json(crib: Serving, method: str, path: str, body: object = None, *, cwd: bool = False) -> Any:
    """Send a request under `/api/secrets` and return its answer."""
    params = {"cwd": crib.cwd} if cwd else {}
    answer = await crib.client.request(method, f"/api/secrets{path}", params=params, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@takes_long
async def test_secrets_of_all_apps_move_and_come_back_byte_for_byte(
    machine: UserMachine, caplog: pytest.LogCaptureFixture
) -> None:
    files = await write_files(machine, tuple(CLIENTS))
    assert len(files) > 30
    await check_move_and_undo(machine, files, caplog)


async def test_secrets_of_json_toml_and_yaml_files_move_and_come_back(
    machine: UserMachine, caplog: pytest.LogCaptureFixture
) -> None:
    await check_move_and_undo(machine, await write_files(machine, ("codex", "goose", "windsurf", "hermes")), caplog)


async def check_move_and_undo(machine: UserMachine, files: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    """Move the secrets of these files, check what remains of them, and undo it."""
    caplog.set_level(logging.DEBUG)
    before = {file: file.read_bytes() for file in (*files.values(), machine.cursor)}
    values = [value_of(client) for client in files] + [SECRET]
    async with machine.serving() as crib:
        found = await request_json(crib, "GET", "")
        plan = await request_json(crib, "POST", "/move", {"dryRun": True})
        assert {file: file.read_bytes() for file in before} == before
        moved = await request_json(crib, "POST", "/move", {})
        stored = await request_json(crib, "GET", "/stored")
        shown = [found, plan, moved, stored, (await crib.client.get("/api/servers")).json()]
        connectable = {row.name for row in CONNECTABLE}
        for client, file in files.items():
            assert (value_of(client) in file.read_text(encoding="utf-8")) == (client not in connectable), client
        assert {row["client"] for row in moved["skipped"]} == files.keys() - connectable
        left_in_home = [
            file for file in machine.home.root.rglob("*") if file.is_file() for value in values
            if value.encode() in file.read_bytes()
        ]  # fmt: skip
        assert left_in_home == []
        shown.append(await request_json(crib, "POST", "/undo", {}))
        shown.append([dict(record) for record in await crib.holding.crib.audit.find(Filters())])
        assert await request_json(crib, "GET", "/stored") == []
    assert {file: file.read_bytes() for file in before} == before
    output = json.dumps(shown, default=str) + caplog.text
    assert [value for value in values if value in output] == []


async def test_own_file_refers_to_the_keyring_and_keeps_its_comments(machine: UserMachine) -> None:
    entry = f'{{"command": "x", "args": ["--token={SECRET}"]}}'
    text = f'{{\n  // mine\n  "mcpServers": {{\n    "own": {entry} // here\n  }}\n}}\n'
    machine.write(machine.home.mcp_json, text)
    async with machine.serving() as crib:
        moved = await request_json(crib, "POST", "/move", {"names": ["own"]})
    assert [(row["field"], row["how"]) for row in moved["moved"]] == [("args[0]", "keyring")]
    assert machine.home.mcp_json.read_text(encoding="utf-8") == text.replace(SECRET, "${keyring:OWN_SECRET}")


async def test_secret_that_is_the_default_of_a_variable_moves_too(machine: UserMachine) -> None:
    entry = {
        "command": "x",
        "args": ["--header", f"Authorization: Bearer ${{UNSET_TOKEN:-{SECRET}}}"],
        "env": {"API_TOKEN": f"${{UNSET_TOKEN:-{SECRET}}}", "MODE": "${MODE:-fast}"},
    }
    machine.write(machine.home.mcp_json, json.dumps({"mcpServers": {"own": entry}}))
    async with machine.serving() as crib:
        moved = await request_json(crib, "POST", "/move", {"names": ["own"]})
    assert {row["field"] for row in moved["moved"]} == {"args[1]", "env.API_TOKEN"}
    text = machine.home.mcp_json.read_text(encoding="utf-8")
    assert SECRET not in text and json.loads(text)["mcpServers"]["own"] == {
        "command": "x",
        "args": ["--header", "Authorization: Bearer ${keyring:UNSET_TOKEN}"],
        "env": {"API_TOKEN": "${keyring:UNSET_TOKEN}", "MODE": "${MODE:-fast}"},
    }


async def test_client_secret_of_a_sign_in_moves_and_comes_back_byte_for_byte(machine: UserMachine) -> None:
    remote = {"url": "https://mcp.example.com", "auth": {"clientId": "app", "clientSecret": SECRET}}
    text = json.dumps({"mcpServers": {"remote": remote}})
    machine.write(machine.home.mcp_json, text)
    async with machine.serving() as crib:
        moved = await request_json(crib, "POST", "/move", {"names": ["remote"]})
        assert [(row["field"], row["how"]) for row in moved["moved"]] == [("auth.clientSecret", "keyring")]
        written = machine.home.mcp_json.read_text(encoding="utf-8")
        auth = json.loads(written)["mcpServers"]["remote"]["auth"]
        assert auth == {"clientId": "app", "clientSecret": "${keyring:REMOTE_CLIENT_SECRET}"}
        (stored,) = await request_json(crib, "GET", "/stored")
        assert stored["usedBy"] == ["remote"]
        shown = json.dumps([moved, stored, (await crib.request("GET", "/remote")).json()])
        assert SECRET not in shown
        await request_json(crib, "POST", "/undo", {})
    assert machine.home.mcp_json.read_text(encoding="utf-8") == text


async def test_secrets_that_cannot_move_are_listed_with_the_next_step(machine: UserMachine) -> None:
    servers = {
        "set": {"command": "x", "env": {"API_TOKEN": f"${{PATH:-{SECRET}}}"}},
    }
    text = json.dumps({"mcpServers": servers})
    machine.write(machine.home.mcp_json, text)
    async with machine.serving() as crib:
        listed = [row for row in await request_json(crib, "GET", "") if row["client"] == "toolcrib"]
        assert {(row["server"], row["field"]) for row in listed} == {
            ("set", "env.API_TOKEN"),
        }
        moved = await request_json(crib, "POST", "/move", {"names": ["set"]})
    assert moved["moved"] == [] and SECRET not in json.dumps(moved)
    reasons = {row["server"]: row["reason"] for row in moved["skipped"]}
    assert "PATH is set" in reasons["set"]
    assert machine.home.mcp_json.read_text(encoding="utf-8") == text


async def test_server_of_a_trusted_project_moves_within_the_project(machine: UserMachine) -> None:
    before = (machine.project / ".mcp.json").read_bytes()
    async with machine.serving() as crib:
        skipped = await request_json(crib, "POST", "/move", {"names": ["build"]}, cwd=True)
        assert "not trusted" in skipped["skipped"][0]["reason"]
        await crib.request("POST", "/build/trust", allowSecrets="true")
        moved = await request_json(crib, "POST", "/move", {"names": ["build"]}, cwd=True)
        assert [row["how"] for row in moved["moved"]] == ["behind"]
        build = next(each for each in (await crib.request("GET", "")).json() if each["name"] == "build")
        assert (build["trusted"], build["sources"][0]["client"], build["problems"]) == (True, "toolcrib", [])
        [stored] = await request_json(crib, "GET", "/stored", cwd=True)
        assert (stored["project"], stored["usedBy"]) == (str(machine.project), ["build"])
        await request_json(crib, "POST", "/undo", {}, cwd=True)
    assert (machine.project / ".mcp.json").read_bytes() == before
    assert not (machine.project / ".toolcrib" / "mcp.json").exists()


async def test_variable_with_the_same_value_replaces_the_secret(
    machine: UserMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = machine.cursor.read_text(encoding="utf-8")
    environment = Environment({**machine.environment, "GH_TOKEN": SECRET})
    monkeypatch.setattr(UserMachine, "environment", property(lambda _: environment))
    async with machine.serving() as crib:
        moved = await request_json(crib, "POST", "/move", {})
    assert [row["how"] for row in moved["moved"]] == ["variable"]
    assert machine.cursor.read_text(encoding="utf-8") == before.replace(SECRET, "${env:GH_TOKEN}")


async def test_undo_refuses_to_restore_a_file_that_was_changed_since(machine: UserMachine) -> None:
    async with machine.serving() as crib:
        await request_json(crib, "POST", "/move", {})
        machine.cursor.write_text(machine.cursor.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        changed = machine.cursor.read_bytes()
        answer = await crib.client.post("/api/secrets/undo", json={})
        assert (answer.status_code, answer.json()["code"]) == (409, "config.changed")
        assert machine.cursor.read_bytes() == changed
        assert "keyring" in machine.home.mcp_json.read_text(encoding="utf-8")


async def test_secret_of_the_user_cannot_be_used_by_a_project(machine: UserMachine) -> None:
    entry = {"mcpServers": {"thief": {"command": "x", "env": {"A": "${keyring:MINE}"}}}}
    machine.write(machine.project / ".mcp.json", json.dumps(entry))
    async with machine.serving() as crib:
        await request_json(crib, "PUT", "/MINE", {"value": "value-of-mine-1"})
        thief = next(each for each in (await crib.request("GET", "")).json() if each["name"] == "thief")
        shown = (await crib.request("GET", "/thief")).json()
    assert [problem["code"] for problem in thief["problems"]] == ["server.secret_missing"]
    assert [(each["kind"], each["name"], each["grave"]) for each in shown["question"]["resolves"]] == [
        ("credential", "MINE", True)
    ]


async def test_new_value_restarts_the_server_that_uses_the_secret(machine: UserMachine) -> None:
    seen = machine.root / "seen"
    words = ["-c", RECORDS_ITS_TOKEN, str(seen), str(Path(__file__).parents[2])]
    own = {"command": sys.executable, "args": words, "env": {"API_TOKEN": "${keyring:MINE}"}}
    machine.write(machine.home.mcp_json, json.dumps({"mcpServers": {"own": own}}))
    async with machine.serving() as crib:
        missing = (await crib.request("GET", "/own")).json()["problems"]
        first = await request_json(crib, "PUT", "/MINE", {"value": "value-of-mine-1"})
        tested = (await crib.request("POST", "/own/test")).json()
        again = await request_json(crib, "PUT", "/MINE", {"value": "value-of-mine-2"})
        with anyio.fail_after(20):
            while "value-of-mine-2" not in seen.read_text(encoding="utf-8"):  # noqa: ASYNC110 another process writes it
                await anyio.sleep(0.02)
    assert [problem["code"] for problem in missing] == ["server.secret_missing"]
    assert (first["restarted"], tested["state"], again["restarted"]) == ([], "connected", ["own"])


@pytest.mark.parametrize("syntax", SYNTAXES)
async def test_keyring_reference_is_resolved_in_every_syntax_and_field(tmp_path: Path, syntax: str) -> None:
    secrets = NamedSecrets(tmp_path, keyring_package="no_such_keyring")
    secrets.put("A", "value-number-one")
    reference = "x${keyring:A}"
    source = DefinitionSource("toolcrib", "user", "x")
    spec = ServerSpec("s", "stdio", source, command=reference, args=(reference,), variables=syntax)
    spec = replace(spec, env={"E": reference}, headers={"H": reference}, url=reference)
    resolved = await resolve(spec, {}, SecretCommands({}), secrets=secrets)
    whole = "xvalue-number-one"
    assert (resolved.command, resolved.args, resolved.env) == (whole, (whole,), {"E": whole})
    assert (resolved.headers, resolved.url, resolved.problems) == ({"H": whole}, whole, ())


async def test_secret_in_use_is_not_removed(machine: UserMachine) -> None:
    machine.write(machine.home.mcp_json, '{"mcpServers": {"own": {"command": "x", "env": {"A": "${keyring:MINE}"}}}}')
    async with machine.serving() as crib:
        await request_json(crib, "PUT", "/MINE", {"value": "value-of-mine-1"})
        refused = await crib.client.delete("/api/secrets/MINE")
        missing = await crib.client.delete("/api/secrets/OTHER")
    assert (refused.status_code, refused.json()["code"]) == (409, "secret.in_use")
    assert (missing.status_code, missing.json()["code"]) == (404, "secret.unknown")


def test_secrets_are_encrypted_without_a_keyring(tmp_path: Path) -> None:
    secrets = NamedSecrets(tmp_path, keyring_package="no_such_keyring")
    assert secrets.put("A", "value-number-one").place == "file"
    assert secrets.put("A", "value-number-two").changed is not None
    again = NamedSecrets(tmp_path, keyring_package="no_such_keyring")
    assert (again.get("A"), again.get("B")) == ("value-number-two", None)
    assert not [file for file in tmp_path.iterdir() if b"value-number" in file.read_bytes()]
    again.remove("A")
    assert again.records() == {}
