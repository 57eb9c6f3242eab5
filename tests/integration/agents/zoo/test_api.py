"""`/api/agents` over HTTP: shapes, status codes, versions and fields, and the same zoo over MCP."""

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from pydantic import BaseModel

from integration.web.crib import Running, running_crib
from integration.web.wire import exchange, status_of
from toolcrib.agents.zoo.starters import STARTERS
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api.agents.shapes import (
    AgentFields,
    AgentShape,
    AgentSummaryShape,
    EntryShape,
    RevisionDetails,
)

pytestmark = pytest.mark.anyio

AGENT: JsonObject = {
    "id": "a", "name": "A", "systemPrompt": "P", "skillCategories": [{"id": "c", "name": "C", "color": "#112233"}],
    "skills": [{"id": "s", "name": "S", "description": "D", "categoryId": "c", "enabled": False, "tools": ["git/*"]}],
}  # fmt: skip


def fits(shape: type[BaseModel], value: Any) -> bool:
    """Return whether a value has this shape and survives a round trip."""
    return shape.model_validate(value).model_dump(by_alias=True, exclude_unset=True, mode="json") == value


def refused_fields(answer: httpx2.Response) -> list[str]:
    """Return the paths of the refused fields."""
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return [each["path"] for each in answer.json()["errors"]]


async def test_agent_is_created_read_changed_and_deleted_over_rest(running: Running) -> None:
    async with running.client() as client:
        made = await client.post("/api/agents", json=AGENT)
        assert (made.status_code, made.headers["etag"]) == (201, '"1"')
        assert fits(AgentShape, made.json())
        shown = await client.get("/api/agents/a")
        assert shown.json() == made.json()
        assert shown.json()["tokens"]["estimate"] is True
        changed = await client.put("/api/agents/a", json={"description": "New."})
        assert changed.headers["etag"] == '"2"'
        differing = {name for name, value in changed.json().items() if value != made.json()[name]}
        assert differing == {"description", "version", "updatedAt"}
        patched = await client.patch("/api/agents/a", json={"toolPermissions": []})
        assert (patched.json()["toolPermissions"], patched.json()["description"]) == ([], "New.")
        back = await client.put("/api/agents/a", json=patched.json())
        assert back.json() == patched.json()
        assert (await client.delete("/api/agents/a")).json() == {"id": "a"}
        gone = await client.get("/api/agents/a")
        assert (gone.status_code, gone.json()["code"]) == (404, "agent.unknown")


async def test_agents_are_listed_with_the_documented_fields(running: Running) -> None:
    async with running.client() as client:
        listed = (await client.get("/api/agents")).json()
        templates = (await client.get("/api/agents/-/templates")).json()
        library = (await client.get("/api/agents/-/skills")).json()
    assert [each["id"] for each in listed] == sorted(starter.id for starter in STARTERS)
    assert all(fits(AgentSummaryShape, each) for each in listed)
    assert all(fits(AgentFields, each) for each in templates)
    assert {"evidence", "test-first"} <= {each["id"] for each in library}


async def test_stale_change_is_refused_and_changes_nothing(running: Running) -> None:
    async with running.client() as client:
        etag = (await client.post("/api/agents", json=AGENT)).headers["etag"]
        first = await client.put("/api/agents/a", json={"description": "1"}, headers={"if-match": etag})
        stale = {"if-match": etag}
        answers = [
            await client.put("/api/agents/a", json={"description": "2"}, headers=stale),
            await client.put("/api/agents/a", json={"description": "2"}, headers={"if-match": '"never"'}),
            await client.put("/api/agents/a", json={"description": "2", "version": 1}),
            await client.patch("/api/agents/a/skills/s", json={"enabled": True}, headers=stale),
            await client.delete("/api/agents/a", headers=stale),
        ]
        assert [(each.status_code, each.json()["code"]) for each in answers] == [(412, "request.stale")] * 5
        assert (await client.get("/api/agents/a")).json() == first.json()
        fine = await client.put("/api/agents/a", json={"description": "3"}, headers={"if-match": 'W/"2"'})
        assert (await client.delete("/api/agents/a", headers={"if-match": fine.headers["etag"]})).status_code == 200


async def test_invalid_fields_are_reported_with_their_paths(running: Running) -> None:
    async with running.client() as client:
        answer = await client.post("/api/agents", json={"skills": [{"name": ""}], "mode": "x", "extra": 1})
        assert set(refused_fields(answer)) == {"body.name", "body.skills.0.name", "body.mode", "body.extra"}
        answer = await client.post("/api/agents", json={"name": "x", "systemPrompt": "x" * 1_000_000})
        assert refused_fields(answer) == ["body.systemPrompt"]
        answer = await client.post("/api/agents", json={"name": "x", "systemPrompt": "\x07"})
        assert refused_fields(answer) == ["body.systemPrompt"]
        answer = await client.post("/api/agents", json={"name": "x", "skills": [{"name": "s", "categoryId": "nope"}]})
        assert refused_fields(answer) == ["body.skills.0.categoryId"]
        answer = await client.put("/api/agents/writer", json={"skills": [{"id": "a", "name": "1"}] * 2})
        assert refused_fields(answer) == ["body.skills.1.id"]
        answer = await client.put("/api/agents/writer", json={"brainEntries": "broken"})
        assert refused_fields(answer) == ["body.brainEntries"]
        answer = await client.get("/api/agents/writer/brain?dateFrom=soon")
        assert refused_fields(answer) == ["query.dateFrom"]
        answer = await client.get("/api/agents/writer/inject?format=xml")
        assert refused_fields(answer) == ["query.format"]
        taken = await client.post("/api/agents", json={"name": "x", "id": "writer"})
        assert (taken.status_code, taken.json()["code"]) == (409, "agent.exists")


async def test_skill_is_switched_and_agent_injected(running: Running) -> None:
    async with running.client() as client:
        await client.post("/api/agents", json=AGENT)
        switched = await client.patch("/api/agents/a/skills/s", json={"enabled": True})
        assert switched.json()["skills"][0]["enabled"] is True
        compiled = (await client.get("/api/agents/a/inject")).json()
        assert compiled == {
            "agentId": "a",
            "agentName": "A",
            "prompt": "You are now A. Use agentId=a for all agent_zoo tool usage.\n\n"
            "P\n\n---\n\n## Active Skills\n\n### S\nD",
        }
        structured = (await client.get("/api/agents/a/inject?format=structured")).json()
        assert structured["skills"] == [{"id": "s", "name": "S", "description": "D"}]
        assert (await client.patch("/api/agents/a/skills/z", json={"enabled": True})).status_code == 404


async def test_agent_is_cloned_and_created_from_a_template(running: Running) -> None:
    async with running.client() as client:
        cloned = await client.post("/api/agents/writer/clone", json={})
        assert (cloned.status_code, cloned.json()["id"]) == (201, "documentation-writer-copy")
        made = await client.post("/api/agents?template=writer", json={"name": "Scribe", "model": "m"})
        writer = (await client.get("/api/agents/writer")).json()
        assert (made.json()["id"], made.json()["systemPrompt"]) == ("scribe", writer["systemPrompt"])
        assert (await client.post("/api/agents?template=unknown", json={"name": "x"})).status_code == 404


async def test_revisions_are_listed_compared_and_restored(running: Running) -> None:
    async with running.client() as client:
        await client.post("/api/agents", json=AGENT)
        await client.put("/api/agents/a", json={"systemPrompt": "Q"})
        await client.delete("/api/agents/a")
        listed = (await client.get("/api/agents/a/revisions")).json()
        assert [(each["version"], each["kind"], each["author"]) for each in listed] == [
            (3, "deleted", "owner (api)"),
            (2, "changed", "owner (api)"),
            (1, "created", "owner (api)"),
        ]
        second = (await client.get("/api/agents/a/revisions/2")).json()
        assert fits(RevisionDetails, second)
        assert '-  "systemPrompt": "P"' in second["diff"]
        assert (await client.get("/api/agents/a/revisions/2?against=2")).json()["diff"] == ""
        assert (await client.get("/api/agents/a/revisions/3")).json()["agent"] is None
        restored = await client.post("/api/agents/a/revisions/1/restore")
        assert (restored.json()["systemPrompt"], restored.json()["version"]) == ("P", 4)
        assert (await client.post("/api/agents/a/revisions/9/restore")).status_code == 404


async def test_brain_entries_are_managed_over_rest(running: Running) -> None:
    async with running.client() as client:
        brain = "/api/agents/writer/brain"
        made = await client.post(brain, json={"type": "decision", "content": "x", "tags": ["t", "u"]})
        assert made.status_code == 201
        entry = made.json()
        assert fits(EntryShape, entry)
        assert entry["metadata"] == {"source": "manual"}
        changed = await client.put(f"{brain}/{entry['id']}", json={"pinned": True})
        assert changed.json() == entry | {"pinned": True}
        found = await client.get(f"{brain}?type=decision&tags=t,z&pinned=true&dateFrom=2020-01-01&dateTo=2100-01-01")
        assert found.json() == [changed.json()]
        assert (await client.get(f"{brain}?pinned=false")).json() == []
        assert (await client.patch(f"{brain}/{entry['id']}/pin")).json()["pinned"] is False
        assert (await client.patch(f"{brain}/{entry['id']}/pin", json={"pinned": True})).json()["pinned"] is True
        assert (await client.patch(f"{brain}/{entry['id']}/pin", content=b"{")).status_code == 400
        assert (await client.get(f"{brain}/{entry['id']}")).json()["pinned"] is True
        assert (await client.get("/api/agents/writer")).json()["brainEntries"][0]["id"] == entry["id"]
        assert (await client.delete(f"{brain}/{entry['id']}")).json() == {"success": True, "entryId": entry["id"]}
        assert (await client.delete(f"{brain}/{entry['id']}")).json()["code"] == "agent.entry_unknown"
        assert refused_fields(await client.post(brain, json={"type": "dream"})) == ["body.type", "body.content"]
        assert (await client.get("/api/agents/unknown/brain")).status_code == 404


async def test_agent_files_are_imported_and_exported(running: Running) -> None:
    async with running.client() as client:
        files = [
            {"name": ".claude/agents/helper.md", "text": "---\nname: helper\ntools: Read\n---\nHelp."},
            {"name": "x.md", "text": "nothing"},
        ]
        done = (await client.post("/api/agents/-/import", json={"files": files})).json()
        assert done["taken"] == [{"id": "helper", "name": "helper"}]
        assert [problem["file"] for problem in done["problems"]] == ["x.md"]
        exported = (await client.get("/api/agents/helper/export?format=claude")).json()
        assert exported["files"][0]["path"] == ".claude/agents/helper.md"
        assert "tools: Read" in exported["files"][0]["text"]
        whole = (await client.get("/api/agents/writer/export")).json()["files"]
        again = (await client.post("/api/agents/-/import", json={"files": _renamed(whole), "dryRun": True})).json()
        assert (again["taken"][0]["id"], again["dryRun"]) == ("writer-2", True)


def _renamed(files: list[JsonObject]) -> list[JsonObject]:
    return [{"name": file["path"], "text": file["text"]} for file in files]


async def test_changes_are_visible_over_rest_and_mcp_and_in_the_feed(running: Running) -> None:
    crib = running.holding.crib
    owner = crib.owner("ide")
    seen: list[Event] = []
    stop = crib.feed.listen(seen.append)
    async with running.client() as client:
        await client.post("/api/agents", json=AGENT)
        prompts = [ToolRef(item.server, item.key) for item in crib.gate.prompts(owner)]
        assert "agent_zoo_use_a" in [crib.gate.name("prompt", ref) for ref in prompts]
        injected = await crib.call("agent_zoo/agent_zoo_inject", {"agentId": "a"}, principal=owner)
        assert injected.structured_content == (await client.get("/api/agents/a/inject")).json()
        arguments: JsonObject = {"agentId": "a", "type": "note", "content": "from MCP"}
        made = await crib.call("agent_zoo/agent_zoo_create_brain_entry", arguments, principal=owner)
        entries = (await client.get("/api/agents/a/brain")).json()
        assert entries == [made.structured_content]
        assert entries[0]["metadata"]["source"] == "mcp"
        for item in crib.gate.resources(owner):
            if item.server == "agent_zoo":
                with anyio.fail_after(5):
                    read = await crib.gate.request(owner, "agent_zoo", "resources/read", {"uri": item.key}, door="mcp")
                assert read["contents"]
        await client.delete("/api/agents/a")
        assert "agent_zoo_use_a" not in [item.key for item in crib.gate.prompts(owner)]
    stop()
    changes = [(each.data["agentId"], each.data["change"]) for each in seen if each.kind == "agent_changed"]
    assert changes == [("a", "created"), ("a", "brain"), ("a", "deleted")]


async def test_zoo_survives_a_restart(tmp_path: Path) -> None:
    for expected in (404, 200):
        async with running_crib(tmp_path / "home") as running, running.client() as client:
            assert (await client.get("/api/agents/a")).status_code == expected
            if expected == 404:
                await client.post("/api/agents", json=AGENT)


async def test_agent_routes_need_the_token_and_the_same_origin(running: Running) -> None:
    async with running.client(token=False) as client:
        assert (await client.put("/api/agents/writer", json={"systemPrompt": "evil"})).status_code == 401
        assert (await client.get("/api/agents/writer/inject")).status_code == 401
    async with running.client() as client:
        headers = {"origin": "https://evil.example"}
        answer = await client.put("/api/agents/writer", json={"systemPrompt": "evil"}, headers=headers)
        assert answer.status_code == 403


async def test_body_with_duplicate_keys_is_refused(running: Running) -> None:
    body = b'{"name": "a", "name": "b"}'
    head = (
        f"POST /api/agents HTTP/1.1\r\nhost: 127.0.0.1:{running.port}\r\nauthorization: Bearer {running.token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    assert status_of(await exchange(running.port, head.encode() + body)) == 400
