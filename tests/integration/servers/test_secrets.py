"""Moving secrets out of the files of all apps: what is stored and written, exact undo, and that no value is shown."""

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.servers.world import SECRET, Serving, World
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

NOTES_ITS_TOKEN = """
import os, runpy, sys
with open(sys.argv[1], "a") as seen:
    seen.write(os.environ["API_TOKEN"])
sys.path.insert(0, sys.argv[2])
runpy.run_module("upstreams.polite", run_name="__main__")
"""
NO_FILE = {"toolcrib", "mcp-json", "fastmcp", "registry", "mcpb", "dot-agents"}


def value_of(client: str) -> str:
    """The secret in the file of one app."""
    return "ghp_" + "".join(f"{ord(letter):x}" for letter in client.ljust(20, "z"))[:36]


async def write_files(world: World, clients: tuple[str, ...]) -> dict[str, Path]:
    """Give these apps, if their files can be written, a file with a secret, and return the files."""
    places = (await world.desk().view(None)).places.files
    files: dict[str, Path] = {}
    for client, dialect in ((each, CLIENTS[each]) for each in clients):
        place = next((each for each in places if each.format == client and each.scope == "user"), None)
        if place is None or client in NO_FILE or not dialect.writable or place.file.name.startswith("*"):
            continue
        env = {"API_TOKEN": value_of(client)}
        source = DefinitionSource("toolcrib", "user", "x")
        spec = ServerSpec(f"of-{client}", "stdio", command="run", args=(client,), env=env, source=source)
        text, _ = snippet({spec.name: spec}, client)
        files[client] = world.write(place.file, text)
    return files


async def ask(crib: Serving, method: str, path: str, body: object = None, *, cwd: bool = False) -> Any:
    """Return the answer of one request under `/api/secrets`."""
    params = {"cwd": crib.cwd} if cwd else {}
    answer = await crib.client.request(method, f"/api/secrets{path}", params=params, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@takes_long
async def test_secrets_of_all_apps_move_and_come_back_byte_for_byte(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    files = await write_files(world, tuple(CLIENTS))
    assert len(files) > 30
    await check_move_and_undo(world, files, caplog)


async def test_secrets_of_json_toml_and_yaml_files_move_and_come_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await check_move_and_undo(world, await write_files(world, ("codex", "goose", "windsurf", "hermes")), caplog)


async def check_move_and_undo(world: World, files: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    """Move the secrets of these files, check what is left of them, and undo it."""
    caplog.set_level(logging.DEBUG)
    before = {file: file.read_bytes() for file in (*files.values(), world.cursor)}
    values = [value_of(client) for client in files] + [SECRET]
    async with world.serving() as crib:
        found = await ask(crib, "GET", "")
        plan = await ask(crib, "POST", "/move", {"dryRun": True})
        assert {file: file.read_bytes() for file in before} == before
        moved = await ask(crib, "POST", "/move", {})
        stored = await ask(crib, "GET", "/stored")
        shown = [found, plan, moved, stored, (await crib.client.get("/api/servers")).json()]
        connectable = {row.name for row in CONNECTABLE}
        for client, file in files.items():
            assert (value_of(client) in file.read_text(encoding="utf-8")) == (client not in connectable), client
        assert {row["client"] for row in moved["skipped"]} == files.keys() - connectable
        left_in_home = [
            file for file in world.home.root.rglob("*") if file.is_file() for value in values
            if value.encode() in file.read_bytes()
        ]  # fmt: skip
        assert left_in_home == []
        shown.append(await ask(crib, "POST", "/undo", {}))
        shown.append([dict(record) for record in await crib.holding.crib.audit.find(Filters())])
        assert await ask(crib, "GET", "/stored") == []
    assert {file: file.read_bytes() for file in before} == before
    told = json.dumps(shown, default=str) + caplog.text
    assert [value for value in values if value in told] == []


async def test_own_files_refer_to_the_keyring_and_keep_their_comments(world: World) -> None:
    entry = f'{{"command": "x", "args": ["--token={SECRET}"]}}'
    text = f'{{\n  // mine\n  "mcpServers": {{\n    "own": {entry} // here\n  }}\n}}\n'
    world.write(world.home.mcp_json, text)
    async with world.serving() as crib:
        moved = await ask(crib, "POST", "/move", {"names": ["own"]})
    assert [(row["field"], row["how"]) for row in moved["moved"]] == [("args[0]", "keyring")]
    assert world.home.mcp_json.read_text(encoding="utf-8") == text.replace(SECRET, "${keyring:OWN_SECRET}")


async def test_secret_that_is_the_default_of_a_variable_moves_too(world: World) -> None:
    entry = {
        "command": "x",
        "args": ["--header", f"Authorization: Bearer ${{UNSET_TOKEN:-{SECRET}}}"],
        "env": {"API_TOKEN": f"${{UNSET_TOKEN:-{SECRET}}}", "MODE": "${MODE:-fast}"},
    }
    world.write(world.home.mcp_json, json.dumps({"mcpServers": {"own": entry}}))
    async with world.serving() as crib:
        moved = await ask(crib, "POST", "/move", {"names": ["own"]})
    assert {row["field"] for row in moved["moved"]} == {"args[1]", "env.API_TOKEN"}
    text = world.home.mcp_json.read_text(encoding="utf-8")
    assert SECRET not in text and json.loads(text)["mcpServers"]["own"] == {
        "command": "x",
        "args": ["--header", "Authorization: Bearer ${keyring:UNSET_TOKEN}"],
        "env": {"API_TOKEN": "${keyring:UNSET_TOKEN}", "MODE": "${MODE:-fast}"},
    }


async def test_client_secret_of_a_sign_in_moves_and_comes_back_byte_for_byte(world: World) -> None:
    remote = {"url": "https://mcp.example.com", "auth": {"clientId": "app", "clientSecret": SECRET}}
    text = json.dumps({"mcpServers": {"remote": remote}})
    world.write(world.home.mcp_json, text)
    async with world.serving() as crib:
        moved = await ask(crib, "POST", "/move", {"names": ["remote"]})
        assert [(row["field"], row["how"]) for row in moved["moved"]] == [("auth.clientSecret", "keyring")]
        written = world.home.mcp_json.read_text(encoding="utf-8")
        auth = json.loads(written)["mcpServers"]["remote"]["auth"]
        assert auth == {"clientId": "app", "clientSecret": "${keyring:REMOTE_CLIENT_SECRET}"}
        (stored,) = await ask(crib, "GET", "/stored")
        assert stored["usedBy"] == ["remote"]
        shown = json.dumps([moved, stored, (await crib.ask("GET", "/remote")).json()])
        assert SECRET not in shown
        await ask(crib, "POST", "/undo", {})
    assert world.home.mcp_json.read_text(encoding="utf-8") == text


async def test_secrets_that_cannot_move_are_listed_with_the_next_step(world: World) -> None:
    servers = {
        "set": {"command": "x", "env": {"API_TOKEN": f"${{PATH:-{SECRET}}}"}},
    }
    text = json.dumps({"mcpServers": servers})
    world.write(world.home.mcp_json, text)
    async with world.serving() as crib:
        listed = [row for row in await ask(crib, "GET", "") if row["client"] == "toolcrib"]
        assert {(row["server"], row["field"]) for row in listed} == {
            ("set", "env.API_TOKEN"),
        }
        moved = await ask(crib, "POST", "/move", {"names": ["set"]})
    assert moved["moved"] == [] and SECRET not in json.dumps(moved)
    reasons = {row["server"]: row["reason"] for row in moved["skipped"]}
    assert "PATH is set" in reasons["set"]
    assert world.home.mcp_json.read_text(encoding="utf-8") == text


async def test_server_of_a_trusted_project_moves_within_the_project(world: World) -> None:
    before = (world.project / ".mcp.json").read_bytes()
    async with world.serving() as crib:
        skipped = await ask(crib, "POST", "/move", {"names": ["build"]}, cwd=True)
        assert "not trusted" in skipped["skipped"][0]["reason"]
        await crib.ask("POST", "/build/trust", allowSecrets="true")
        moved = await ask(crib, "POST", "/move", {"names": ["build"]}, cwd=True)
        assert [row["how"] for row in moved["moved"]] == ["behind"]
        build = next(each for each in (await crib.ask("GET", "")).json() if each["name"] == "build")
        assert (build["trusted"], build["sources"][0]["client"], build["problems"]) == (True, "toolcrib", [])
        [stored] = await ask(crib, "GET", "/stored", cwd=True)
        assert (stored["project"], stored["usedBy"]) == (str(world.project), ["build"])
        await ask(crib, "POST", "/undo", {}, cwd=True)
    assert (world.project / ".mcp.json").read_bytes() == before
    assert not (world.project / ".toolcrib" / "mcp.json").exists()


async def test_variable_with_the_same_value_is_referred_to_in_the_syntax_of_the_app(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.cursor.read_text(encoding="utf-8")
    environment = Environment({**world.environment, "GH_TOKEN": SECRET})
    monkeypatch.setattr(World, "environment", property(lambda _: environment))
    async with world.serving() as crib:
        moved = await ask(crib, "POST", "/move", {})
    assert [row["how"] for row in moved["moved"]] == ["variable"]
    assert world.cursor.read_text(encoding="utf-8") == before.replace(SECRET, "${env:GH_TOKEN}")


async def test_undo_refuses_to_restore_a_file_that_was_changed_since(world: World) -> None:
    async with world.serving() as crib:
        await ask(crib, "POST", "/move", {})
        world.cursor.write_text(world.cursor.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        changed = world.cursor.read_bytes()
        answer = await crib.client.post("/api/secrets/undo", json={})
        assert (answer.status_code, answer.json()["code"]) == (409, "config.changed")
        assert world.cursor.read_bytes() == changed
        assert "keyring" in world.home.mcp_json.read_text(encoding="utf-8")


async def test_secret_of_the_user_cannot_be_used_by_a_project(world: World) -> None:
    entry = {"mcpServers": {"thief": {"command": "x", "env": {"A": "${keyring:MINE}"}}}}
    world.write(world.project / ".mcp.json", json.dumps(entry))
    async with world.serving() as crib:
        await ask(crib, "PUT", "/MINE", {"value": "value-of-mine-1"})
        thief = next(each for each in (await crib.ask("GET", "")).json() if each["name"] == "thief")
        shown = (await crib.ask("GET", "/thief")).json()
    assert [problem["code"] for problem in thief["problems"]] == ["server.secret_missing"]
    assert [(each["kind"], each["name"], each["grave"]) for each in shown["question"]["resolves"]] == [
        ("credential", "MINE", True)
    ]


async def test_new_value_restarts_the_server_that_uses_the_secret(world: World) -> None:
    seen = world.root / "seen"
    words = ["-c", NOTES_ITS_TOKEN, str(seen), str(Path(__file__).parents[2])]
    own = {"command": sys.executable, "args": words, "env": {"API_TOKEN": "${keyring:MINE}"}}
    world.write(world.home.mcp_json, json.dumps({"mcpServers": {"own": own}}))
    async with world.serving() as crib:
        missing = (await crib.ask("GET", "/own")).json()["problems"]
        first = await ask(crib, "PUT", "/MINE", {"value": "value-of-mine-1"})
        tested = (await crib.ask("POST", "/own/test")).json()
        again = await ask(crib, "PUT", "/MINE", {"value": "value-of-mine-2"})
        with anyio.fail_after(20):
            while "value-of-mine-2" not in seen.read_text(encoding="utf-8"):  # noqa: ASYNC110 another process writes it
                await anyio.sleep(0.02)
    assert [problem["code"] for problem in missing] == ["server.secret_missing"]
    assert (first["restarted"], tested["state"], again["restarted"]) == ([], "connected", ["own"])


@pytest.mark.parametrize("syntax", SYNTAXES)
async def test_keyring_is_referred_to_in_every_syntax_and_field(tmp_path: Path, syntax: str) -> None:
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


async def test_used_secret_is_not_removed(world: World) -> None:
    world.write(world.home.mcp_json, '{"mcpServers": {"own": {"command": "x", "env": {"A": "${keyring:MINE}"}}}}')
    async with world.serving() as crib:
        await ask(crib, "PUT", "/MINE", {"value": "value-of-mine-1"})
        refused = await crib.client.delete("/api/secrets/MINE")
        missing = await crib.client.delete("/api/secrets/OTHER")
    assert (refused.status_code, refused.json()["code"]) == (409, "secret.in_use")
    assert (missing.status_code, missing.json()["code"]) == (404, "secret.unknown")


def test_values_are_encrypted_where_there_is_no_keyring(tmp_path: Path) -> None:
    secrets = NamedSecrets(tmp_path, keyring_package="no_such_keyring")
    assert secrets.put("A", "value-number-one").place == "file"
    assert secrets.put("A", "value-number-two").changed is not None
    again = NamedSecrets(tmp_path, keyring_package="no_such_keyring")
    assert (again.get("A"), again.get("B")) == ("value-number-two", None)
    assert not [file for file in tmp_path.iterdir() if b"value-number" in file.read_bytes()]
    again.remove("A")
    assert again.records() == {}
