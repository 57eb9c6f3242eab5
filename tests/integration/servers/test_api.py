"""`/api/servers` through the guard: shapes, statuses, versions, and masked secrets."""

import json
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from integration.servers.user_machine import CURSOR, PROJECT, SECRET, UserMachine
from toolcrib.base.processes.trace import tracer_support
from toolcrib.model.principals import Principal, Source
from toolcrib.web.api.servers.shapes import (
    ChangedServer,
    EditShape,
    ExportShape,
    RecognisedShape,
    RemovedServer,
    ServerDetails,
    ServerShape,
    TransferShape,
)

pytestmark = pytest.mark.anyio


def fits(shape: type[BaseModel], value: Any) -> bool:
    """Return whether a value has this shape and survives a round trip."""
    return shape.model_validate(value).model_dump(by_alias=True, exclude_unset=True, mode="json") == value


async def test_server_list_has_exactly_the_documented_fields(machine: UserMachine) -> None:
    async with machine.serving() as crib:
        listed = (await crib.request("GET", "")).json()
        anywhere = (await crib.client.get("/api/servers")).json()
        problems = (await crib.request("GET", "/-/problems")).json()
    assert [server["name"] for server in listed] == ["build", "files", "github"]
    assert [server["name"] for server in anywhere] == ["files", "github"]
    assert problems == []
    assert all(fits(ServerShape, server) for server in listed)
    assert set(listed[0]) == {
        "name", "alias", "type", "state", "enabled", "trusted", "sources", "sameAs", "problems", "tools", "definition",
        "label", "sentence", "action", "sandbox",
    }  # fmt: skip
    assert listed[0]["sources"] == [
        {"client": "claude-code", "scope": "project", "file": str(machine.project / ".mcp.json"), "line": 3}
    ]
    assert SECRET not in json.dumps(listed)


async def test_shadowed_and_invalid_servers_are_listed(machine: UserMachine) -> None:
    machine.write(machine.user / ".lmstudio" / "mcp.json", '{"mcpServers": {"files": {"command": "other"}, "bad": 5}}')
    async with machine.serving() as crib:
        listed = (await crib.request("GET", "")).json()
    shadowed = next(server for server in listed if server["state"] == "shadowed")
    invalid = next(server for server in listed if server["state"] == "invalid")
    assert (shadowed["name"], shadowed["shadowedBy"]) == ("files", "files")
    assert shadowed["alias"].startswith("files_")
    assert (invalid["name"], invalid["type"]) == ("bad", None)
    assert invalid["problems"][0]["message"].startswith("Invalid server config: ")


async def test_missing_credential_is_a_problem_of_the_server(machine: UserMachine) -> None:
    body = {"name": "mine", "type": "stdio", "command": "x", "auth": {"type": "oauth", "credentialId": "lost"}}
    async with machine.serving() as crib:
        await crib.request("POST", "", body=body)
        listed = (await crib.request("GET", "")).json()
        shown = (await crib.request("GET", "/mine")).json()
    for server in (next(each for each in listed if each["name"] == "mine"), shown):
        assert [(problem["code"], '"lost"' in problem["message"]) for problem in server["problems"]] == [
            ("oauth.required", True)
        ]


async def test_server_is_created_read_replaced_and_deleted(machine: UserMachine) -> None:
    body = {"name": "mine", "type": "stdio", "command": "uvx", "args": ["x"], "env": {"KEY": SECRET}, "timeout": 500}
    async with machine.serving() as crib:
        created = await crib.request("POST", "", body=body)
        shown = await crib.request("GET", "/mine")
        etag = shown.headers["etag"]
        sent = {**shown.json()["definition"], "command": "npx"}
        headers = {"if-match": etag}
        replaced = await crib.client.put("/api/servers/mine", json=sent, headers=headers)
        stale = await crib.client.put("/api/servers/mine", json=sent, headers=headers)
        stale_delete = await crib.client.delete("/api/servers/mine", headers=headers)
        own = machine.own_file()["mcpServers"]["mine"]
        deleted = await crib.request("DELETE", "/mine")
        gone = await crib.request("GET", "/mine")
    assert (created.status_code, created.json()["state"]) == (201, "not_checked")
    assert fits(ChangedServer, created.json())
    assert fits(ServerDetails, shown.json())
    assert fits(ChangedServer, replaced.json())
    assert (own["command"], own["env"]) == ("npx", {"KEY": SECRET})
    assert [answer.status_code for answer in (stale, stale_delete)] == [412, 412]
    assert fits(RemovedServer, deleted.json())
    assert (gone.status_code, gone.json()["code"]) == (404, "server.unknown")
    assert SECRET not in "".join(answer.text for answer in (created, shown, replaced, stale, deleted))


async def test_refused_requests_have_their_status_and_code(machine: UserMachine) -> None:
    good = {"name": "mine", "command": "x"}
    cases: list[tuple[str, str, object, int, str]] = [
        ("POST", "", {"name": "a b", "command": "x"}, 422, "server.name_invalid"),
        ("POST", "", {"name": "x", "command": "x", "url": "https://x"}, 422, "server.invalid"),
        ("POST", "", {"name": "x", "command": ["x"]}, 422, "request.invalid"),
        ("POST", "", {"name": "x", "comand": "x"}, 422, "request.invalid"),
        ("POST", "", good, 201, ""),
        ("POST", "", good, 409, "server.exists"),
        ("PUT", "/files", {"command": "x"}, 409, "server.foreign"),
        ("PUT", "/missing", {"command": "x"}, 404, "server.unknown"),
        ("POST", "/missing/enable", None, 404, "server.unknown"),
        ("POST", "/mine/untrust", None, 422, "config.unsupported"),
        ("POST", "/trust", {"path": "relative"}, 422, "request.invalid"),
        ("POST", "/trust", {"path": "/nowhere/at/all"}, 404, "server.unknown"),
        ("POST", "/undo", {"file": "/etc/passwd"}, 404, "config.nothing_to_undo"),
        ("POST", "/export", {"client": "no-such-app"}, 422, "config.unsupported"),
        ("POST", "/import", {"names": ["missing"]}, 404, "server.unknown"),
    ]
    async with machine.serving() as crib:
        for method, path, body, status, code in cases:
            answer = await crib.request(method, path, body=body)
            assert (answer.status_code, answer.json().get("code", "")) == (status, code), (method, path, answer.text)
        for cwd in ("relative", "/with\0nul"):
            assert (await crib.client.get("/api/servers", params={"cwd": cwd})).status_code == 422


async def test_server_is_disabled_trusted_removed_and_restored(machine: UserMachine) -> None:
    async with machine.serving() as crib:
        off = (await crib.request("POST", "/files/disable")).json()
        on = (await crib.request("POST", "/files/enable")).json()
        tried = (await crib.request("POST", "/files/disable", dryRun="true")).json()
        question = (await crib.request("GET", "/build")).json()["question"]
        wrong = await crib.request("POST", "/build/trust", digest="0" * 64)
        trusted = (await crib.request("POST", "/build/trust", digest=question["digest"])).json()
        untrusted = (await crib.request("POST", "/build/untrust")).json()
        removed = (await crib.request("DELETE", "/files", inClient="true")).json()
        undone = (await crib.request("POST", "/undo", body={})).json()
    assert fits(ChangedServer, off)
    assert [answer["state"] for answer in (off, on, tried)] == ["disabled", "untrusted", "untrusted"]
    assert tried["change"]["dryRun"]
    assert question["commandLine"] == "sh -c 'make serve'"
    assert [warning["grave"] for warning in question["warnings"]] == [True]
    assert (wrong.status_code, wrong.json()["code"]) == (409, "config.changed")
    assert (trusted["state"], untrusted["state"]) == ("not_checked", "untrusted")
    assert removed["change"]["file"] == undone["file"] == str(machine.cursor)
    assert fits(EditShape, undone)
    assert machine.cursor.read_text(encoding="utf-8") == CURSOR


async def test_sandbox_of_a_server_is_changed_and_listed(machine: UserMachine) -> None:
    async with machine.serving() as crib:
        before = (await crib.request("GET", "/build")).json()["sandbox"]
        strict = (await crib.request("POST", "/build/sandbox", body={"profile": "strict", "read": ["/srv"]})).json()
        listed = (await crib.request("GET", "")).json()
        unknown = await crib.request("POST", "/build/sandbox", body={"profile": "tight"})
        relative = await crib.request("POST", "/build/sandbox", body={"read": ["srv"]})
        learn = await crib.request("POST", "/build/sandbox", body={"profile": "learn"})
        hosts = (await crib.request("POST", "/build/sandbox", body={"hosts": ["*.Example.com", "::1"]})).json()
        no_host = await crib.request("POST", "/build/sandbox", body={"hosts": ["http://x"]})
    assert before == {"profile": "project", "chosen": False, "read": [], "write": [], "network": "all", "hosts": []}
    assert (hosts["sandbox"]["hosts"], hosts["sandbox"]["network"]) == (["*.example.com", "::1"], "hosts")
    assert (no_host.status_code, no_host.json()["code"]) == (422, "sandbox.invalid")
    unconfirmed = "sandbox.unconfirmed" if tracer_support().program is not None else "sandbox.unsupported"
    assert learn.json()["code"] == unconfirmed  # a project's server does not lose its sandbox without confirmation
    assert fits(ChangedServer, strict)
    chosen = {"profile": "strict", "chosen": True, "read": ["/srv"], "write": [], "network": "none", "hosts": []}
    assert strict["sandbox"] == chosen
    assert {server["name"]: server.get("sandbox") for server in listed}["build"] == chosen
    assert (unknown.status_code, unknown.json()["code"]) == (422, "request.invalid")
    assert (relative.status_code, relative.json()["code"]) == (422, "sandbox.invalid")


async def test_project_is_trusted_only_as_it_was_shown(machine: UserMachine) -> None:
    path = {"path": str(machine.project)}
    async with machine.serving() as crib:
        shown = (await crib.request("POST", "/trust", body={**path, "dryRun": True})).json()
        digests = [server["question"]["digest"] for server in shown]
        machine.write(machine.project / ".mcp.json", PROJECT.replace("serve", "evil"))
        refused = await crib.request("POST", "/trust", body={**path, "digests": digests})
        machine.write(machine.project / ".mcp.json", PROJECT)
        trusted = (await crib.request("POST", "/trust", body={**path, "digests": digests})).json()
        untrusted = (await crib.request("POST", "/untrust", body=path)).json()
    assert all(fits(ServerDetails, server) for server in shown)
    assert [server["trusted"] for server in shown] == [False]
    assert refused.status_code == 409
    assert [server["trusted"] for server in trusted] == [True]
    assert [server["trusted"] for server in untrusted] == [False]


async def test_definitions_are_imported_exported_and_recognised(machine: UserMachine) -> None:
    snippet = json.dumps({"mcpServers": {"notes": {"command": "npx", "args": ["-y", "notes"]}}})
    async with machine.serving() as crib:
        report = (await crib.request("POST", "/import", body={})).json()
        text = (await crib.request("GET", "/-/export", client="zed", name="files")).json()
        written = (await crib.request("POST", "/export", body={"client": "vscode", "dryRun": True})).json()
        recognised = (await crib.request("POST", "/recognise", body={"text": snippet})).json()
        nothing = (await crib.request("POST", "/recognise", body={"text": "{"})).json()
    assert fits(TransferShape, report)
    assert {each["name"] for each in report["taken"]} == {"files", "github"}
    assert {each["name"] for each in report["skipped"]} == {"build"}
    assert SECRET not in json.dumps(report) + json.dumps(written)
    assert fits(ExportShape, text)
    assert json.loads(text["text"]) == {
        "context_servers": {"files": {"command": "npx", "args": ["-y", "files-server@1.2.3"]}}
    }
    assert fits(TransferShape, written)
    assert fits(RecognisedShape, recognised)
    assert recognised["servers"][0]["definition"] == {"type": "stdio", "command": "npx", "args": ["-y", "notes"]}
    assert nothing["servers"] == []
    assert nothing["problems"]


async def test_server_names_are_url_encoded_in_paths(machine: UserMachine) -> None:
    machine.write(machine.user / ".lmstudio" / "mcp.json", '{"mcpServers": {"io.github/a b?": {"command": "x"}}}')
    async with machine.serving() as crib:
        shown = (await crib.request("GET", "/io.github%2Fa%20b%3F")).json()
        off = (await crib.request("POST", "/io.github%2Fa%20b%3F/disable")).json()
        by_alias = (await crib.request("GET", f"/{shown['alias']}")).json()
    assert shown["name"] == off["name"] == by_alias["name"] == "io.github/a b?"
    assert off["state"] == "disabled"


@pytest.mark.parametrize("name", ["export", "problems", "import", "trust", "undo", "-", "enable"])
async def test_server_may_be_named_like_another_route(machine: UserMachine, name: str) -> None:
    async with machine.serving() as crib:
        assert (await crib.request("POST", "", body={"name": name, "command": "x"})).status_code == 201
        shown = await crib.request("GET", f"/{name}")
        off = await crib.request("POST", f"/{name}/disable")
        removed = await crib.request("DELETE", f"/{name}")
    assert (shown.json()["name"], off.json()["state"], removed.json()["name"]) == (name, "disabled", name)


async def test_every_documented_route_works(machine: UserMachine) -> None:
    bodies: dict[tuple[str, str], dict[str, Any]] = {
        ("post", "/api/servers"): {"name": "mine", "command": "x"},
        ("post", "/api/servers/import"): {"dryRun": True},
        ("post", "/api/servers/export"): {"client": "zed", "dryRun": True},
        ("post", "/api/servers/undo"): {},
        ("post", "/api/servers/recognise"): {"text": "npx x"},
        ("post", "/api/servers/trust"): {"path": str(machine.project)},
        ("post", "/api/servers/untrust"): {"path": str(machine.project)},
        ("put", "/api/servers/{name}"): {"command": "y"},
        ("post", "/api/servers/{name}/sandbox"): {"profile": "off"},
    }
    async with machine.serving() as crib:
        described = (await crib.client.get("/api/openapi.json")).json()["paths"]
        operations = [
            (method, path, operation)
            for path, methods in described.items()
            for method, operation in methods.items()
            if path.startswith("/api/servers") and not path.endswith(("/auth", "/record"))  # which need a real server
        ]
        # Routes that remove something come last.
        order = {"/api/servers": 0, "/api/servers/{name}": 1, "/api/servers/undo": 2}
        for method, path, operation in sorted(
            operations, key=lambda each: (each[0] == "delete", order.get(each[1], 1), each[1])
        ):
            body = bodies.get((method, path))
            assert ("requestBody" in operation) == (body is not None), path
            name = "build" if path.endswith("trust") else "mine"
            params = {"client": "zed"} if path.endswith("export") else {}
            place = path.removeprefix("/api/servers").replace("{name}", name)
            answer = await crib.request(method.upper(), place, body=body, **params)
            assert answer.is_success, (method, path, answer.text)
            assert f"{answer.status_code}" in operation["responses"]


def other_principal(source: Source, **names: object) -> Principal:
    """Return a principal that is not the owner."""
    return Principal("token", "reader", source)


async def test_only_the_owner_changes_servers(machine: UserMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine.serving() as crib:
        monkeypatch.setattr(crib.holding.crib.principals, "owner", other_principal)
        reads = [await crib.request("GET", path) for path in ("", "/-/problems", "/files")]
        changes = [
            await crib.request("POST", "", body={"name": "mine", "command": "x"}),
            await crib.request("PUT", "/files", body={"command": "x"}),
            await crib.request("DELETE", "/files"),
            await crib.request("POST", "/files/enable"),
            await crib.request("POST", "/files/trust"),
            await crib.request("POST", "/trust", body={"path": str(machine.project)}),
            await crib.request("POST", "/import", body={}),
            await crib.request("GET", "/-/export", client="cursor"),
            await crib.request("POST", "/undo", body={}),
        ]
    assert [answer.status_code for answer in reads] == [200, 200, 200]
    assert [(answer.status_code, answer.json()["code"]) for answer in changes] == [(403, "policy.denied")] * 9
    assert not machine.home.mcp_json.exists()


async def test_change_is_published_in_the_feed(machine: UserMachine) -> None:
    async with machine.serving() as crib:
        await crib.request("GET", "")
        after = crib.holding.crib.feed.last
        await crib.request("POST", "/files/disable")
        seen: list[tuple[str, str]] = []
        with anyio.fail_after(5):
            async for event in crib.holding.crib.feed.follow(after):
                seen.append((event.kind, str(event.data.get("alias", ""))))
                if len(seen) == 2:
                    break
    assert seen == [("config_changed", ""), ("server_changed", "files")]


async def test_file_broken_by_another_program_is_an_event_and_a_problem(
    machine: UserMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.servers.servers.LOOK_SECONDS", 0.02)
    async with machine.serving() as crib:
        before = (await crib.request("GET", "")).json()
        after = crib.holding.crib.feed.last
        with anyio.fail_after(5):
            async with crib.client.stream("GET", "/api/events", params={"after": str(after)}) as answer:
                machine.write(machine.cursor, CURSOR + "}")
                lines = answer.aiter_lines()
                kind = await anext(line async for line in lines if line.startswith("event:"))
                data = await anext(line async for line in lines if line.startswith("data:"))
        problems = (await crib.request("GET", "/-/problems")).json()
        listed = (await crib.request("GET", "")).json()
    assert kind == "event: config_changed"
    assert json.loads(data.removeprefix("data:"))["files"] == [str(machine.cursor)]
    assert [(problem["code"], problem["file"]) for problem in problems] == [("config.syntax", str(machine.cursor))]
    assert listed == before
