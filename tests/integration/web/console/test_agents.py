"""Agents in the console: pages without scripts, their JSON, and every form."""

import io
import zipfile

import pytest

from integration.web.console.console_client import ConsoleClient, Element
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

HOSTILE = '<img src=x onerror=alert(1)> <b hx-get="/x">{{ 7*7 }}</b> \u202e\u200b'


async def test_cards_show_every_agent_and_can_be_searched(console: ConsoleClient) -> None:
    page = await console.page("/agents")
    assert page.one("a", href="/agents/reviewer").text == "Code Reviewer"
    cards = page.all("li", class_="card")
    assert len(cards) == len(await console.crib.zoo.list())
    assert all(card.one("img").attributes["src"].startswith("data:image/svg+xml;base64,") for card in cards)
    found = await console.part("/agents", words="code review")
    assert [card.attributes["id"] for card in found.all("li", class_="card")] == ["agent-reviewer"]
    assert "No agents match" in (await console.page("/agents", words="missing")).text
    twin = await console.json("/agents", words="reviewer")
    assert [agent["id"] for agent in twin["agents"]] == ["reviewer"]


async def test_agent_is_created_changed_cloned_deleted_and_restored(console: ConsoleClient) -> None:
    sheet = await console.send("/agents", {"name": "Gardener", "template": "reviewer"})
    assert sheet.one("h1").text.startswith("Gardener gardener")
    fields = {
        "was": _was(await console.page("/agents/gardener")),
        "name": "Gardener",
        "systemPrompt": "Water.\r\nWeed.",
        "listing": "code",
        "toolTokens": "4000",
    }
    saved = await console.send("/agents/gardener", fields)
    assert "Water. Weed." in saved.one("pre", id="prompt").text
    agent = (await console.crib.zoo.get("gardener")).agent
    assert (agent.system_prompt, agent.listing, agent.tool_tokens) == ("Water.\nWeed.", "code", 4000)
    assert saved.one("input", name="toolTokens").attributes["value"] == "4000"
    stale = await console.send("/agents/gardener", fields | {"systemPrompt": "Burn."}, 412)
    assert "was changed after" in stale.text
    await console.send("/agents/gardener/clone", {"name": "Second"})
    zoo = await console.send("/agents/second/delete")
    assert "Second was deleted." in zoo.text
    undo = zoo.one("form", action="/agents/second/restore")
    version = undo.one("input", name="version").attributes["value"]
    assert (await console.send("/agents/second/restore", {"version": version})).one("h1").text.startswith("Second")


async def test_enabling_a_skill_changes_the_prompt_and_enables_its_requirements(console: ConsoleClient) -> None:
    page = await console.page("/agents/reviewer")
    assert "(estimate)" in page.one("aside").text
    assert "checked" not in page.one("li", id="skill-threat-model").one("input").attributes
    skills = await console.send("/agents/reviewer/skills/threat-model/switch", {"enabled": "on"}, live=True)
    assert "checked" in skills.one("li", id="skill-threat-model").one("input").attributes
    received = await console.part("/agents/reviewer", part="receives")
    assert "### Threat model" in received.one("pre").raw_text
    off = await console.send("/agents/reviewer/skills/threat-model/switch")
    assert "### Threat model" not in off.one("pre", id="prompt").raw_text


async def test_skills_are_added_picked_changed_and_removed(console: ConsoleClient) -> None:
    picked = await console.send("/agents/reviewer/skills/-/pick", {"pick": "root-cause"})
    assert picked.one("li", id="skill-root-cause")
    fields = {"name": "Be kind", "description": "Say what is good too.", "tools": "github/list_*\n", "requires": ""}
    added = await console.send("/agents/reviewer/skills/-/new", fields)
    assert "Grants github/list_*" in added.one("li", id="skill-be-kind").text
    form = (await console.page("/agents/reviewer/skills/be-kind")).one("textarea", name="description")
    assert form.raw_text.strip() == "Say what is good too."
    wrong = await console.send("/agents/reviewer/skills/be-kind", fields | {"tools": "all of them"}, 422)
    assert "is not a tool pattern" in wrong.text
    gone = await console.send("/agents/reviewer/skills/be-kind/remove")
    assert not gone.all("li", id="skill-be-kind")


async def test_permissions_of_an_agent_are_set_and_shown(console: ConsoleClient) -> None:
    whole = await console.json("/agents/reviewer/tools")
    assert whole["permissions"]["kind"] == "default"
    assert {"ref": "toolcrib/ping", "name": "ping", "title": None, "verdict": "allow"} in _tools(whole)
    await console.send("/agents/reviewer/tools", {"kind": "list", "patterns": "toolcrib/ping\r\n"})
    few = await console.json("/agents/reviewer/tools")
    assert [tool["ref"] for tool in _tools(few)] == ["toolcrib/ping"]
    page = await console.send("/agents/reviewer/tools", {"kind": "none", "patterns": "toolcrib/ping"})
    assert "No tools available." in page.text


async def test_brain_is_filtered_by_dates_in_the_address(console: ConsoleClient) -> None:
    for day in ("2026-01-05", "2026-02-05", "2026-03-05"):
        note = {"type": "note", "content": f"On {day}.", "timestamp": f"{day}T12:00:00Z"}
        await console.send("/agents/builder/brain", note)
    path = "/agents/builder/brain"
    found = await console.json(path, **{"from": "2026-02-01", "to": "2026-02-05"})
    assert [each["content"] for each in found["entries"]] == ["On 2026-02-05."]
    page = await console.page(f"{path}?from=2026-02-01")
    assert page.one("input", name="from").attributes["value"] == "2026-02-01"
    assert any("type=note&from=2026-02-01" in link.attributes["href"] for link in page.all("a"))
    assert "No entries match." in (await console.page(path, to="2025-01-01")).text
    assert "dateFrom" in (await console.page(f"{path}?from=soon", 422)).text


async def test_brain_entries_are_added_edited_pinned_and_restored(console: ConsoleClient) -> None:
    path = "/agents/reviewer/brain"
    entry = {"type": "decision", "content": "Use **tabs**.", "tags": "style, api", "pinned": "on"}
    page = await console.send(path, entry)
    (row,) = page.one("ol", class_="timeline").all("li", data_row="")
    assert row.one("strong").text == "tabs"
    assert "## Memory" not in page.one("pre", id="prompt").raw_text
    included = await console.send(f"{path}/-/include", {"includeBrain": "on"})
    assert "- [decision] Use **tabs**." in included.one("pre", id="prompt").raw_text
    id = row.attributes["id"].removeprefix("entry-")
    await console.send(f"{path}/{id}", entry | {"content": "Use spaces."})
    assert "Use spaces." in (await console.page(path, tag="style")).text
    assert "No entries match." in (await console.page(path, type="summary")).text
    unpinned = await console.send(f"{path}/{id}/pin", {}, live=True)
    assert "checked" not in unpinned.one("li", id=f"entry-{id}").one("input", name="pinned").attributes
    deleted = await console.send(f"{path}/{id}/delete")
    undo = next(form for form in deleted.all("form", action=path) if "Undo" in form.text)
    fields = {each.attributes["name"]: each.attributes["value"] for each in undo.all("input")}
    assert "Use spaces." in (await console.send(path, fields)).text


async def test_history_shows_changes_and_restores_versions(console: ConsoleClient) -> None:
    await console.send("/agents/reviewer/skills/evidence/switch")
    history = await console.page("/agents/reviewer/history")
    assert [row.one("a").text for row in history.all("li", data_row="")] == ["Version 2", "Version 1"]
    assert "owner (web)" in history.text
    diff = await console.page("/agents/reviewer/history/2")
    assert '"enabled": false' in diff.one("ins").text
    assert '"enabled": true' in diff.one("del").text
    await console.send("/agents/reviewer/restore", {"version": "1"})
    assert (await console.crib.zoo.get("reviewer")).version == 3
    await console.send("/agents/reviewer/delete")
    assert "was deleted" in (await console.page("/agents/reviewer/history")).text


async def test_agents_are_imported_and_exported(console: ConsoleClient) -> None:
    sub_agent = "---\nname: porter\ndescription: Carries.\n---\nCarry it."
    looked = await console.send("/agents/-/import", {"text": sub_agent, "name": "porter.md", "look": "1"})
    assert "Would import 1 agent" in looked.text
    taken = await console.send("/agents/-/import", files={"files": ("porter.md", sub_agent.encode())})
    assert taken.one("a", href="/agents/porter").text == "porter"
    assert "Nothing to import." in (await console.send("/agents/-/import", {"text": "?"})).text
    await console.send("/agents/-/import", status=422, files={"files": ("x.md", b"\xff\xfe\x00")})
    assert "Download" in (await console.page("/agents/porter/export")).text
    file = await console.client.get("/agents/porter/export/claude")
    assert "Carry it." in file.text
    assert file.headers["content-disposition"] == 'attachment; filename="porter.md"'
    packed = await console.client.get("/agents/reviewer/export/skills")
    assert "evidence/SKILL.md" in zipfile.ZipFile(io.BytesIO(packed.content)).namelist()


async def test_hostile_text_is_inert_on_every_page_and_saved_unchanged(console: ConsoleClient) -> None:
    name = HOSTILE.replace("\u202e\u200b", "").strip()
    await console.send("/agents", {"name": name})
    (id,) = [each.id for each in await console.crib.zoo.list() if each.name == name]
    page = await console.page(f"/agents/{id}")
    fields = {"was": _was(page), "name": name, "description": HOSTILE, "systemPrompt": HOSTILE, "contextRefs": name}
    await console.send(f"/agents/{id}", fields)
    await console.send(f"/agents/{id}/skills/-/new", {"name": name, "description": HOSTILE})
    await console.send(f"/agents/{id}/brain", {"type": "note", "content": HOSTILE, "tags": name})
    for path in ("", "/brain", "/tools", "/history", "/history/2", "/export"):
        shown = await console.page(f"/agents/{id}{path}")
        assert not [
            image for image in shown.all("img") if not image.attributes["src"].startswith(("data:", "/static/"))
        ]
        assert not shown.all("b")
    again = await console.page(f"/agents/{id}")
    text = again.one("textarea", name="systemPrompt").raw_text.removeprefix("\n")
    await console.send(f"/agents/{id}", fields | {"was": _was(again), "systemPrompt": text})
    assert (await console.crib.zoo.get(id)).agent.system_prompt == HOSTILE
    assert "\\u{202e}\\u{200b}" in again.one("pre", id="prompt").raw_text


async def test_unknown_agent_is_reported_on_a_page(console: ConsoleClient) -> None:
    for path in (
        "/agents/missing",
        "/agents/missing/brain",
        "/agents/missing/history",
        "/agents/reviewer/skills/nothing",
    ):
        assert (await console.page(path, 404)).one("div", class_="failure")
    assert (await console.send("/agents", {"name": " "}, 422)).one("div", class_="failure")


def _was(page: Element) -> str:
    return page.one("input", name="was").attributes["value"]


def _tools(value: JsonObject) -> list[JsonObject]:
    return [tool for server in value["servers"] for tool in server["tools"]]


async def test_categories_of_skills_are_created_changed_sorted_and_deleted(console: ConsoleClient) -> None:
    made = await console.crib.zoo.create(
        parse(AgentInput, {"name": "Sorter", "skills": [{"name": "Sort", "description": "Sort it."}]}), by="owner"
    )
    path = f"/agents/{made.agent.id}/categories"

    async def names() -> list[tuple[str, str, int]]:
        return [(each["name"], each["color"], each["skills"]) for each in (await console.json(path))["categories"]]

    ((general, colour, count),) = await names()
    assert count == 1
    await console.send(path, {"name": "Writing", "color": "#112233"})
    await console.send(f"{path}/writing", {"name": "Prose", "color": "#445566", "do": "save"})
    await console.send(f"{path}/writing", {"name": "Prose", "color": "#445566", "do": "up"})
    assert await names() == [("Prose", "#445566", 0), (general, colour, 1)]
    await console.send(f"{path}/general", {"do": "delete"})
    assert await names() == [("Prose", "#445566", 1)]
    assert "at least one" in (await console.send(f"{path}/writing", {"do": "delete"}, 409)).text
    assert "no category" in (await console.send(f"{path}/missing", {"do": "up"}, 404)).text
    assert "Categories" in (await console.page(f"/agents/{made.agent.id}")).text
