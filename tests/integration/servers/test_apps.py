"""Connecting apps on real files: what is written, how it is recognised, and exact undo."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.servers.apps_machine import ADDRESS, FILES, AppsMachine, mode
from toolcrib.model.errors import ConfigError, InvalidRequest, NotFound
from toolcrib.servers.apps.connectable import CONNECTABLE
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncGenerator[AppsMachine]:
    """A user without apps, whose crib has an empty database."""
    async with open_store(f"sqlite:///{tmp_path / 'crib.db'}") as store:
        (tmp_path / "user").mkdir()
        yield AppsMachine(tmp_path, store)


def test_every_connectable_app_has_a_writable_format() -> None:
    assert [row.name for row in CONNECTABLE][:12] == list(FILES)
    assert all(CLIENTS[row.name].writable for row in CONNECTABLE)


@pytest.mark.parametrize("client", FILES)
async def test_app_is_connected_recognised_and_restored_byte_for_byte(machine: AppsMachine, client: str) -> None:
    file = machine.install(client)
    before = file.read_bytes()
    apps, tokens, servers = await machine.apps()
    shown = await apps.connect(AppConnectRequest(client), dry_run=True)
    assert (file.read_bytes(), await tokens.list()) == (before, [])

    done = await apps.connect(AppConnectRequest(client))
    over = "stdio" if client == "claude-desktop" else "http"
    assert (done.name, done.type, done.reasons, done.change.file) == ("toolcrib", over, (), str(file))
    assert done.change.changed
    written = file.read_text(encoding="utf-8")
    assert all(line in written.splitlines() for line in before.decode().splitlines() if "//" in line or "#" in line)
    assert (ADDRESS + "/mcp" in written, "tcb_" in written) == ((True, True) if over == "http" else (False, False))
    assert "tcb_" not in done.change.diff + shown.change.diff
    assert mode(file) == (0o600 if over == "http" else 0o644)

    found = [server for server in (await servers.list()).servers if server.name == "toolcrib"]
    assert [(each.state, each.problems[0].code) for each in found] == [("disabled", "server.own_crib")]
    [state] = [each.to_json() for each in await apps.list() if each.client.name == client]
    assert (state["state"], state["installed"], state["type"]) == ("connected", True, over)
    again = await apps.connect(AppConnectRequest(client))
    assert (again.change.changed, again.reasons, file.read_text(encoding="utf-8")) == (False, (), written)

    gone = await apps.undo(AppConnectRequest(client))
    assert (gone.exact, file.read_bytes(), mode(file)) == (True, before, 0o644)
    assert gone.revoked == f"connect-{client}"
    assert [token.revoked_at is None for token in await tokens.list()] == [False]
    with pytest.raises(NotFound, match="is not connected"):
        await apps.undo(AppConnectRequest(client))


@pytest.mark.parametrize("client", [row.name for row in CONNECTABLE])
async def test_app_without_a_file_gets_one_that_undo_removes(machine: AppsMachine, client: str) -> None:
    apps, _, servers = await machine.apps()
    with pytest.raises(NotFound, match="was not found on this machine") as missing:
        await apps.connect(AppConnectRequest(client))
    shown = await apps.connect(AppConnectRequest(client), dry_run=True)
    assert (shown.installed, shown.change.file in (missing.value.hint or "")) == (False, True)
    done = await apps.connect(AppConnectRequest(client), anyway=True)
    file = Path(done.change.file)
    assert mode(file) == 0o600
    assert [server.problems[0].code for server in (await servers.list()).servers] == ["server.own_crib"]
    assert (await apps.undo(AppConnectRequest(client))).exact
    assert file not in set(machine.user.rglob("*"))


@pytest.mark.parametrize("client", ["cursor", "codex", "goose", "claude-desktop"])
async def test_agent_gets_its_own_entry_and_token(machine: AppsMachine, client: str) -> None:
    file = machine.install(client)
    before = file.read_bytes()
    apps, tokens, _ = await machine.apps()
    await apps.connect(AppConnectRequest(client))
    done = await apps.connect(AppConnectRequest(client, agent="reviewer"))
    text = file.read_text(encoding="utf-8")
    assert done.name == "toolcrib-reviewer"
    if client == "claude-desktop":
        assert '"--agent"' in text
        assert '"reviewer"' in text
    else:
        assert f"{ADDRESS}/mcp/agents/reviewer" in text
        assert {(token.name, token.agent) for token in await tokens.list()} == {
            (f"connect-{client}", None),
            (f"connect-{client}-reviewer", "reviewer"),
        }
    [state] = [each for each in await apps.list() if each.client.name == client]
    assert [(each.agent, each.stale) for each in state.connections] == [(None, ()), ("reviewer", ())]
    first = await apps.undo(AppConnectRequest(client))  # not the last change, so only the entry is removed
    assert not first.exact
    assert (await apps.undo(AppConnectRequest(client, agent="reviewer"))).change is not None
    assert before.decode().splitlines()[0] in file.read_text(encoding="utf-8")
    assert all(token.revoked_at is not None for token in await tokens.list())


async def test_entry_with_another_port_is_repaired_and_keeps_its_token_and_additions(machine: AppsMachine) -> None:
    file = machine.install("cursor")
    apps, tokens, _ = await machine.apps()
    await apps.connect(AppConnectRequest("cursor"))
    text = file.read_text(encoding="utf-8").replace('"headers":', '"note": "mine",\n      "headers":')
    file.write_text(text, encoding="utf-8")
    machine.address = "http://127.0.0.1:5000"
    [state] = [each for each in await apps.list() if each.client.name == "cursor"]
    assert state.to_json()["state"] == "stale"
    done = await apps.connect(AppConnectRequest("cursor"))
    assert done.reasons == (f"it points to {ADDRESS}/mcp, and the crib is at http://127.0.0.1:5000/mcp",)
    mended = file.read_text(encoding="utf-8")
    assert "5000/mcp" in mended
    assert '"note": "mine"' in mended
    assert len(await tokens.list()) == 1
    assert not (await apps.undo(AppConnectRequest("cursor"))).exact  # the file was edited in between
    assert b"// mine" in file.read_bytes()
    assert b"toolcrib" not in file.read_bytes()


async def test_revoked_token_is_replaced_and_undo_restores_the_original_file(machine: AppsMachine) -> None:
    file = machine.install("codex")
    before = file.read_bytes()
    apps, tokens, _ = await machine.apps()
    await apps.connect(AppConnectRequest("codex"))
    old = file.read_text(encoding="utf-8")
    await tokens.revoke("connect-codex")
    done = await apps.connect(AppConnectRequest("codex"))
    assert (done.reasons, file.read_text(encoding="utf-8") != old) == (("its token is not valid",), True)
    assert (await apps.undo(AppConnectRequest("codex"))).exact
    assert file.read_bytes() == before


async def test_handwritten_entry_is_recognised_and_gets_a_token(machine: AppsMachine) -> None:
    entry = '{"toolcrib": {"url": "http://localhost:1/mcp", "headers": {"Authorization": "Bearer old"}}}'
    file = machine.install("cursor", f'{{"mcpServers": {entry}}}')
    apps, _, _ = await machine.apps()
    done = await apps.connect(AppConnectRequest("cursor"))
    assert len(done.reasons) == 2
    assert "tcb_" in file.read_text(encoding="utf-8")


async def test_stdio_entry_of_another_home_or_a_missing_program_is_stale(machine: AppsMachine) -> None:
    words = '{"command": "/gone/toolcrib", "args": ["stdio", "--home", "/elsewhere"]}'
    machine.install("claude-desktop", f'{{"mcpServers": {{"crib": {words}}}}}')
    apps, _, _ = await machine.apps()
    done = await apps.connect(AppConnectRequest("claude-desktop"))
    assert done.name == "crib"
    assert done.reasons == (
        "it acts as you and has no access level",
        "it starts /gone/toolcrib, which is not there",
        "it starts the crib of /elsewhere",
    )
    assert not (await apps.connect(AppConnectRequest("claude-desktop"))).change.changed


async def test_stdio_entry_holds_no_secret(machine: AppsMachine) -> None:
    file = machine.install("cursor")
    apps, tokens, _ = await machine.apps()
    done = await apps.connect(AppConnectRequest("cursor", stdio=True, level="ask"))
    text = file.read_text(encoding="utf-8")
    assert (done.level, '"connect-cursor"' in text, "tcb_" in text) == ("ask", True, False)
    assert ('"stdio"' in text, str(machine.home.root) in text) == (True, True)
    assert not (await apps.connect(AppConnectRequest("cursor", stdio=True))).change.changed
    await tokens.revoke("connect-cursor")
    [state] = [each.to_json() for each in await apps.list() if each.client.name == "cursor"]
    assert [each["stale"] for each in state["connections"]] == [["its token is not valid"]]
    await apps.connect(AppConnectRequest("cursor", stdio=True))
    assert tokens.named("connect-cursor") is not None
    assert (await apps.connect(AppConnectRequest("cursor"))).reasons == ("it reaches the crib over stdio",)


async def test_app_starts_a_crib_that_has_no_address(machine: AppsMachine) -> None:
    machine.install("cursor")
    machine.address = None
    apps, _, _ = await machine.apps()
    assert (await apps.connect(AppConnectRequest("cursor"))).type == "stdio"


async def test_project_file_gets_no_secret(machine: AppsMachine) -> None:
    machine.install("cursor")
    project = machine.root / "project"
    (project / ".git").mkdir(parents=True)
    apps, tokens, _ = await machine.apps()
    done = await apps.connect(AppConnectRequest("cursor", project, scope="project"))
    assert (done.type, done.change.file) == ("stdio", str(project / ".cursor" / "mcp.json"))
    assert await tokens.list() == []
    [state] = [each for each in await apps.list(project) if each.client.name == "cursor"]
    assert [each.file for each in state.connections] == [done.change.file]
    assert (await apps.undo(AppConnectRequest("cursor", project, scope="project"))).exact
    with pytest.raises(InvalidRequest, match="has no project file"):
        await apps.connect(AppConnectRequest("goose", project, scope="project"))


async def test_unchangeable_file_leaves_no_valid_token(machine: AppsMachine) -> None:
    machine.install("cursor", '{"mcpServers": {')
    apps, tokens, _ = await machine.apps()
    with pytest.raises(ConfigError, match="cannot be edited"):
        await apps.connect(AppConnectRequest("cursor"))
    assert [token.revoked_at is None for token in await tokens.list()] == [False]


async def test_other_server_with_the_name_is_not_overwritten(machine: AppsMachine) -> None:
    file = machine.install("cursor", '{"mcpServers": {"toolcrib": {"command": "something-else"}}}')
    apps, _, _ = await machine.apps()
    with pytest.raises(InvalidRequest, match="has another server named"):
        await apps.connect(AppConnectRequest("cursor"))
    assert "something-else" in file.read_text(encoding="utf-8")


async def test_other_servers_move_behind_the_crib_and_undo_restores_them(machine: AppsMachine) -> None:
    definitions = (
        '"docs": {"command": "docs", "args": ["--all"]},\n    "odd": {"command": "x", "args": ["${workspaceFolder}"]},'
    )
    file = machine.install(
        "cursor", f'{{\n  "mcpServers": {{\n    {definitions}\n    "b": {{"url": "https://b.example"}}\n  }}\n}}\n'
    )
    same = machine.install("claude-desktop", '{"mcpServers": {"docs": {"command": "docs", "args": ["--all"]}}}')
    before = file.read_bytes()
    apps, _, servers = await machine.apps()
    shown = await apps.connect(AppConnectRequest("cursor"), move=True, dry_run=True)
    assert (file.read_bytes(), machine.home.mcp_json.exists()) == (before, False)
    done = await apps.connect(AppConnectRequest("cursor"), move=True)
    assert shown.moved is not None
    assert done.moved is not None
    assert [each.name for each in done.moved.moved if each.reason is None] == ["docs", "b"]
    assert [each.name for each in done.moved.moved if each.reason is not None] == ["odd"]
    assert {server.name: server.state for server in (await servers.list()).servers} == {
        "docs": "not_checked",
        "b": "not_checked",
        "odd": "untrusted",
        "toolcrib": "disabled",
    }
    text = file.read_text(encoding="utf-8")
    assert ('"docs"' in text, '"b"' in text, '"odd"' in text) == (False, False, True)
    # The crib already has this server, so it is only removed from the app.
    other = await apps.connect(AppConnectRequest("claude-desktop"), move=True)
    assert other.moved is not None
    assert other.moved.edit is None
    assert '"docs"' not in same.read_text(encoding="utf-8")
    assert (await apps.undo(AppConnectRequest("cursor"))).exact
    assert file.read_bytes() == before


async def test_app_is_also_found_by_its_program_and_an_unknown_one_lists_the_known(machine: AppsMachine) -> None:
    machine.install("claude-code")
    apps, _, _ = await machine.apps()
    assert (await apps.connect(AppConnectRequest("claude"), dry_run=True)).client.name == "claude-code"
    with pytest.raises(NotFound, match="Known apps: claude-code, claude-desktop, cursor"):
        await apps.connect(AppConnectRequest("notepad"))


async def test_all_connected_apps_are_one_server_in_the_list(machine: AppsMachine) -> None:
    apps, _, servers = await machine.apps()
    for client in FILES:
        machine.install(client)
        await apps.connect(AppConnectRequest(client))
    found = [server for server in (await servers.list()).servers if server.name == "toolcrib"]
    assert [len(server.sources) for server in found] == [12]


async def test_level_sets_the_mode_of_the_token_and_a_new_level_replaces_it(machine: AppsMachine) -> None:
    machine.install("cursor")
    apps, tokens, _ = await machine.apps()
    undecided = await apps.connect(AppConnectRequest("cursor"))
    assert (undecided.level, [(each.mode, each.level) for each in tokens.live]) == (None, [("acceptEdits", None)])
    asking = await apps.connect(AppConnectRequest("cursor", level="ask"))
    assert (asking.level, asking.reasons) == ("ask", ("its level becomes ask",))
    assert [(each.mode, each.level) for each in tokens.live] == [("default", "ask")]
    again = await apps.connect(AppConnectRequest("cursor"))
    assert (again.level, again.change.changed) == ("ask", False)


async def test_folder_of_another_app_does_not_count_as_an_installation(machine: AppsMachine) -> None:
    (machine.user / ".claude").mkdir()
    apps, _, _ = await machine.apps()
    assert [each.client.name for each in await apps.list(programs=frozenset()) if each.installed] == []
    (machine.user / ".omp" / "agent").mkdir(parents=True)
    assert [each.client.name for each in await apps.list(programs=frozenset()) if each.installed] == ["oh-my-pi"]


async def test_import_skips_the_crib_itself(machine: AppsMachine) -> None:
    machine.install("cursor")
    apps, _, servers = await machine.apps()
    await apps.connect(AppConnectRequest("cursor"))
    done = (await servers.import_()).to_json()
    assert [each["name"] for each in done["taken"]] == ["b"]
    assert [(each["from"]["name"], each["reason"]) for each in done["skipped"]] == [
        ("toolcrib", "it is this crib itself")
    ]


async def test_export_writes_to_the_current_file_and_key_of_the_app(machine: AppsMachine) -> None:
    """Neither an older file of the app nor the key of another app is used."""
    _, _, servers = await machine.apps()
    await servers.add("mine", {"type": "stdio", "command": "x"})
    code = machine.user / ".config" / "Code" / "User"
    code.mkdir(parents=True)
    (code / "settings.json").write_text("{}", encoding="utf-8")
    (code / "mcp.json").write_text('{"mcpServers": {"mine": {"command": "old"}}}', encoding="utf-8")
    await servers.export_to("vscode")
    assert (code / "settings.json").read_text(encoding="utf-8") == "{}"
    assert json.loads((code / "mcp.json").read_text(encoding="utf-8")) == {
        "mcpServers": {"mine": {"command": "old"}},
        "servers": {"mine": {"command": "x"}},
    }


async def test_listing_mode_is_written_kept_and_changed(machine: AppsMachine) -> None:
    file = machine.install("cursor")
    apps, tokens, _ = await machine.apps()
    done = await apps.connect(AppConnectRequest("cursor", tools_if_new="search"))
    assert done.tools == "search"
    assert f"{ADDRESS}/mcp?tools=search" in file.read_text(encoding="utf-8")
    kept = await apps.connect(AppConnectRequest("cursor"))
    assert (kept.tools, kept.change.changed, kept.reasons) == ("search", False, ())
    [state] = [each for each in await apps.list() if each.client.name == "cursor"]
    assert [each.stale for each in state.connections] == [()]
    changed = await apps.connect(AppConnectRequest("cursor", tools="all"))
    assert (changed.tools, changed.reasons) == ("all", ("it lists all tools",))
    assert "?tools" not in file.read_text(encoding="utf-8")
    assert len(await tokens.list()) == 1


async def test_repair_keeps_handwritten_options_of_the_address(machine: AppsMachine) -> None:
    file = machine.install("cursor")
    apps, _, _ = await machine.apps()
    await apps.connect(AppConnectRequest("cursor"))
    by_hand = "?tool_tokens=8000&tools=search&cwd=%2Fsrv%2Fa"
    text = file.read_text(encoding="utf-8").replace(f"{ADDRESS}/mcp", f"{ADDRESS}/mcp{by_hand}")
    file.write_text(text, encoding="utf-8")
    machine.address = "http://127.0.0.1:5000"
    [state] = [each.to_json() for each in await apps.list() if each.client.name == "cursor"]
    assert [each["tools"] for each in state["connections"]] == ["search"]
    repaired = await apps.connect(AppConnectRequest("cursor", tools_if_new="all"))
    assert (repaired.tools, len(repaired.reasons)) == ("search", 1)
    assert f"http://127.0.0.1:5000/mcp{by_hand}" in file.read_text(encoding="utf-8")
    await apps.connect(AppConnectRequest("cursor", tools="code"))
    assert "5000/mcp?tool_tokens=8000&cwd=%2Fsrv%2Fa&tools=code" in file.read_text(encoding="utf-8")


async def test_address_of_an_agent_names_all_tools_only_on_request(machine: AppsMachine) -> None:
    file = machine.install("cursor")
    apps, _, _ = await machine.apps()
    done = await apps.connect(AppConnectRequest("cursor", agent="reviewer"))
    assert (done.names_tools, "tools=" in file.read_text(encoding="utf-8")) == (False, False)
    request = AppConnectRequest("cursor", agent="reviewer", tools="all")
    changed = await apps.connect(request)
    assert (changed.reasons, changed.names_tools) == (("it lists all tools",), True)
    assert "/mcp/agents/reviewer?tools=all" in file.read_text(encoding="utf-8")
    assert not (await apps.connect(request)).change.changed
    assert not (await apps.connect(AppConnectRequest("cursor", agent="reviewer"))).change.changed
