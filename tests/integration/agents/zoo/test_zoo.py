"""The zoo on both databases: versions, revisions, concurrent changes, brains, and several cribs."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from integration.agents.zoo.zoo_harness import ZooHarness, open_zoo_harness
from integration.store.databases import fetch_rows
from toolcrib.agents.zoo.brain import EntryQuery
from toolcrib.agents.zoo.check import InvalidFields, parse
from toolcrib.agents.zoo.difference import difference
from toolcrib.agents.zoo.importing import take
from toolcrib.agents.zoo.input import AgentChanges
from toolcrib.agents.zoo.starters import STARTERS
from toolcrib.model.errors import Conflict, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.nodes.signals import Signals

pytestmark = pytest.mark.anyio


async def test_new_zoo_has_the_starters_and_deleted_ones_stay_deleted(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        assert [each.id for each in await harness.zoo.list()] == sorted(starter.id for starter in STARTERS)
        assert harness.take_changes() == []
        for starter in STARTERS:
            await harness.zoo.delete(starter.id, by="test")
    async with open_zoo_harness(database) as harness:
        assert await harness.zoo.list() == []


async def test_agent_is_created_read_changed_and_deleted(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        made = await harness.create(name="Code Wizard", systemPrompt="P", skills=[{"name": "S"}])
        assert (made.agent.id, made.version) == ("code-wizard", 1)
        assert await harness.zoo.get("code-wizard") == made
        changed = await harness.update("code-wizard", description="New.")
        assert (changed.version, changed.agent) == (2, replace(made.agent, description="New."))
        assert changed.created_at == made.created_at
        assert await harness.zoo.get("code-wizard") == changed
        await harness.zoo.delete("code-wizard", by="test")
        with pytest.raises(NotFound, match=r"^Agent with ID 'code-wizard' not found\.$"):
            await harness.zoo.get("code-wizard")
        assert harness.take_changes() == [("code-wizard", each) for each in ("created", "changed", "deleted")]


async def test_generated_ids_are_unique_and_an_existing_id_is_refused(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        ids = [(await harness.create(name="Ünï ✓")).agent.id for _ in range(3)]
        assert ids == ["n", "n-2", "n-3"]
        with pytest.raises(Conflict) as raised:
            await harness.create(name="x", id="n")
        assert raised.value.code == "agent.exists"


async def test_change_without_effect_creates_no_version(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        before = await harness.zoo.get("reviewer")
        assert await harness.update("reviewer", **before.agent.to_json()) == before
        assert harness.take_changes() == []


async def test_refused_change_has_no_effect(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        before = await harness.zoo.get("reviewer")
        with pytest.raises(InvalidFields):
            await harness.update("reviewer", name="New", skills=[{"name": "x", "categoryId": "nope"}])
        assert await harness.zoo.get("reviewer") == before


async def test_stale_version_is_refused(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.update("reviewer", version=1, description="One.")
        with pytest.raises(Conflict) as raised:
            await harness.update("reviewer", version=1, description="Two.")
        assert raised.value.code == "request.stale"
        with pytest.raises(Conflict):
            await harness.zoo.delete("reviewer", version=1, by="test")
        stale = parse(AgentChanges, {"version": 1, "description": "Three."})
        with pytest.raises(Conflict):
            await harness.zoo.update("reviewer", stale, by="test")
        assert (await harness.zoo.get("reviewer")).agent.description == "One."


async def test_concurrent_changes_of_different_fields_are_all_kept(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.create(name="A", id="a")
        fields: JsonObject = {
            "description": "d",
            "systemPrompt": "p",
            "model": "m",
            "includeBrain": True,
            "contextRefs": ["r"],
        }
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for name, value in fields.items():
                    tasks.start_soon(_update, harness, {name: value})
        stored = await harness.zoo.get("a")
        assert stored.version == 1 + len(fields)
        assert fields.items() <= stored.agent.to_json().items()


async def _update(harness: ZooHarness, fields: JsonObject) -> None:
    await harness.update("a", **fields)


async def test_one_of_concurrent_changes_of_a_version_succeeds(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.create(name="A", id="a")
        accepted: list[str] = []
        refused: list[str] = []

        async def change(text: str) -> None:
            try:
                await harness.update("a", version=1, description=text)
                accepted.append(text)
            except Conflict as error:
                refused.append(error.code)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(change, f"d{number}")
        assert (len(accepted), refused) == (1, ["request.stale"] * 7)
        assert (await harness.zoo.get("a")).agent.description == accepted[0]


async def test_every_change_is_a_revision_that_can_be_restored(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.create(name="A", id="a", systemPrompt="one\ntwo")
        await harness.update("a", systemPrompt="one\nthree")
        await harness.zoo.delete("a", by="another")
        kinds = [(each.version, each.kind, each.author) for each in await harness.zoo.revisions("a")]
        assert kinds == [(3, "deleted", "another"), (2, "changed", "test"), (1, "created", "test")]
        first, second = await harness.zoo.revision("a", 1), await harness.zoo.revision("a", 2)
        text = difference(first.agent, second.agent, ("1", "2"))
        assert '-    "two"' in text
        assert '+    "three"' in text
        restored = await harness.zoo.restore("a", 1, by="test")
        assert (restored.version, restored.agent.system_prompt) == (4, "one\ntwo")
        again = await harness.zoo.restore("a", 2, by="test")
        assert (again.version, again.agent.system_prompt) == (5, "one\nthree")
        for version, agent in ((3, "a"), (99, "a"), (1, "unknown")):
            with pytest.raises(NotFound) as raised:
                await harness.zoo.restore(agent, version, by="test")
            assert raised.value.code == "agent.revision_unknown"
        with pytest.raises(NotFound):
            await harness.zoo.revisions("unknown")


async def test_reused_id_never_repeats_a_version(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.create(name="A", id="a")
        await harness.zoo.delete("a", by="test")
        assert (await harness.create(name="Other", id="a")).version == 3


async def test_enabling_a_skill_enables_its_requirements(database: str) -> None:
    skills = [
        {"id": "x", "name": "X", "enabled": False, "requires": ["y"], "tools": ["git/*"]},
        {"id": "y", "name": "Y", "enabled": False},
    ]
    async with open_zoo_harness(database) as harness:
        await harness.create(name="A", id="a", skills=skills, toolPermissions=[])
        assert harness.zoo.granted("a") == ((), ())
        stored = await harness.switch("a", "x", True)
        assert [skill.enabled for skill in stored.agent.skills] == [True, True]
        assert harness.zoo.granted("a") == ((), ("git/*",))
        with pytest.raises(NotFound) as raised:
            await harness.switch("a", "z", True)
        assert raised.value.code == "agent.skill_unknown"
        assert harness.zoo.granted("unknown") is None


async def test_clone_has_no_brain_and_a_deleted_starter_is_still_a_template(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.remember("reviewer", "x")
        clone = await harness.zoo.clone("reviewer", parse(AgentChanges, {}), by="test")
        assert (clone.agent.id, clone.agent.name) == ("code-reviewer-copy", "Code Reviewer (copy)")
        assert replace(clone.agent, id="reviewer", name="Code Reviewer") == STARTERS[0]
        assert await harness.zoo.brain.find(clone.agent.id, EntryQuery()) == []
        await harness.zoo.delete("reviewer", by="test")
        named = parse(AgentChanges, {"name": "Mine", "id": "mine", "model": "m"})
        assert (await harness.zoo.clone("reviewer", named, by="test")).agent.model == "m"
        with pytest.raises(NotFound):
            await harness.zoo.clone("unknown", named, by="test")


async def test_entries_are_filtered_by_type_tags_dates_and_pin(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.remember("tester", "a", type="decision", tags=["x", "y"], timestamp="2026-01-01T08:00:00Z")
        await harness.remember("tester", "b", tags=["y"], timestamp="2026-01-02T08:00:00Z", pinned=True)
        await harness.remember("tester", "c", tags=["z"], timestamp="2026-01-03T23:30:00Z")
        await harness.remember("writer", "other")

        async def found(query: EntryQuery) -> str:
            return "".join(entry.content for entry in await harness.zoo.brain.find("tester", query))

        assert await found(EntryQuery()) == "cba"
        assert await found(EntryQuery(type="decision")) == "a"
        assert await found(EntryQuery(tags=("x", "z"))) == "ca"
        assert await found(EntryQuery(pinned=True)) == "b"
        assert await found(EntryQuery(pinned=False)) == "ca"
        assert await found(EntryQuery(date_from="2026-01-02")) == "cb"
        assert await found(EntryQuery(date_to="2026-01-03")) == "cba"
        assert await found(EntryQuery(date_from="2026-01-02T08:00:00Z", date_to="2026-01-02")) == "b"
        assert await found(EntryQuery(tags=("y",), pinned=True, limit=1)) == "b"
        with pytest.raises(InvalidFields, match="dateFrom: is not a date"):
            await found(EntryQuery(date_from="soon"))
        with pytest.raises(NotFound):
            await harness.zoo.brain.find("unknown", EntryQuery())


async def test_partial_change_of_an_entry_keeps_other_fields(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        entry_id = await harness.remember("tester", "a", tags=["t"], metadata={"sessionId": "s"})
        before = (await harness.zoo.brain.get("tester", entry_id)).to_json()
        assert before["metadata"] == {"source": "manual", "sessionId": "s"}
        assert await harness.amend("tester", entry_id, pinned=True) == before | {"pinned": True}
        changed = await harness.amend("tester", entry_id, metadata={"workspaceId": "w"})
        assert changed["metadata"] == {"source": "manual", "sessionId": "s", "workspaceId": "w"}
        assert (await harness.zoo.brain.pin("tester", entry_id)).pinned is False
        assert (await harness.zoo.brain.pin("tester", entry_id, True)).pinned is True
        await harness.zoo.brain.delete("tester", entry_id)
        for change in (harness.amend("tester", entry_id, pinned=True), harness.zoo.brain.delete("tester", entry_id)):
            with pytest.raises(NotFound) as raised:
                await change
            assert raised.value.code == "agent.entry_unknown"
        assert set(harness.take_changes()) == {("tester", "brain")}


async def test_concurrent_changes_of_one_entry_are_all_kept(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        entry_id = await harness.remember("tester", "a")

        async def change(name: str, value: object) -> None:
            await harness.amend("tester", entry_id, **{name: value})

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for name, value in (("content", "b"), ("tags", ["t"]), ("pinned", True), ("type", "summary")):
                    tasks.start_soon(change, name, value)
        entry = await harness.zoo.brain.get("tester", entry_id)
        assert (entry.content, entry.tags, entry.pinned, entry.type) == ("b", ("t",), True, "summary")


async def test_deleting_an_agent_deletes_its_brain(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        entry_id = await harness.remember("tester", "a")
        await harness.zoo.delete("tester", by="test")
        with pytest.raises(NotFound) as raised:
            await harness.remember("tester", "b")
        assert raised.value.code == "agent.unknown"
        await harness.zoo.restore("tester", 1, by="test")
        with pytest.raises(NotFound):
            await harness.zoo.brain.get("tester", entry_id)
    assert fetch_rows(database, "SELECT * FROM brain") == []


async def test_entry_with_an_existing_id_is_refused(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.remember("tester", "a", id="e")
        await harness.remember("writer", "a", id="e")
        with pytest.raises(Conflict) as raised:
            await harness.remember("tester", "b", id="e")
        assert raised.value.code == "agent.entry_exists"


async def test_pinned_entries_are_in_the_prompt_if_the_agent_includes_its_brain(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        await harness.create(name="A", id="a", systemPrompt="P", contextRefs=["docs/"])
        await harness.remember("a", "pinned", pinned=True, type="decision")
        await harness.remember("a", "not pinned")
        first = "You are now A. Use agentId=a for all agent_zoo tool usage.\n\nP"
        assert await harness.zoo.inject("a") == {"agentId": "a", "agentName": "A", "prompt": first}
        await harness.update("a", includeBrain=True, systemPrompt="")
        assert await harness.zoo.inject("a", cwd="/project") == {
            "agentId": "a",
            "agentName": "A",
            "prompt": "You are now A. Use agentId=a for all agent_zoo tool usage.\n\n"
            "## Memory\n\n- [decision] pinned\n\n## Context\n\n- docs/\n\nBundled.",
            "warnings": ["systemPrompt is empty"],
        }


async def test_two_cribs_on_one_database_see_each_others_changes(postgres_url: str) -> None:
    async with open_zoo_harness(postgres_url) as one, open_zoo_harness(postgres_url) as other:
        await one.create(name="A", id="a", toolPermissions=["x/y"])
        assert (await other.zoo.get("a")).version == 1
        assert "a" in [each.id for each in await other.zoo.list()]
        assert other.take_changes() == [("a", "created")]
        assert other.zoo.granted("a") == (("x/y",), ())
        await other.update("a", toolPermissions=[])
        entry_id = await other.remember("a", "from the other")
        assert (await one.zoo.brain.get("a", entry_id)).content == "from the other"
        await one.zoo.refresh()
        assert one.zoo.granted("a") == ((), ())
        assert one.take_changes() == [("a", "created"), ("a", "changed")]
        with pytest.raises(Conflict):
            await one.update("a", version=1, name="B")


async def test_crib_follows_changes_of_another_crib(postgres_url: str) -> None:
    async with (
        open_zoo_harness(postgres_url) as one,
        open_zoo_harness(postgres_url) as other,
        Signals(one.store, "one") as signals,
    ):
        signals.on_poll(one.zoo.on_poll)
        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.zoo.follow)
                await other.create(name="A", id="a")
                await one.published.wait()
                assert one.take_changes() == [("a", "created")]
                one.published = anyio.Event()
                await other.update("a", description="New.")
                await one.published.wait()
                assert one.take_changes() == [("a", "changed")]
                one.published = anyio.Event()
                await other.remember("a", "new")
                await one.published.wait()
                tasks.cancel_scope.cancel()
        assert one.take_changes() == [("a", "brain")]


async def test_concurrent_edits_of_two_cribs_are_all_kept(postgres_url: str) -> None:
    async with open_zoo_harness(postgres_url) as one, open_zoo_harness(postgres_url) as other:
        await one.create(name="A", id="a", skills=[{"id": f"s{n}", "name": "S", "enabled": False} for n in range(8)])
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    harness = one if number % 2 else other
                    tasks.start_soon(harness.switch, "a", f"s{number}", True)
        stored = await one.zoo.get("a")
        assert all(skill.enabled for skill in stored.agent.skills)
        assert stored.version == 9


async def test_cribs_that_start_together_store_the_starters_once(postgres_url: str) -> None:
    async def start() -> None:
        async with open_zoo_harness(postgres_url) as harness:
            assert len(await harness.zoo.list()) == len(STARTERS)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(start)


async def test_files_are_imported_independently_without_replacing_ids(database: str) -> None:
    files = [
        ("reviewer.md", "---\nname: Reviewer\n---\nOther."),
        ("broken.md", "nothing"),
        ("agents.json", '[{"name": "Z", "brainEntries": [{"type": "note", "content": "m"}]}]'),
    ]
    async with open_zoo_harness(database) as harness:
        before = await harness.zoo.get("reviewer")
        dry = await take(harness.zoo, files, into=None, dry_run=True, by="test")
        assert harness.take_changes() == []
        done = await take(harness.zoo, files, into=None, dry_run=False, by="test")
        assert [item.id for item in done.items] == ["reviewer-2", "z"]
        assert harness.renewed == 1
        assert harness.take_changes() == [("reviewer-2", "created"), ("z", "created")]
        assert len(dry.items) == 2
        assert [problem.code for problem in done.problems] == ["agent.note", "agent.unreadable"]
        assert await harness.zoo.get("reviewer") == before
        (entry,) = await harness.zoo.brain.find("z", EntryQuery())
        assert (entry.content, entry.agent_id) == ("m", "z")


async def test_skill_file_is_added_to_an_agent_or_becomes_one(database: str) -> None:
    files = [("pdf/SKILL.md", "---\nname: pdf\ndescription: Fill.\n---\nBody.")] * 2
    async with open_zoo_harness(database) as harness:
        done = await take(harness.zoo, files, into="writer", dry_run=False, by="test")
        assert [item.skill for item in done.items] == ["pdf", "pdf-2"]
        skill = (await harness.zoo.get("writer")).agent.skills[-1]
        assert (skill.description, skill.enabled) == ("Fill.\n\nBody.", True)
        (item,) = (await take(harness.zoo, files[:1], into=None, dry_run=False, by="test")).items
        assert (await harness.zoo.get(item.id)).agent.skills[0].name == "pdf"
        with pytest.raises(NotFound):
            await take(harness.zoo, files, into="unknown", dry_run=False, by="test")


async def test_refused_creation_stores_nothing(database: str) -> None:
    entry = {"id": "same", "type": "note", "content": "x"}
    async with open_zoo_harness(database) as harness:
        with pytest.raises(InvalidFields, match=r"brainEntries\.1\.id"):
            await harness.create(name="A", id="a", brainEntries=[entry, entry])
        with pytest.raises(NotFound):
            await harness.zoo.get("a")
        with pytest.raises(NotFound):
            await harness.zoo.revisions("a")


async def test_cancelled_change_is_either_made_and_known_or_not_made(database: str) -> None:
    async with open_zoo_harness(database) as harness:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await harness.create(name="A", id="a")
        made = "a" in [each.id for each in harness.zoo.known]
        assert made == ("a" in [each.id for each in await harness.zoo.list()])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.remember, "tester", "x")
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        entries = await harness.zoo.brain.find("tester", EntryQuery())
        assert len(entries) == harness.take_changes().count(("tester", "brain"))
