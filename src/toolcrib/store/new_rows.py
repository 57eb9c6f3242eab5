"""Inserts that skip rows which exist already, on both engines: no statement fails, and the server logs no error."""

from typing import Any

from sqlalchemy import Insert
from sqlalchemy.ext.compiler import compiles


class insert_new(Insert):
    """An insert that adds no row whose key exists already; the number of affected rows tells."""

    inherit_cache = True


@compiles(insert_new)
def _compile(element: insert_new, compiler: Any, **options: Any) -> str:
    return f"{compiler.visit_insert(element, **options)} ON CONFLICT DO NOTHING"
