"""The page that connects apps: preview, change and exact undo."""

import json
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.web.console.console_client import ConsoleClient, open_console
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.model.json import Json, JsonObject
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.store.audit import Filters

pytestmark = pytest.mark.anyio

FILE = '{"mcpServers": {"other": {"command": "other"}}, "kept": [1, 2]}\n'


async def test_app_is_connected_after_a_preview_and_restored_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(FILE, encoding="utf-8")
    async with open_console(tmp_path / "crib") as console:
        assert of_cursor(await console.json("/connect"))["state"] == "not_connected"
        looked = await console.send_json("/connect/cursor", {})
        assert looked["done"]["change"]["dryRun"] is True
        assert file.read_text(encoding="utf-8") == FILE
        written = await console.send_json("/connect/cursor", {"do": "save"})
        assert of_cursor(written)["state"] == "connected"
        assert json.loads(file.read_text(encoding="utf-8"))["kept"] == [1, 2]
        assert "Disconnect" in (await console.page("/connect")).text
        back = await console.send_json("/connect/cursor/undo", {})
        assert (of_cursor(back)["state"], back["done"]["exact"]) == ("not_connected", True)
        assert file.read_text(encoding="utf-8") == FILE
        made = await console.crib.audit.find(Filters(door="console", phase="outcome"))
        assert [record["tool"] for record in made] == [
            "clients.disconnect",
            "servers.undo",
            "clients.connect",
            "servers.edit",
        ]


async def test_entry_in_a_project_file_is_shown_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "project" / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    (tmp_path / ".cursor").mkdir()
    file.write_text(FILE, encoding="utf-8")
    project = str(file.parent.parent)
    async with open_console(tmp_path / "crib") as console:
        await console.send("/access/projects", {"path": project, "agent": "reviewer"})
        assert console.crib.permissions.default_agent(project) == "reviewer"
        body = {"do": "save", "scope": "project"}
        written = await console.send_json(f"/connect/cursor?cwd={project}", body)
        (entry,) = of_cursor(written)["connections"]
        assert (entry["agent"], entry["scope"], entry["file"]) == ("reviewer", "project", str(file))
        page = await console.page("/connect", cwd=project)
        undo = {"agent": "reviewer", "scope": "project"}
        assert page.one("input", name="scope").attributes["value"] == "project"
        back = await console.send_json(f"/connect/cursor/undo?cwd={project}", undo)
        assert (of_cursor(back)["connections"], back["done"]["exact"]) == ([], True)
        assert file.read_text(encoding="utf-8") == FILE


@pytest.mark.parametrize(("client", "scheme"), [("cursor", "cursor://anysphere"), ("vscode", "vscode:mcp/install?")])
async def test_install_link_has_its_own_token_which_undo_revokes(tmp_path: Path, client: str, scheme: str) -> None:
    async with open_console(tmp_path / "crib") as console:
        looked = (await console.send_json(f"/connect/{client}/link", {}))["linked"]
        assert (looked["name"], looked["headers"], looked["link"]) == ("toolcrib", ["Authorization"], None)
        assert console.crib.tokens.named(f"connect-{client}") is None
        page = await console.send(f"/connect/{client}/link", {"do": "save"})
        link = page.one("a", data_deep_link="").attributes["href"]
        assert link.startswith(scheme)
        ((proposal,), _) = await console.crib.servers.recognise(link)
        assert (proposal.name, proposal.entry["url"]) == ("toolcrib", looked["url"])
        headers = proposal.entry["headers"]
        assert await initialize_status(console, headers) == 200
        undone = await console.send_json(f"/connect/{client}/undo", {})
        assert undone["done"]["revokedToken"] == f"connect-{client}"
        assert await initialize_status(console, headers) == 401
        made = await console.crib.audit.find(Filters(door="console"))
        assert headers["Authorization"].split()[-1] not in json.dumps(made)


async def test_new_install_link_differs_and_apps_without_links_are_refused(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        first, second = [
            (await console.send_json("/connect/cursor/link", {"do": "save"}))["linked"]["link"] for _ in range(2)
        ]
        assert first != second
        assert "has no links" in (await console.send("/connect/codex/link", {}, 422)).text


async def initialize_status(console: ConsoleClient, headers: JsonObject) -> int:
    """Return the status of an `initialize` request with these headers."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tool", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accept = {"accept": "application/json, text/event-stream", "cookie": ""}
    return (await console.client.post("/mcp", json=body, headers={**headers, **accept})).status_code


def of_cursor(value: JsonObject) -> JsonObject:
    clients: list[Json] = value["clients"]
    return next(each for each in clients if each["client"] == "cursor")


async def test_connected_app_is_changed_to_search_and_keeps_its_level(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        await console.crib.clients.connect(AppConnectRequest("cursor", level="app"), anyway=True)
        query = {"tools": "search", "level": "keep"}
        looked = await console.send_json("/connect/cursor", query)
        assert (looked["done"]["tools"], looked["done"]["reasons"]) == ("search", ["it lists tools to search with"])
        done = await console.send_json("/connect/cursor", query | {"do": "save"})
        assert done["done"]["change"]["changed"]
        text = await anyio.Path(done["done"]["change"]["file"]).read_text()
        assert "/mcp?tools=search" in text
        token = console.crib.tokens.named("connect-cursor")
        assert token is not None
        assert token.level == "app"


async def test_page_and_rest_show_what_an_app_lists_in_each_mode(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        await console.crib.clients.connect(AppConnectRequest("cursor", tools="search"), anyway=True)
        (connection,) = of_cursor(await console.json("/connect"))["connections"]
        everything, _, search, code = connection["offers"]
        assert (connection["tools"], everything["tools"], search["tools"], code["tools"]) == (
            "search", "all", "search", "code",
        )  # fmt: skip
        assert everything["definitions"] > code["definitions"] > search["definitions"]
        assert search["saves"] == everything["tokens"] - search["tokens"]
        assert f"Receives 2 tools, {search['tokens']:,} tokens" in (await console.page("/connect")).text
        (app,) = (await console.json("/"))["apps"]
        assert (app["tools"], app["tokens"]) == (2, search["tokens"])
        link = (await console.page("/")).one("section", aria_labelledby="by-app").all("a")[0].attributes["href"]
        assert (await console.page("/connect")).one("li", id=link.removeprefix("/connect#"))


async def test_app_of_an_agent_lists_as_the_agent_unless_its_address_differs(tmp_path: Path) -> None:
    async with open_console(tmp_path / "crib") as console:
        made = await console.crib.zoo.create(parse(AgentInput, {"name": "Lister", "listing": "search"}), by="owner")
        request = AppConnectRequest("cursor", agent=made.agent.id)
        for tools in ("search", "all"):
            await console.crib.clients.connect(replace(request, tools="all" if tools == "all" else None), anyway=True)
            (connection,) = of_cursor(await console.json("/connect"))["connections"]
            assert connection["tools"] == tools
