"""An agent's own memory: saved, recalled and deleted by this agent only."""

import pytest

from integration.builtin.crew.crews import Crew
from toolcrib.agents.zoo.brain import EntryQuery

pytestmark = pytest.mark.anyio


async def test_memory_is_recalled_by_key_words_type_and_tag(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    assert await crew.result_of(
        "crib_save_memory", cook, key="salt", content="Less salt for the Captain", tags=["food"]
    ) == {
        "key": "salt",
        "created": True,
    }
    made = await crew.result_of("crib_save_memory", cook, content="We sail on Monday", type="decision", pinned=True)
    for arguments, keys in (
        ({"key": "salt"}, ["salt"]),
        ({"query": "captain SALT"}, ["salt"]),
        ({"query": "captain pepper"}, []),
        ({"type": "decision"}, [made["key"]]),
        ({"tags": ["food"]}, ["salt"]),
        ({}, [made["key"], "salt"]),
    ):
        found = await crew.result_of("crib_recall_memory", cook, **arguments)
        assert [memory["key"] for memory in found["memories"]] == keys, arguments
        assert found["more"] is False
    first = await crew.result_of("crib_recall_memory", cook, limit=1)
    assert (first["memories"][0]["pinned"], first["more"]) == (True, True)
    entry = (await crew.crib.zoo.brain.find("cook", EntryQuery(tags=("food",))))[0]
    assert dict(entry.metadata) == {"source": "mcp", "sessionId": cook.session}


async def test_saving_an_existing_key_replaces_the_memory(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    await crew.result_of("crib_save_memory", cook, key="k", content="old", tags=["a"])
    again = await crew.result_of("crib_save_memory", cook, key="k", content="new", type="milestone")
    assert again == {"key": "k", "created": False}
    (memory,) = (await crew.result_of("crib_recall_memory", cook))["memories"]
    assert (memory["content"], memory["type"], memory["tags"]) == ("new", "milestone", [])


async def test_agent_cannot_read_or_delete_the_memory_of_another(crew: Crew) -> None:
    cook, mate = [(await crew.session(agent)).principal for agent in ("cook", "mate")]
    await crew.result_of("crib_save_memory", cook, key="k", content="mine")
    assert "not found" in await crew.error_of("crib_recall_memory", mate, key="k")
    assert "not found" in await crew.error_of("crib_delete_memory", mate, key="k")
    assert await crew.result_of("crib_delete_memory", cook, key="k") == {"key": "k", "deleted": True}
    assert (await crew.result_of("crib_recall_memory", cook))["memories"] == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("crib_save_memory", {"content": "x"}),
        ("crib_recall_memory", {}),
        ("crib_delete_memory", {"key": "k"}),
    ],
)
async def test_caller_that_is_no_agent_has_no_memory(crew: Crew, tool: str, arguments: dict[str, str]) -> None:
    error = await crew.error_of(tool, crew.crib.owner("cli"), **arguments)
    assert "is not an agent" in error
    assert "Hint: Call it as an agent" in error


async def test_invalid_memory_arguments_are_refused(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    assert "id" in await crew.error_of("crib_save_memory", cook, key="no spaces", content="x")
    assert "content" in await crew.error_of("crib_save_memory", cook, content="")
    assert "limit" in await crew.error_of("crib_recall_memory", cook, limit=0)
