"""Records of moves, so that each can be undone: which files it edited, and which apps it connected.

Invariant: a record is on disk before the first file of its move is changed.
"""

from dataclasses import dataclass
from pathlib import Path

import orjson

from toolcrib.base.files.private import replace_private
from toolcrib.base.files.reading import read_bytes
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject, as_list, as_object, as_text, at

_KEPT = 20


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """One move. `files` have the digest of their content before it (None: there was no file).

    `connected` are apps with their scope, and `names` the secrets it stored.
    """

    id: str
    at: str
    cwd: str | None
    files: tuple[tuple[str, str | None], ...] = ()
    connected: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()

    @property
    def purpose(self) -> str:
        """The purpose of its edits."""
        return f"secrets {self.id}"

    def to_json(self) -> JsonObject:
        """Return the stored shape."""
        return {
            "id": self.id,
            "at": self.at,
            "cwd": self.cwd,
            "files": [list(each) for each in self.files],
            "connected": [list(each) for each in self.connected],
            "names": list(self.names),
        }


class MoveJournal:
    """The moves of one home, oldest first. Blocks on its file."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "moves.json"

    def last(self) -> MoveRecord | None:
        """Return the last move that was not undone."""
        records = self._read()
        return records[-1] if records else None

    def write(self, record: MoveRecord) -> None:
        """Add a record or replace the one with its id."""
        others = [each for each in self._read() if each.id != record.id]
        self._save([*others, record][-_KEPT:])

    def forget(self, record: MoveRecord) -> None:
        """Remove a record."""
        self._save([each for each in self._read() if each.id != record.id])

    def _save(self, records: list[MoveRecord]) -> None:
        shape = {"version": 1, "moves": [record.to_json() for record in records]}
        replace_private(self._file, orjson.dumps(shape, option=orjson.OPT_INDENT_2))

    def _read(self) -> list[MoveRecord]:
        content = read_bytes(self._file)
        if content is None:
            return []
        try:
            rows = as_list(at(orjson.loads(content), "moves")) if isinstance(content, bytes) else None
        except orjson.JSONDecodeError:
            rows = None
        if rows is None:
            raise ConfigError("secret.storage", f"The records of moved secrets in {self._file} cannot be read.")
        return [_record(as_object(row) or {}) for row in rows]


def _record(row: JsonObject) -> MoveRecord:
    return MoveRecord(
        as_text(row.get("id")) or "",
        as_text(row.get("at")) or "",
        as_text(row.get("cwd")),
        tuple((str(file), as_text(before)) for file, before in _pairs(row.get("files"))),
        tuple((str(client), str(scope)) for client, scope in _pairs(row.get("connected"))),
        tuple(str(name) for name in as_list(row.get("names")) or ()),
    )


def _pairs(value: object) -> list[tuple[object, object]]:
    pairs = (as_list(each) or [] for each in as_list(value) or ())
    return [(each[0], each[1]) for each in pairs if len(each) == 2]
