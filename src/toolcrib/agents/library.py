"""The library: knowledge shared by all agents, found by key, category, tag or full-text search.

Writing to an existing key overwrites the entry. Each entry records its last author and session, so readers can judge
its reliability.

Invariant: every stored entry has an author.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.library import LibraryEntry
from toolcrib.model.principals import Principal
from toolcrib.store.engine import Store
from toolcrib.store.library import (
    LibraryQuery,
    delete_entry,
    find_entries,
    load_categories,
    load_entry,
    plain_words,
    save_entry,
)

GENERAL = "general"
LONGEST_CONTENT = 64 * 1024
"""In characters."""
LONGEST_TITLE = 200
LONGEST_TAG = 50
MOST_TAGS = 20
MOST_LISTED = 200
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,99}")
_CATEGORY = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")

__all__ = ["GENERAL", "LONGEST_CONTENT", "MOST_LISTED", "Library", "LibraryDraft", "LibraryQuery"]


@dataclass(frozen=True, slots=True)
class LibraryDraft:
    """An entry to be written to the library."""

    key: str
    content: str
    title: str = ""
    category: str = GENERAL
    tags: tuple[str, ...] = ()


class Library:
    """Reads, writes and searches the library's entries."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def write(self, writing: LibraryDraft, *, by: Principal) -> tuple[LibraryEntry, bool]:
        """Create or overwrite an entry; return it, and whether it is new. Raises `library.invalid`."""
        _check(writing)
        now = datetime.now(UTC)
        entry = LibraryEntry(
            key=writing.key,
            content=writing.content,
            title=writing.title.strip(),
            category=writing.category,
            tags=tuple(dict.fromkeys(tag.strip() for tag in writing.tags)),
            author=by.agent or by.name,
            created_at=now,
            updated_at=now,
            agent=by.agent,
            session=by.session,
        )
        is_new = await save_entry(self._store, entry)
        return await self.read(entry.key), is_new

    async def read(self, key: str) -> LibraryEntry:
        """Return the entry; raises `library.unknown`."""
        found = await load_entry(self._store, key)
        if found is None:
            raise NotFound("library.unknown", f"The library has no entry {key!r}.")
        return found

    async def find(self, wanted: LibraryQuery) -> Sequence[LibraryEntry]:
        """Return matching entries: best match first for a text search, else newest first. Raises `library.invalid`."""
        if wanted.words and not plain_words(wanted.words):
            raise InvalidRequest("library.invalid", f"{wanted.words!r} contains no word to search for.", "Use words.")
        return await find_entries(self._store, replace(wanted, limit=min(max(wanted.limit, 1), MOST_LISTED)))

    async def categories(self) -> dict[str, int]:
        """Return the existing categories with the number of entries in each."""
        return await load_categories(self._store)

    async def delete(self, key: str) -> None:
        """Delete an entry permanently; raises `library.unknown`."""
        if not await delete_entry(self._store, key):
            raise NotFound("library.unknown", f"The library has no entry {key!r}.")


def _check(writing: LibraryDraft) -> None:
    if not _KEY.fullmatch(writing.key):
        raise _invalid(f"{writing.key[:120]!r} is not a valid key.", "Use up to 100 letters, digits and `_./-`.")
    if not _CATEGORY.fullmatch(writing.category):
        raise _invalid(
            f"{writing.category[:120]!r} is not a valid category.", "Use up to 50 lower-case letters, digits and `_-`."
        )
    if not writing.content.strip() or len(writing.content) > LONGEST_CONTENT:
        raise _invalid(f"The content has {len(writing.content)} characters.", f"Write 1 to {LONGEST_CONTENT}.")
    if len(writing.title) > LONGEST_TITLE:
        raise _invalid(f"The title has {len(writing.title)} characters.", f"Write {LONGEST_TITLE} at most.")
    if len(writing.tags) > MOST_TAGS or not all(0 < len(tag.strip()) <= LONGEST_TAG for tag in writing.tags):
        raise _invalid("The tags are invalid.", f"Give up to {MOST_TAGS} of 1 to {LONGEST_TAG} characters.")


def _invalid(message: str, hint: str) -> InvalidRequest:
    return InvalidRequest("library.invalid", message, hint)
