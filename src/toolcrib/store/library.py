"""The library as rows, and its search with the full-text index of SQLite or PostgreSQL.

The index contains normalised words, not the text, so that both engines find the same entries.

Invariant: words of entries and of queries are normalised in the same way.
"""

import re
import secrets
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Float,
    Integer,
    Row,
    Select,
    String,
    delete,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)

from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.library import LibraryEntry
from toolcrib.model.text import normalized
from toolcrib.store.audit import moment
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.schema import library

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class LibraryQuery:
    """Selects entries: of a category, with all of these words (or prefixes), with any of these tags."""

    words: str = ""
    category: str | None = None
    tags: tuple[str, ...] = ()
    limit: int = 50


def plain_words(given: str) -> list[str]:
    """Return the words of a text without case, accents and punctuation."""
    decomposed = normalized("NFKD", given)
    return _WORD.findall("".join(sign for sign in decomposed if not unicodedata.combining(sign)).casefold())


async def save_entry(store: Store, entry: LibraryEntry) -> bool:
    """Create or replace an entry; return whether it is new."""
    values = _columns(entry)
    again = update(library).where(library.c.key == entry.key)
    changes = {name: value for name, value in values.items() if name not in ("key", "created_at")}
    (changed,) = await store.write(again.values(**changes))
    if changed:
        return False
    try:
        await store.write(insert(library).values(id=secrets.randbits(62), **values))
    except ConstraintError:  # another writer was faster
        await store.write(again.values(**changes))
        return False
    return True


async def load_entry(store: Store, key: str) -> LibraryEntry | None:
    """Return one entry."""
    query = select(library).where(library.c.key == key)
    row = await store.read(lambda connection: connection.execute(query).first())
    return _entry(row) if row is not None else None


async def find_entries(store: Store, wanted: LibraryQuery) -> list[LibraryEntry]:
    """Return the matching entries: with words the best first, else the newest."""

    def read(connection: Connection) -> Sequence[Row[*tuple[Any, ...]]]:
        query = _search_query(plain_words(wanted.words), connection.dialect.name)
        if wanted.category is not None:
            query = query.where(library.c.category == wanted.category)
        query = query.order_by(library.c.updated_at.desc(), library.c.key)
        return connection.execute(query if wanted.tags else query.limit(wanted.limit)).all()

    entries = (_entry(row) for row in await store.read(read))
    passing = (entry for entry in entries if not wanted.tags or not set(wanted.tags).isdisjoint(entry.tags))
    return [entry for _, entry in zip(range(wanted.limit), passing, strict=False)]


async def load_categories(store: Store) -> dict[str, int]:
    """Return the existing categories with their numbers of entries."""
    query = select(library.c.category, func.count()).group_by(library.c.category).order_by(library.c.category)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return {row[0]: row[1] for row in rows}


async def delete_entry(store: Store, key: str) -> bool:
    """Delete an entry; return False if its key does not exist."""
    (gone,) = await store.write(delete(library).where(library.c.key == key))
    return gone == 1


def _search_query(words: Sequence[str], engine: str) -> "Select[*tuple[Any, ...]]":
    """Select the entries that have all the words, best first; all entries without words."""
    if not words:
        return select(library)
    if engine == "sqlite":
        match = text("library_search MATCH :words").bindparams(words=" ".join(f'"{word}"*' for word in words))
        columns = (literal_column("rowid", Integer).label("found"), literal_column("rank", Float).label("place"))
        found = select(*columns).select_from(text("library_search")).where(match).subquery()
        return select(library).join(found, found.c.found == library.c.id).order_by(found.c.place)
    config = literal_column("'simple'", String)
    vector = func.to_tsvector(config, library.c.words)  # exactly as in the index
    query = func.to_tsquery(config, " & ".join(f"'{word}':*" for word in words))
    return select(library).where(vector.op("@@")(query)).order_by(func.ts_rank(vector, query).desc())


def _columns(entry: LibraryEntry) -> JsonObject:
    searched = " ".join((entry.key, entry.title, *entry.tags, entry.content))
    return {
        "key": entry.key,
        "title": entry.title,
        "content": entry.content,
        "category": entry.category,
        "tags": dumps(list(entry.tags)).decode(),
        "words": " ".join(plain_words(searched)),
        "agent": entry.agent,
        "session": entry.session,
        "author": entry.author,
        "created_at": moment(entry.created_at),
        "updated_at": moment(entry.updated_at),
    }


def _entry(row: Row[*tuple[Any, ...]]) -> LibraryEntry:
    return LibraryEntry(
        key=row.key,
        content=row.content,
        title=row.title,
        category=row.category,
        tags=tuple(loads(row.tags)),
        author=row.author,
        created_at=datetime.fromisoformat(row.created_at).astimezone(UTC),
        updated_at=datetime.fromisoformat(row.updated_at).astimezone(UTC),
        agent=row.agent,
        session=row.session,
    )
