"""The zoo on both databases: kept, changed in revisions, never overwritten unread, the same for all who look."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from integration.agents.zoo.zoos import Keeper, keeping
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


async def test_a_new_zoo_has_the_starters_once_and_deleted_ones_stay_deleted(database: str) -> None:
    async with keeping(database) as keeper:
        assert [each.id for each in await keeper.zoo.list()] == sorted(starter.id for starter in STARTERS)
        assert keeper.told() == []
        for starter in STARTERS:
            await keeper.zoo.delete(starter.id, by="test")
    async with keeping(database) as keeper:
        assert await keeper.zoo.list() == []


async def test_an_agent_is_created_read_changed_and_deleted(database: str) -> None:
    async with keeping(database) as keeper:
        made = await keeper.create(name="Code Wizard", systemPrompt="P", skills=[{"name": "S"}])
        assert (made.agent.id, made.version) == ("code-wizard", 1)
        assert await keeper.zoo.get("code-wizard") == made
        changed = await keeper.update("code-wizard", description="New.")
        assert (changed.version, changed.agent) == (2, replace(made.agent, description="New."))
        assert changed.created_at == made.created_at
        assert await keeper.zoo.get("code-wizard") == changed
        await keeper.zoo.delete("code-wizard", by="test")
        with pytest.raises(NotFound, match=r"^Agent with ID 'code-wizard' not found\.$"):
            await keeper.zoo.get("code-wizard")
        assert keeper.told() == [("code-wizard", each) for each in ("created", "changed", "deleted")]


async def test_ids_are_unique_and_a_taken_one_is_refused(database: str) -> None:
    async with keeping(database) as keeper:
        ids = [(await keeper.create(name="Ünï ✓")).agent.id for _ in range(3)]
        assert ids == ["n", "n-2", "n-3"]
        with pytest.raises(Conflict) as raised:
            await keeper.create(name="x", id="n")
        assert raised.value.code == "agent.exists"


async def test_a_change_that_changes_nothing_makes_no_version(database: str) -> None:
    async with keeping(database) as keeper:
        before = await keeper.zoo.get("reviewer")
        assert await keeper.update("reviewer", **before.agent.to_json()) == before
        assert keeper.told() == []


async def test_a_refused_change_leaves_everything_as_it_was(database: str) -> None:
    async with keeping(database) as keeper:
        before = await keeper.zoo.get("reviewer")
        with pytest.raises(InvalidFields):
            await keeper.update("reviewer", name="New", skills=[{"name": "x", "categoryId": "nope"}])
        assert await keeper.zoo.get("reviewer") == before


async def test_a_version_that_is_not_the_current_one_is_refused(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.update("reviewer", version=1, description="One.")
        with pytest.raises(Conflict) as raised:
            await keeper.update("reviewer", version=1, description="Two.")
        assert raised.value.code == "request.stale"
        with pytest.raises(Conflict):
            await keeper.zoo.delete("reviewer", version=1, by="test")
        stale = parse(AgentChanges, {"version": 1, "description": "Three."})
        with pytest.raises(Conflict):
            await keeper.zoo.update("reviewer", stale, by="test")
        assert (await keeper.zoo.get("reviewer")).agent.description == "One."


async def test_concurrent_changes_of_different_fields_all_stay(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.create(name="A", id="a")
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
                    tasks.start_soon(_update, keeper, {name: value})
        kept = await keeper.zoo.get("a")
        assert kept.version == 1 + len(fields)
        assert fields.items() <= kept.agent.to_json().items()


async def _update(keeper: Keeper, fields: JsonObject) -> None:
    await keeper.update("a", **fields)


async def test_of_concurrent_changes_from_one_version_one_wins_and_all_others_are_told(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.create(name="A", id="a")
        won: list[str] = []
        lost: list[str] = []

        async def change(text: str) -> None:
            try:
                await keeper.update("a", version=1, description=text)
                won.append(text)
            except Conflict as error:
                lost.append(error.code)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(change, f"d{number}")
        assert (len(won), lost) == (1, ["request.stale"] * 7)
        assert (await keeper.zoo.get("a")).agent.description == won[0]


async def test_every_change_is_a_revision_that_can_be_compared_and_restored(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.create(name="A", id="a", systemPrompt="one\ntwo")
        await keeper.update("a", systemPrompt="one\nthree")
        await keeper.zoo.delete("a", by="somebody")
        kinds = [(each.version, each.kind, each.author) for each in await keeper.zoo.revisions("a")]
        assert kinds == [(3, "deleted", "somebody"), (2, "changed", "test"), (1, "created", "test")]
        first, second = await keeper.zoo.revision("a", 1), await keeper.zoo.revision("a", 2)
        text = difference(first.agent, second.agent, ("1", "2"))
        assert '-    "two"' in text
        assert '+    "three"' in text
        restored = await keeper.zoo.restore("a", 1, by="test")
        assert (restored.version, restored.agent.system_prompt) == (4, "one\ntwo")
        again = await keeper.zoo.restore("a", 2, by="test")
        assert (again.version, again.agent.system_prompt) == (5, "one\nthree")
        for version, agent in ((3, "a"), (99, "a"), (1, "nobody")):
            with pytest.raises(NotFound) as raised:
                await keeper.zoo.restore(agent, version, by="test")
            assert raised.value.code == "agent.revision_unknown"
        with pytest.raises(NotFound):
            await keeper.zoo.revisions("nobody")


async def test_an_id_that_comes_back_never_repeats_a_version(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.create(name="A", id="a")
        await keeper.zoo.delete("a", by="test")
        assert (await keeper.create(name="Other", id="a")).version == 3


async def test_a_skill_is_switched_with_what_it_requires(database: str) -> None:
    skills = [
        {"id": "x", "name": "X", "enabled": False, "requires": ["y"], "tools": ["git/*"]},
        {"id": "y", "name": "Y", "enabled": False},
    ]
    async with keeping(database) as keeper:
        await keeper.create(name="A", id="a", skills=skills, toolPermissions=[])
        assert keeper.zoo.granted("a") == ((), ())
        kept = await keeper.switch("a", "x", True)
        assert [skill.enabled for skill in kept.agent.skills] == [True, True]
        assert keeper.zoo.granted("a") == ((), ("git/*",))
        with pytest.raises(NotFound) as raised:
            await keeper.switch("a", "z", True)
        assert raised.value.code == "agent.skill_unknown"
        assert keeper.zoo.granted("nobody") is None


async def test_a_clone_has_everything_but_the_brain_and_a_deleted_starter_is_still_a_template(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.remember("reviewer", "x")
        clone = await keeper.zoo.clone("reviewer", parse(AgentChanges, {}), by="test")
        assert (clone.agent.id, clone.agent.name) == ("code-reviewer-copy", "Code Reviewer (copy)")
        assert replace(clone.agent, id="reviewer", name="Code Reviewer") == STARTERS[0]
        assert await keeper.zoo.brain.find(clone.agent.id, EntryQuery()) == []
        await keeper.zoo.delete("reviewer", by="test")
        named = parse(AgentChanges, {"name": "Mine", "id": "mine", "model": "m"})
        assert (await keeper.zoo.clone("reviewer", named, by="test")).agent.model == "m"
        with pytest.raises(NotFound):
            await keeper.zoo.clone("nobody", named, by="test")


async def test_entries_are_found_by_type_tags_dates_and_pin_newest_first(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.remember("tester", "a", type="decision", tags=["x", "y"], timestamp="2026-01-01T08:00:00Z")
        await keeper.remember("tester", "b", tags=["y"], timestamp="2026-01-02T08:00:00Z", pinned=True)
        await keeper.remember("tester", "c", tags=["z"], timestamp="2026-01-03T23:30:00Z")
        await keeper.remember("writer", "other")

        async def found(query: EntryQuery) -> str:
            return "".join(entry.content for entry in await keeper.zoo.brain.find("tester", query))

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
            await keeper.zoo.brain.find("nobody", EntryQuery())


async def test_a_partial_change_of_an_entry_keeps_all_else(database: str) -> None:
    async with keeping(database) as keeper:
        entry_id = await keeper.remember("tester", "a", tags=["t"], metadata={"sessionId": "s"})
        before = (await keeper.zoo.brain.get("tester", entry_id)).to_json()
        assert before["metadata"] == {"source": "manual", "sessionId": "s"}
        assert await keeper.amend("tester", entry_id, pinned=True) == before | {"pinned": True}
        changed = await keeper.amend("tester", entry_id, metadata={"workspaceId": "w"})
        assert changed["metadata"] == {"source": "manual", "sessionId": "s", "workspaceId": "w"}
        assert (await keeper.zoo.brain.pin("tester", entry_id)).pinned is False
        assert (await keeper.zoo.brain.pin("tester", entry_id, True)).pinned is True
        await keeper.zoo.brain.delete("tester", entry_id)
        for change in (keeper.amend("tester", entry_id, pinned=True), keeper.zoo.brain.delete("tester", entry_id)):
            with pytest.raises(NotFound) as raised:
                await change
            assert raised.value.code == "agent.entry_unknown"
        assert set(keeper.told()) == {("tester", "brain")}


async def test_concurrent_changes_of_one_entry_all_stay(database: str) -> None:
    async with keeping(database) as keeper:
        entry_id = await keeper.remember("tester", "a")

        async def change(name: str, value: object) -> None:
            await keeper.amend("tester", entry_id, **{name: value})

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for name, value in (("content", "b"), ("tags", ["t"]), ("pinned", True), ("type", "summary")):
                    tasks.start_soon(change, name, value)
        entry = await keeper.zoo.brain.get("tester", entry_id)
        assert (entry.content, entry.tags, entry.pinned, entry.type) == ("b", ("t",), True, "summary")


async def test_a_deleted_agent_takes_its_brain_along(database: str) -> None:
    async with keeping(database) as keeper:
        entry_id = await keeper.remember("tester", "a")
        await keeper.zoo.delete("tester", by="test")
        with pytest.raises(NotFound) as raised:
            await keeper.remember("tester", "b")
        assert raised.value.code == "agent.unknown"
        await keeper.zoo.restore("tester", 1, by="test")
        with pytest.raises(NotFound):
            await keeper.zoo.brain.get("tester", entry_id)
    assert fetch_rows(database, "SELECT * FROM brain") == []


async def test_an_entry_of_a_taken_id_is_refused(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.remember("tester", "a", id="e")
        await keeper.remember("writer", "a", id="e")
        with pytest.raises(Conflict) as raised:
            await keeper.remember("tester", "b", id="e")
        assert raised.value.code == "agent.entry_exists"


async def test_pinned_memories_reach_the_prompt_of_an_agent_that_opted_in(database: str) -> None:
    async with keeping(database) as keeper:
        await keeper.create(name="A", id="a", systemPrompt="P", contextRefs=["docs/"])
        await keeper.remember("a", "pinned", pinned=True, type="decision")
        await keeper.remember("a", "not pinned")
        first = "You are now A. Use agentId=a for all agent_zoo tool usage.\n\nP"
        assert await keeper.zoo.inject("a") == {"agentId": "a", "agentName": "A", "prompt": first}
        await keeper.update("a", includeBrain=True, systemPrompt="")
        assert await keeper.zoo.inject("a", cwd="/project") == {
            "agentId": "a",
            "agentName": "A",
            "prompt": "You are now A. Use agentId=a for all agent_zoo tool usage.\n\n"
            "## Memory\n\n- [decision] pinned\n\n## Context\n\n- docs/\n\nBundled.",
            "warnings": ["systemPrompt is empty"],
        }


async def test_two_cribs_on_one_database_see_each_other(postgres_url: str) -> None:
    async with keeping(postgres_url) as one, keeping(postgres_url) as other:
        await one.create(name="A", id="a", toolPermissions=["x/y"])
        assert (await other.zoo.get("a")).version == 1
        assert "a" in [each.id for each in await other.zoo.list()]
        assert other.told() == [("a", "created")]
        assert other.zoo.granted("a") == (("x/y",), ())
        await other.update("a", toolPermissions=[])
        entry_id = await other.remember("a", "from the other")
        assert (await one.zoo.brain.get("a", entry_id)).content == "from the other"
        await one.zoo.refresh()
        assert one.zoo.granted("a") == ((), ())
        assert one.told() == [("a", "created"), ("a", "changed")]
        with pytest.raises(Conflict):
            await one.update("a", version=1, name="B")


async def test_a_crib_hears_by_itself_of_what_another_one_changed(postgres_url: str) -> None:
    async with (
        keeping(postgres_url) as one,
        keeping(postgres_url) as other,
        Signals(one.store, "one") as signals,
    ):
        signals.on_poll(one.zoo.on_poll)
        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.zoo.follow)
                await other.create(name="A", id="a")
                await one.heard.wait()
                assert one.told() == [("a", "created")]
                one.heard = anyio.Event()
                await other.update("a", description="New.")
                await one.heard.wait()
                assert one.told() == [("a", "changed")]
                one.heard = anyio.Event()
                await other.remember("a", "new")
                await one.heard.wait()
                tasks.cancel_scope.cancel()
        assert one.told() == [("a", "brain")]


async def test_edits_of_two_cribs_at_the_same_time_are_never_lost(postgres_url: str) -> None:
    async with keeping(postgres_url) as one, keeping(postgres_url) as other:
        await one.create(name="A", id="a", skills=[{"id": f"s{n}", "name": "S", "enabled": False} for n in range(8)])
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    keeper = one if number % 2 else other
                    tasks.start_soon(keeper.switch, "a", f"s{number}", True)
        kept = await one.zoo.get("a")
        assert all(skill.enabled for skill in kept.agent.skills)
        assert kept.version == 9


async def test_two_cribs_that_start_together_have_the_starters_once(postgres_url: str) -> None:
    async def start() -> None:
        async with keeping(postgres_url) as keeper:
            assert len(await keeper.zoo.list()) == len(STARTERS)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(start)


async def test_files_are_taken_each_by_itself_and_ids_never_replaced(database: str) -> None:
    files = [
        ("reviewer.md", "---\nname: Reviewer\n---\nOther."),
        ("broken.md", "nothing"),
        ("agents.json", '[{"name": "Z", "brainEntries": [{"type": "note", "content": "m"}]}]'),
    ]
    async with keeping(database) as keeper:
        before = await keeper.zoo.get("reviewer")
        dry = await take(keeper.zoo, files, into=None, dry_run=True, by="test")
        assert keeper.told() == []
        done = await take(keeper.zoo, files, into=None, dry_run=False, by="test")
        assert [item.id for item in done.items] == ["reviewer-2", "z"]
        assert keeper.renewed == 1
        assert keeper.told() == [("reviewer-2", "created"), ("z", "created")]
        assert len(dry.items) == 2
        assert [problem.code for problem in done.problems] == ["agent.note", "agent.unreadable"]
        assert await keeper.zoo.get("reviewer") == before
        (entry,) = await keeper.zoo.brain.find("z", EntryQuery())
        assert (entry.content, entry.agent_id) == ("m", "z")


async def test_a_skill_file_goes_into_an_agent_or_becomes_one(database: str) -> None:
    files = [("pdf/SKILL.md", "---\nname: pdf\ndescription: Fill.\n---\nBody.")] * 2
    async with keeping(database) as keeper:
        done = await take(keeper.zoo, files, into="writer", dry_run=False, by="test")
        assert [item.skill for item in done.items] == ["pdf", "pdf-2"]
        skill = (await keeper.zoo.get("writer")).agent.skills[-1]
        assert (skill.description, skill.enabled) == ("Fill.\n\nBody.", True)
        (item,) = (await take(keeper.zoo, files[:1], into=None, dry_run=False, by="test")).items
        assert (await keeper.zoo.get(item.id)).agent.skills[0].name == "pdf"
        with pytest.raises(NotFound):
            await take(keeper.zoo, files, into="nobody", dry_run=False, by="test")


async def test_nothing_of_a_refused_write_is_kept(database: str) -> None:
    entry = {"id": "same", "type": "note", "content": "x"}
    async with keeping(database) as keeper:
        with pytest.raises(InvalidFields, match=r"brainEntries\.1\.id"):
            await keeper.create(name="A", id="a", brainEntries=[entry, entry])
        with pytest.raises(NotFound):
            await keeper.zoo.get("a")
        with pytest.raises(NotFound):
            await keeper.zoo.revisions("a")


async def test_a_change_whose_asker_goes_away_is_made_and_known(database: str) -> None:
    async with keeping(database) as keeper:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await keeper.create(name="A", id="a")
        made = "a" in [each.id for each in keeper.zoo.known]
        assert made == ("a" in [each.id for each in await keeper.zoo.list()])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.remember, "tester", "x")
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        entries = await keeper.zoo.brain.find("tester", EntryQuery())
        assert len(entries) == keeper.told().count(("tester", "brain"))
