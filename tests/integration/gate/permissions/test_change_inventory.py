"""Every state-changing route leaves a change record or is on a list with the reason why it needs none."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.gate.permissions.shop_lab import ShopLab, open_shop_lab, upstream
from integration.web.console.console_client import open_console
from integration.web.test_inventory import CONSOLE, INVENTORY
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.base.home import prepare_home
from toolcrib.gate.policy import permissions
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.servers import servers as server_desk
from toolcrib.store.audit import Filters
from toolcrib.store.engine import Store

pytestmark = pytest.mark.anyio

CONVERSATION = "Part of a conversation with an agent; permits nothing."
MEMORY = "Brain entries are what an agent remembers; they permit no call."
READ_ONLY = "Changes nothing."
CONNECTION = "Connects or signs in to a server; permits no call."
CALL = "A tool call, which has its own two records."
NODE = "Only other nodes reach it; the node of the caller records the call."
LOGIN = "Signs the owner's browser in."

UNRECORDED = {
    ("DELETE", "/api/agents/{agent_id}/brain/{entry_id}"): MEMORY,
    ("DELETE", "/api/sessions/{session_id}"): "Ends a session; permits nothing.",
    ("PATCH", "/api/agents/{agent_id}/brain/{entry_id}/pin"): MEMORY,
    ("POST", "/api/agents/{agent_id}/brain"): MEMORY,
    ("POST", "/api/approvals/{approval_id}/answers"): CONVERSATION,
    ("POST", "/api/audit/anchor"): "Writes the end of the chain elsewhere; permits nothing.",
    ("POST", "/api/audit/verify"): READ_ONLY,
    ("POST", "/api/backups"): "Copies the database; permits nothing.",
    ("POST", "/api/login"): LOGIN,
    ("POST", "/login"): LOGIN,
    ("POST", "/logout"): "Ends a sign-in; permits nothing.",
    ("POST", "/api/nodes/servers/{key}"): NODE,
    ("POST", "/api/nodes/servers/{key}/calls"): NODE,
    ("POST", "/api/policy/simulate"): READ_ONLY,
    ("POST", "/api/registry/plan"): READ_ONLY,
    ("POST", "/api/sessions/replay"): CONVERSATION,
    ("POST", "/api/sessions/{session_id}/replay"): CONVERSATION,
    ("POST", "/api/servers/recognise"): READ_ONLY,
    ("POST", "/api/servers/reload"): CONNECTION,
    ("POST", "/api/servers/test"): CONNECTION,
    ("POST", "/api/servers/{name:path}/auth"): CONNECTION,
    ("POST", "/api/servers/{name:path}/cancel"): CONNECTION,
    ("POST", "/api/servers/{name:path}/record"): CALL,
    ("POST", "/api/servers/{name:path}/reload"): CONNECTION,
    ("POST", "/api/servers/{name:path}/test"): CONNECTION,
    ("POST", "/api/servers/{name:path}/unauth"): CONNECTION,
    ("POST", "/api/sessions/{session_id}/interrupt"): CONVERSATION,
    ("POST", "/api/sessions/{session_id}/messages"): CONVERSATION,
    ("POST", "/api/sessions/{session_id}/questions/{question_id}"): CONVERSATION,
    ("POST", "/api/tools/{server}/{tool:path}/call"): CALL,
    ("PUT", "/api/agents/{agent_id}/brain/{entry_id}"): MEMORY,
}
RECORDED_ELSEWHERE = {
    ("POST", "/api/approvals/{approval_id}"): "approvals.answer",
    ("POST", "/api/approvals/{approval_id}/link"): "approvals.link",
    ("POST", "/api/audit/erase"): "audit.erase",
    ("POST", "/api/audit/seal"): "audit.seal",
    ("POST", "/api/connect/{client}"): "clients.connect",
    ("DELETE", "/api/connect/{client}"): "clients.disconnect",
    ("DELETE", "/api/policy/marks/{conversation:path}"): "marks.clear",
    ("POST", "/api/nodes/{id}/drain"): "nodes.drain",
    ("POST", "/api/plugins/{name}/grant"): "plugins.grant",
    ("POST", "/api/plugins/{name}/revoke"): "plugins.revoke",
    ("POST", "/api/plugins/{name}/{switch}"): "plugins.enable",
    ("POST", "/api/registry/install"): "servers.add",
    ("POST", "/api/secrets/move"): "secrets.move",
    ("POST", "/api/secrets/undo"): "secrets.undo",
    ("POST", "/api/servers/trust"): "servers.trust",
    ("POST", "/api/servers/untrust"): "servers.untrust",
    ("POST", "/api/schedules/{schedule_id}/run"): "schedules.run",
    ("POST", "/api/tools/{server}/{tool:path}/reject"): "tools.reject",
}
"""Recorded changes that need more than a request; the tests of these resources assert their records."""

AGENT = {"id": "keeper", "name": "Keeper", "toolPermissions": ["shop/look"], "mode": "default"}
SKILL = {"id": "sell", "name": "Sell", "description": "Sell.", "tools": ["shop/sell"]}
IMPORTED = {"files": [{"name": "helper.md", "text": "---\nname: helper\ndescription: Helps.\n---\nHelp.\n"}]}
SCHEDULE = {"agentId": "keeper", "prompt": "Look around.", "everySeconds": 3600}
NEW = {
    "name": "extra",
    "url": "http://127.0.0.1:9/mcp",
    "headers": {"Authorization": "Bearer s3cr3t-value-of-the-crib"},
}
RULE = {"effect": "deny", "pattern": "shop/close"}
BUNDLE = {"name": "Sales", "tools": ["shop/*"]}

STEPS: list[tuple[str, str, str, Any, str]] = [
    ("POST", "/api/agents", "", AGENT, "agents.create"),
    ("PUT", "/api/agents/{agent_id}", "keeper", {"toolPermissions": None, "skills": [SKILL]}, "agents.change"),
    ("PATCH", "/api/agents/{agent_id}", "keeper", {"mode": "bypassPermissions"}, "agents.change"),
    ("PATCH", "/api/agents/{agent_id}/skills/{skill_id}", "keeper sell", {"enabled": False}, "agents.change"),
    ("POST", "/api/agents/{agent_id}/clone", "keeper", {"id": "twin"}, "agents.create"),
    ("POST", "/api/agents/{agent_id}/revisions/{version}/restore", "keeper 1", None, "agents.restore"),
    ("POST", "/api/agents/-/import", "", IMPORTED, "agents.create"),
    ("POST", "/api/sessions", "", {"mode": "bypassPermissions", "agentId": "keeper"}, "sessions.create"),
    ("PATCH", "/api/sessions/{session_id}", "SESSION", {"mode": "acceptEdits"}, "sessions.mode"),
    ("POST", "/api/sessions/{session_id}/fork", "SESSION", None, "sessions.fork"),
    ("POST", "/api/schedules", "", SCHEDULE, "schedules.create"),
    ("PUT", "/api/schedules/{schedule_id}", "SCHEDULE", SCHEDULE, "schedules.change"),
    ("PATCH", "/api/schedules/{schedule_id}", "SCHEDULE", {"mode": "acceptEdits"}, "schedules.change"),
    ("POST", "/api/schedules/{schedule_id}/pause", "SCHEDULE", None, "schedules.pause"),
    ("POST", "/api/schedules/{schedule_id}/resume", "SCHEDULE", None, "schedules.resume"),
    ("DELETE", "/api/schedules/{schedule_id}", "SCHEDULE", None, "schedules.remove"),
    ("POST", "/api/servers", "", NEW, "servers.add"),
    ("PUT", "/api/servers/{name:path}", "extra", {"url": "http://127.0.0.1:10/mcp"}, "servers.change"),
    ("POST", "/api/servers/{name:path}/disable", "extra", None, "servers.disable"),
    ("POST", "/api/servers/{name:path}/enable", "extra", None, "servers.enable"),
    ("POST", "/api/servers/{name:path}/sandbox", "changing_tools", {"profile": "off"}, "servers.sandbox"),
    ("POST", "/api/servers/{name:path}/trust", "found", None, "servers.trust"),
    ("POST", "/api/servers/{name:path}/untrust", "found", None, "servers.untrust"),
    ("DELETE", "/api/servers/{name:path}", "extra", None, "servers.remove"),
    ("POST", "/api/servers/undo", "", {}, "servers.undo"),
    ("POST", "/api/servers/import", "", {"names": ["found"]}, "servers.import"),
    ("POST", "/api/servers/export", "", {"client": "cursor", "names": ["changing_tools"]}, "servers.export"),
    ("PUT", "/api/secrets/{name}", "MINE", {"value": "a value to be kept"}, "secrets.set"),
    ("DELETE", "/api/secrets/{name}", "MINE", None, "secrets.remove"),
    ("POST", "/api/tools/{server}/{tool:path}/accept", "changing_tools tool", {}, "tools.accept"),
    ("POST", "/api/policy/rules", "", RULE, "rules.add"),
    ("PATCH", "/api/policy/rules/{rule_id}", "RULE", {"reason": "No."}, "rules.change"),
    ("DELETE", "/api/policy/rules/{rule_id}", "RULE", None, "rules.remove"),
    ("POST", "/api/tools/cost/shorten", "", {}, "tools.shorten"),
    ("POST", "/api/tools/cost/hide", "", {"source": "ide"}, "tools.hide"),
    ("PUT", "/api/policy/presets/{preset_id}", "lethal-trifecta", None, "rules.preset"),
    ("DELETE", "/api/policy/presets/{preset_id}", "lethal-trifecta", None, "rules.preset"),
    ("POST", "/api/bundles", "", {"id": "sales", **BUNDLE}, "bundles.create"),
    ("PUT", "/api/bundles/{bundle_id}", "sales", BUNDLE | {"prompt": "Sell."}, "bundles.change"),
    ("POST", "/api/projects", "", {"path": "PLACE", "bundles": ["sales"]}, "projects.change"),
    ("PUT", "/api/projects/{path:path}", "PLACE", {"bundles": []}, "projects.change"),
    ("DELETE", "/api/projects/{path:path}", "PLACE", None, "projects.remove"),
    ("DELETE", "/api/bundles/{bundle_id}", "sales", None, "bundles.remove"),
    ("POST", "/api/tokens", "", {"name": "robot"}, "tokens.create"),
    ("PUT", "/api/policy/tool-sets", "", {"token": "robot", "kind": "servers"}, "tools.set"),
    ("DELETE", "/api/tokens/{name}", "robot", None, "tokens.revoke"),
    ("DELETE", "/api/agents/{agent_id}", "keeper", None, "agents.delete"),
    ("POST", "/api/stop-all", "", {"reason": "Drill."}, "crib.stop"),
    ("POST", "/api/resume-all", "", None, "crib.resume"),
]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[ShopLab]:
    """Open a crib with a server of its own and one in the file of another app."""
    foreign = {"mcpServers": {"found": upstream("upstreams.well_behaved")}}
    (tmp_path / ".claude.json").write_text(json.dumps(foreign), encoding="utf-8")
    (tmp_path / ".cursor").mkdir()
    async with open_shop_lab(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as lab:
        yield lab


def changing_routes(routes: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {route for route in routes if route[0] not in ("GET", "HEAD")}


async def changes(lab: ShopLab) -> list[JsonObject]:
    """Return the outcomes of all changes, oldest first."""
    records = await lab.owner.audit(server="toolcrib", limit=1000)
    return [each for each in reversed(records) if each["phase"] == "outcome" and "." in each["tool"]]


def path_of(template: str, words: str) -> str:
    for word in words.split():
        before, rest = template.split("{", 1)
        template = before + word + rest.split("}", 1)[1]
    return template


async def test_every_changing_route_is_recorded_or_exempt() -> None:
    tried = {(method, path) for method, path, *_ in STEPS}
    assert tried | set(UNRECORDED) | set(RECORDED_ELSEWHERE) == changing_routes(INVENTORY)
    assert not tried & set(UNRECORDED)


async def test_every_change_over_rest_leaves_a_record(lab: ShopLab, tmp_path: Path) -> None:
    known = {"PLACE": str(tmp_path)}
    async with lab.http() as http:
        for method, template, words, body, kind in STEPS:
            path = path_of(template, words)
            for name, value in known.items():
                path = path.replace(name, value)
            given = None if body is None else json.loads(json.dumps(body).replace("PLACE", str(tmp_path)))
            before = len(await changes(lab))
            answer = await http.request(method, path, json=given)
            assert answer.is_success, (method, path, answer.text)
            made = (await changes(lab))[before:]
            assert kind in [each["tool"] for each in made], (method, path, made)
            assert {each["door"] for each in made} == {"api"}
            for resource, name in (("sessions", "SESSION"), ("schedules", "SCHEDULE"), ("policy/rules", "RULE")):
                if path == f"/api/{resource}":
                    known[name] = answer.json()["id"]
    assert (await lab.owner.verify_audit())["ok"]
    assert "s3cr3t" not in json.dumps(await lab.owner.audit(limit=1000))


async def test_records_contain_the_values_before_and_after(lab: ShopLab) -> None:
    async with lab.http() as http:
        await http.post("/api/agents", json=AGENT)
        await http.put("/api/agents/keeper", json={"toolPermissions": ["*"], "mode": "bypassPermissions"})
        session = (await http.post("/api/sessions", json={})).json()["id"]
        await http.patch(f"/api/sessions/{session}", params={"source": "cli"}, json={"mode": "bypassPermissions"})
        await http.post("/api/servers", json={"name": "extra", "command": "true"})
        await http.post("/api/servers/extra/disable")
    _, agent, mode, added, disabled = await changes(lab)
    assert agent["arguments"] == {
        "id": "keeper",
        "fields": ["mode", "toolPermissions"],
        "before": {"toolPermissions": ["shop/look"], "mode": "default"},
        "after": {"toolPermissions": ["*"], "mode": "bypassPermissions"},
    }
    assert mode["arguments"] == {"id": session, "before": "default", "after": "bypassPermissions"}
    assert (mode["door"], mode["principal"]["name"], mode["principal"]["source"]) == ("cli", "owner", "cli")
    assert (added["arguments"]["name"], "+" in added["arguments"]["diff"]) == ("extra", True)
    assert (disabled["tool"], disabled["arguments"]["name"]) == ("servers.disable", "extra")


async def test_change_that_cannot_be_recorded_is_not_made(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise Unavailable("database.unavailable", "The disk is full.")

    async with lab.http() as http:
        session = (await http.post("/api/sessions", json={})).json()["id"]
        attempts: list[tuple[str, str, JsonObject]] = [
            ("PATCH", f"/api/sessions/{session}", {"mode": "bypassPermissions"}),
            ("POST", "/api/sessions", {"mode": "bypassPermissions"}),
            ("POST", "/api/servers", {"name": "extra", "command": "true"}),
            ("POST", "/api/servers/changing_tools/disable", {}),
            ("POST", "/api/agents", AGENT),
            ("PUT", "/api/agents/hari", {"mode": "bypassPermissions"}),
        ]
        agent = (await http.get("/api/agents")).json()[0]["id"]
        attempts[-1] = ("PUT", f"/api/agents/{agent}", {"mode": "bypassPermissions"})
        with monkeypatch.context() as broken:
            broken.setattr(Store, "append", refuse)
            for method, path, body in attempts:
                answer = await http.request(method, path, json=body)
                assert (answer.status_code, answer.json()["code"]) == (503, "audit.unavailable"), (path, answer.text)
        assert (await http.get(f"/api/sessions/{session}")).json()["mode"] == "default"
        assert len((await http.get("/api/sessions")).json()) == 1
        assert (await http.get(f"/api/agents/{agent}")).json().get("mode") != "bypassPermissions"
        names = {each["name"]: each["enabled"] for each in (await http.get("/api/servers")).json()}
        assert (names["changing_tools"], "extra" in names) == (True, False)


CONSOLE_UNRECORDED = {
    "/agents/{id}/brain",
    "/agents/{id}/brain/{entry}",
    "/agents/{id}/brain/{entry}/delete",
    "/agents/{id}/brain/{entry}/pin",
    "/apps/{id}/requests",
    "/calls/{number}/stop",
    "/notifications",
    "/notifications/key",
    "/notifications/renew",
    "/notifications/{id}/remove",
    "/servers/check",
    "/servers/new",
    "/servers/registry",
    "/sessions/{id}/delete",
    "/sessions/{id}/interrupt",
    "/sessions/{id}/messages",
    "/sessions/{id}/replay",
    "/sessions/{session}/app",
    "/tools/{server}/{tool:path}/call",
    "/waiting/questions/{id}",
}
"""Memory, conversations, reads and calls, as above, and notices to the owner's own browsers."""
CONSOLE_RECORDED = {
    "/approve/{token}",
    "/secrets/move",
    "/secrets/set",
    "/secrets/undo",
    "/secrets/{name}/remove",
    "/access/bundles", "/access/bundles/{id}", "/access/bundles/{id}/remove", "/access/projects",
    "/access/projects/remove", "/access/rules", "/access/rules/{id}/remove", "/access/tokens",
    "/access/presets/{id}", "/access/tools", "/agents/{id}/categories", "/agents/{id}/categories/{category}",
    "/apps/{id}/domains", "/tools/review",
    "/access/tokens/{name}/revoke", "/agents", "/agents/-/import", "/agents/{id}", "/agents/{id}/brain/-/include",
    "/agents/{id}/clone", "/agents/{id}/delete", "/agents/{id}/restore", "/agents/{id}/skills/-/new",
    "/agents/{id}/skills/-/pick", "/agents/{id}/skills/{skill}", "/agents/{id}/skills/{skill}/remove",
    "/agents/{id}/skills/{skill}/switch", "/agents/{id}/tools", "/connect/{client}", "/connect/{client}/link",
    "/connect/{client}/undo", "/rows/{alias}/{action}", "/schedules", "/schedules/{id}", "/schedules/{id}/{action}",
    "/resume-all", "/servers/-/undo", "/servers/new/save", "/servers/registry/add",
    "/servers/{alias}/{action}", "/sessions",
    "/sessions/{id}/change", "/sessions/{id}/fork", "/stop-all", "/tools/{server}/{tool:path}/accept",
    "/tools/{server}/{tool:path}/reject", "/tools/hide", "/tools/hide/undo", "/tools/shorten",
    "/tools/shorten/undo", "/waiting/approvals/{id}",
}  # fmt: skip


async def test_every_form_of_the_console_is_recorded_or_exempt() -> None:
    assert {path for _, path in changing_routes(CONSOLE)} == CONSOLE_RECORDED | CONSOLE_UNRECORDED
    assert not CONSOLE_RECORDED & CONSOLE_UNRECORDED


async def test_changes_in_the_console_are_recorded_with_door_console(tmp_path: Path) -> None:
    home = prepare_home(tmp_path / "home")
    home.mcp_json.write_text(
        json.dumps({"mcpServers": {"changing_tools": upstream("upstreams.changing_tools")}}), encoding="utf-8"
    )
    async with open_console(home.root) as visitor:
        agent = (await visitor.crib.zoo.list())[0].id
        session = await visitor.crib.sessions.create(NewSession("web"))
        await visitor.send("/servers/changing_tools/disable")
        await visitor.send("/rows/changing_tools/enable")
        await visitor.send(f"/sessions/{session.id}/change", {"mode": "bypassPermissions"})
        await visitor.send(f"/agents/{agent}/delete")
        records = await visitor.crib.audit.find(Filters(server="toolcrib"))
    made = [(each["tool"], each["door"], each["principal"]["source"]) for each in records if each["phase"] == "outcome"]
    assert made[::-1] == [
        ("servers.disable", "console", "web"),
        ("servers.enable", "console", "web"),
        ("sessions.mode", "console", "web"),
        ("agents.delete", "console", "web"),
    ]


async def test_definitions_edited_by_hand_are_recorded_also_between_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_desk, "LOOK_SECONDS", 0.01)
    file = tmp_path / "home" / "mcp.json"
    entry: JsonObject = {"command": "true", "env": {"API_KEY": "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"}}

    def write(**servers: JsonObject) -> None:
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    async def wait_for_file_changes(lab: ShopLab, number: int) -> list[JsonObject]:
        with anyio.fail_after(15):
            while len(found := [each for each in await changes(lab) if each["tool"] == "servers.file"]) < number:
                await lab.crib.servers.list()
        return [each["arguments"] for each in found]

    async with open_shop_lab(tmp_path) as lab:
        write(a=entry)
        [added] = await wait_for_file_changes(lab, 1)
        assert (added["file"], list(added["added"])) == (str(file), ["a"])
        assert "abcdefghijkl" not in json.dumps(added)
        async with lab.http() as http:
            assert (await http.post("/api/servers/a/disable")).is_success
        await lab.crib.servers.list()
        assert len(await wait_for_file_changes(lab, 1)) == 1, "an edit of the crib was recorded as an edit by hand"
    write(a={"command": "false"}, b=entry)
    async with open_shop_lab(tmp_path) as lab:
        later = (await wait_for_file_changes(lab, 2))[1]
        assert (list(later["added"]), later["changed"]["a"]["after"]["command"]) == (["b"], "false")
        assert later["since"] == "the last run"
    async with open_shop_lab(tmp_path) as lab:
        assert len(await wait_for_file_changes(lab, 2)) == 2


async def wait_for_changes(lab: ShopLab, kind: str, number: int, cwd: Path | None = None) -> list[JsonObject]:
    """Wait for this many changes of a kind and return their arguments; each check reads the servers again."""
    with anyio.fail_after(15):
        while len(found := [each for each in await changes(lab) if each["tool"] == kind]) < number:
            await lab.crib.servers.list(cwd)
    assert len(found) == number
    return [each["arguments"] for each in found]


async def test_trust_edited_by_hand_is_recorded_also_between_runs(tmp_path: Path) -> None:
    (tmp_path / ".claude.json").write_text(json.dumps({"mcpServers": {"found": {"command": "true"}}}), encoding="utf-8")
    file = tmp_path / "home" / "trust.json"
    async with open_shop_lab(tmp_path) as lab:
        async with lab.http() as http:
            assert (await http.post("/api/servers/found/trust", json={})).is_success
        trusted = file.read_text(encoding="utf-8")
        file.write_text(json.dumps({"version": 2, "records": []}), encoding="utf-8")
        removed = (await wait_for_changes(lab, "servers.file", 2))[0]
        assert (removed["file"], [name.split()[0] for name in removed["removed"]]) == (str(file), ["found"])
    file.write_text(trusted, encoding="utf-8")
    async with open_shop_lab(tmp_path) as lab:
        added = (await wait_for_changes(lab, "servers.file", 3))[2]
        assert (added["file"], added["since"]) == (str(file), "the last run")
        assert [each["place"] for each in added["added"].values()] == ["personal"]
    async with open_shop_lab(tmp_path) as lab:
        await wait_for_changes(lab, "servers.file", 3)


async def test_files_of_a_trusted_project_edited_between_runs_are_recorded(tmp_path: Path) -> None:
    project = tmp_path / "project"
    file = project / ".toolcrib" / "mcp.json"
    file.parent.mkdir(parents=True)

    def write(**more: object) -> None:
        file.write_text(json.dumps({"mcpServers": {"made": {"command": "true", **more}}}), encoding="utf-8")

    write(enabled=False)
    async with open_shop_lab(tmp_path) as lab, lab.http() as http:
        assert (await http.post("/api/servers/trust", json={"path": str(project)})).is_success
    write(enabled=True)
    async with open_shop_lab(tmp_path) as lab:
        [edit] = await wait_for_changes(lab, "servers.file", 1, project)
        assert (edit["file"], edit["since"]) == (str(file), "the last run")
        assert edit["changed"]["made"]["after"]["enabled"] is True
    async with open_shop_lab(tmp_path) as lab:
        await lab.crib.servers.list(project)
        await wait_for_changes(lab, "servers.file", 1, project)


async def test_tool_modules_edited_by_hand_are_recorded_also_between_runs(tmp_path: Path) -> None:
    tools = tmp_path / "home" / "tools"
    module = 'from toolcrib import tool\n\n\n@tool\ndef hi() -> str:\n    """Hi."""\n    return "{}"\n'
    async with open_shop_lab(tmp_path) as lab:
        (tools / "greet.py").write_text(module.format("hi"), encoding="utf-8")
        [added] = await wait_for_changes(lab, "tools.file", 1)
        assert (added["file"], list(added["added"])) == (str(tools), ["greet.py"])
    (tools / "greet.py").write_text(module.format("ho"), encoding="utf-8")
    async with open_shop_lab(tmp_path) as lab:
        changed = (await wait_for_changes(lab, "tools.file", 2))[1]
        assert changed["changed"]["greet.py"]["before"] == added["added"]["greet.py"]["digest"]
        assert changed["since"] == "the last run"
    async with open_shop_lab(tmp_path) as lab:
        await wait_for_changes(lab, "tools.file", 2)


async def test_limits_and_settings_edited_in_the_file_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "LOOK_SECONDS", 0.01)
    file = tmp_path / "home" / "toolcrib.toml"
    async with open_shop_lab(tmp_path) as lab:
        file.write_text(
            'max_sessions = 3\ngithub_token = "ghp_0123456789"\n[[limits]]\npattern = "shop/*"\ncalls = 5\n'
        )
        await lab.crib.permissions.look()
        [limits, settings] = await changes(lab)
        assert (limits["tool"], limits["arguments"]["before"]) == ("limits.file", [])
        assert limits["arguments"]["after"][0]["calls"] == 5
        assert (settings["tool"], settings["arguments"]["after"]["max_sessions"]) == ("settings.file", 3)
        assert "ghp_0123456789" not in json.dumps(settings)
    file.write_text("max_sessions = 30\n")
    async with open_shop_lab(tmp_path) as lab:
        [_, _, limits, settings] = await changes(lab)
        assert (limits["arguments"]["after"], limits["arguments"]["before"][0]["calls"]) == ([], 5)
        assert settings["arguments"]["before"]["max_sessions"] == 3
        assert settings["arguments"]["after"]["max_sessions"] == 30


async def test_setting_changed_by_a_tool_is_recorded_with_its_caller(lab: ShopLab) -> None:
    await lab.crib.call(
        "toolcrib/set_config", {"name": "max_sessions", "value": 7}, principal=lab.crib.owner(source="web")
    )
    await lab.crib.permissions.look()
    [record] = await changes(lab)
    assert (record["tool"], record["principal"]["source"]) == ("settings.change", "web")
    assert (record["arguments"]["name"], record["arguments"]["after"]) == ("max_sessions", 7)
