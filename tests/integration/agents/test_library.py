"""The library on both databases: entries are written, found by their words, replaced and deleted."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.library import LONGEST_CONTENT, Library, LibraryDraft, LibraryQuery
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.principals import Principal
from toolcrib.store.engine import open_store
from toolcrib.store.library import plain_words

pytestmark = pytest.mark.anyio

REVIEWER = Principal("session", "s1", "agent", agent="reviewer", session="s1")
OWNER = Principal("owner", "owner", "cli")


@pytest.fixture
async def library(database: str) -> AsyncGenerator[Library]:
    async with open_store(database) as store:
        yield Library(store)


async def found(library: Library, words: str = "", **more: Any) -> list[str]:
    return [entry.key for entry in await library.find(LibraryQuery(words, **more))]


async def test_entry_is_read_with_its_author(library: Library) -> None:
    written, is_new = await library.write(
        LibraryDraft("deploy/how", "Run make release.", "How to deploy", "guides", ("ops", "release", "ops")),
        by=REVIEWER,
    )
    assert is_new
    assert await library.read("deploy/how") == written
    shape = written.to_json()
    assert (shape["author"], shape["agentId"], shape["sessionId"]) == ("reviewer", "reviewer", "s1")
    assert shape["tags"] == ["ops", "release"]


async def test_rewriting_a_key_replaces_all_but_its_creation_time(library: Library) -> None:
    first, _ = await library.write(LibraryDraft("rule", "Tabs.", category="style"), by=REVIEWER)
    second, is_new = await library.write(LibraryDraft("rule", "Spaces."), by=OWNER)
    assert not is_new
    assert (second.content, second.category, second.author, second.agent) == ("Spaces.", "general", "owner", None)
    assert second.created_at == first.created_at
    assert await found(library, "tabs") == []
    assert await found(library, "spaces") == ["rule"]


async def test_words_match_by_prefix_without_case_or_accents(library: Library) -> None:
    await library.write(
        LibraryDraft("cafe", "Der Kaffee im CAFÉ kostet toolcrib.example/preis_liste", "Kosten"), by=OWNER
    )
    await library.write(LibraryDraft("other", "Nothing of that.", tags=("prices",)), by=OWNER)
    for words in ("café", "CAFE", "kaff", "kosten kaffee", "preis", "liste toolcrib", "example"):
        assert await found(library, words) == ["cafe"], words
    assert await found(library, "price") == ["other"]
    assert await found(library, "kaffee nothing") == []


async def test_entry_with_more_occurrences_comes_first(library: Library) -> None:
    await library.write(LibraryDraft("much", "lock lock lock"), by=OWNER)
    await library.write(LibraryDraft("little", "a lock among many other words that are about something else"), by=OWNER)
    assert await found(library, "lock") == ["much", "little"]


async def test_categories_and_tags_filter_the_results(library: Library) -> None:
    await library.write(LibraryDraft("a", "one", category="x", tags=("t",)), by=OWNER)
    await library.write(LibraryDraft("b", "one", category="x", tags=("u",)), by=OWNER)
    await library.write(LibraryDraft("c", "one", category="y", tags=("t",)), by=OWNER)
    assert await found(library, category="x", tags=("t",)) == ["a"]
    assert set(await found(library, "one", tags=("t", "u"))) == {"a", "b", "c"}
    assert await found(library, "one", category="y") == ["c"]
    assert len(await found(library, limit=2)) == 2
    assert await library.categories() == {"x": 2, "y": 1}


async def test_deleted_entry_is_not_found(library: Library) -> None:
    await library.write(LibraryDraft("gone", "unique"), by=OWNER)
    await library.delete("gone")
    assert await found(library, "unique") == []
    for again in (library.delete("gone"), library.read("gone")):
        with pytest.raises(NotFound) as raised:
            await again
        assert raised.value.code == "library.unknown"


@pytest.mark.parametrize(
    "draft",
    [
        LibraryDraft("", "x"),
        LibraryDraft("no spaces", "x"),
        LibraryDraft("k", " "),
        LibraryDraft("k", "x" * (LONGEST_CONTENT + 1)),
        LibraryDraft("k", "x", title="t" * 201),
        LibraryDraft("k", "x", category="No"),
        LibraryDraft("k", "x", tags=("",)),
        LibraryDraft("k", "x", tags=("t",) * 21),
    ],
)
async def test_invalid_entry_is_refused_with_a_hint(library: Library, draft: LibraryDraft) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await library.write(draft, by=OWNER)
    assert raised.value.code == "library.invalid"
    assert raised.value.hint


async def test_query_operators_are_treated_as_text(library: Library) -> None:
    await library.write(LibraryDraft("k", 'He said "NEAR(x, y)" & left | \\ back'), by=OWNER)
    for words in ('"near', "near(", "said & left", "x' OR 1", "left:* !x", "back\\"):
        await found(library, words)
    assert await found(library, "'near' & (left)") == ["k"]
    with pytest.raises(InvalidRequest):
        await found(library, "&&& --")


async def test_long_and_unusual_texts_are_stored_and_found(library: Library) -> None:
    unusual = "nul \0 surrogate \ud800 emoji 🦀 日本語 end"
    await library.write(LibraryDraft("strange", unusual), by=OWNER)
    await library.write(LibraryDraft("long", " ".join(f"word{number}" for number in range(6_000))), by=OWNER)
    assert (await library.read("strange")).content == unusual
    assert await found(library, "日本") == ["strange"]
    assert await found(library, "word5999") == ["long"]


@given(st.text())
def test_plain_words_are_stable_and_alphanumeric(text: str) -> None:
    words = plain_words(text)
    assert all(word.isalnum() for word in words)
    assert plain_words(" ".join(words)) == words
