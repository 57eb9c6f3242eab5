"""Detects server definitions that were changed by hand or by another program, even between runs.

A file the crib wrote itself is recognised by its fingerprint. Any other difference between two views is described for
the audit log, with values masked. The contents of user-level files, trust records and files of projects with a trusted
server are stored in the home, so a change made while no crib was running is recorded at the next start.

Must never hold a secret that `servers.masking` recognises.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import orjson

from toolcrib.base.files.private import replace_private
from toolcrib.model.json import JsonObject, digest, is_object
from toolcrib.servers.masking import mask_definition
from toolcrib.servers.project_view import Fingerprint, ProjectView, fingerprint

logger = logging.getLogger(__name__)

_Contents: TypeAlias = dict[str, dict[str, JsonObject]]
"""By file, by server: the digest of its definition, and the masked definition.

The trust file has one such entry for each record.
"""
_LARGEST = 4 * 1024 * 1024


class OutsideEdits:
    """Remembers which versions of files the crib wrote, and the contents of files in the previous run."""

    def __init__(self, folder: Path, trust_file: Path) -> None:
        """`folder` stores the contents of files between runs."""
        self._trust_file = trust_file
        self._personal = _KeptContents(folder / "servers.json")
        self._of_projects = _KeptContents(folder / "projects.json")
        self._own: dict[Path, Fingerprint] = {}
        self._reported: dict[tuple[str, bool], str] = {}

    def wrote(self, *files: Path) -> None:
        """Remember the current versions of these files as the crib's own."""
        for file in files:
            self._own[file] = fingerprint(file)

    def between(self, before: ProjectView | None, now: ProjectView) -> list[JsonObject]:
        """Describe outside changes since `before`, or since the last run if it is None. Blocking."""
        if before is not None:
            changed = [
                str(path)
                for path, seen in now.prints.items()
                if before.prints.get(path) != seen and self._own.get(path) != seen
            ]
            found = list(_changes(self._contents(before), self._contents(now), changed))
            found += _find_switched(before, now, changed)
        else:
            found = [{**each, "since": "the last run"} for each in self._since_last_run(now)]
        self._keep(now)
        return [each for each in found if self._is_new(each)]

    def _since_last_run(self, now: ProjectView) -> Iterator[JsonObject]:
        """Describe changes of the user-level files, or of a project's files seen before."""
        contents = self._contents(now)
        if now.cwd is None:
            last = self._personal.read()
            return _changes(last, contents, [*last, *contents]) if last is not None else iter(())
        last = self._of_projects.read() or {}
        return _changes(last, contents, [file for file in last if file in _project_files(now)])

    def _keep(self, now: ProjectView) -> None:
        contents = self._contents(now)
        if now.cwd is None:
            self._personal.write(contents)
            return
        trusted = {record.place for record in now.book.records}
        seen = {file: contents.get(file, {}) for file, project in _project_files(now).items() if project in trusted}
        if seen:
            self._of_projects.write((self._of_projects.read() or {}) | seen)

    def _contents(self, view: ProjectView) -> _Contents:
        """Return the content of every readable file; for a broken one, its last valid content."""
        contents: _Contents = {}
        for reading in view.readings:
            entries = contents.setdefault(str(reading.place.file), {})
            for entry in reading.entries:
                entries[entry.name] = {"digest": digest(entry.raw), "definition": mask_definition(entry.raw)}
        contents[str(self._trust_file)] = {
            f"{record.name} ({record.place}, {record.digest})": {
                "digest": digest(record.to_json()),
                "definition": record.to_json(),
            }
            for record in view.book.records
        }
        return contents

    def _is_new(self, change: JsonObject) -> bool:
        """Return whether this change was not yet reported for another directory."""
        key, version = (str(change["file"]), "switched" in change), digest(change)
        is_new = self._reported.get(key) != version
        self._reported[key] = version
        return is_new


class _KeptContents:
    """Contents of files, stored in one file of the home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: bytes | None = None

    def read(self) -> _Contents | None:
        """Return the stored contents; None if they are missing or unusable."""
        try:
            if self._path.stat().st_size > _LARGEST:
                return None
            shape = orjson.loads(self._path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        return shape if is_object(shape) and all(map(_is_file, shape.values())) else None

    def write(self, contents: _Contents) -> None:
        """Store these contents. A failure is logged."""
        encoded = orjson.dumps(contents, option=orjson.OPT_SORT_KEYS)
        if encoded == self._written:
            return
        try:
            replace_private(self._path, encoded)
            self._written = encoded
        except OSError as error:
            logger.warning("%s cannot be written: %s.", self._path, error.strerror or error)


def _changes(before: _Contents, now: _Contents, files: Iterable[str]) -> Iterator[JsonObject]:
    for file in sorted(set(files)):
        old, new = before.get(file, {}), now.get(file, {})
        change: JsonObject = {
            "added": {name: new[name]["definition"] for name in sorted(new.keys() - old.keys())},
            "removed": sorted(old.keys() - new.keys()),
            "changed": {
                name: {"before": old[name]["definition"], "after": new[name]["definition"]}
                for name in sorted(old.keys() & new.keys())
                if old[name]["digest"] != new[name]["digest"]
            },
        }
        if any(change.values()):
            yield {"file": file, **{key: value for key, value in change.items() if value}}


def _project_files(view: ProjectView) -> Mapping[str, str]:
    """Return the files of projects, each with the path of its project."""
    return {str(place.file): str(place.project) for place in view.places.files if place.project is not None}


def _is_file(shape: object) -> bool:
    return is_object(shape) and all(
        is_object(each) and {"digest", "definition"} <= each.keys() for each in shape.values()
    )


def _find_switched(before: ProjectView, now: ProjectView, files: list[str]) -> list[JsonObject]:
    """Describe servers that an edit of our own files enabled, disabled, trusted or untrusted."""
    if not files:
        return []
    old, new = _switches(before), _switches(now)
    changed = {
        alias: {"before": old[alias], "after": new[alias]}
        for alias in sorted(old.keys() & new.keys())
        if old[alias] != new[alias]
    }
    return [{"file": ", ".join(sorted(files)), "switched": changed}] if changed else []


def _switches(view: ProjectView) -> Mapping[str, JsonObject]:
    listed = {each.alias: {"enabled": each.enabled, "trusted": each.trusted} for each in view.discovery.servers}
    return {each.alias: {"removed": True} for each in view.discovery.hidden} | listed
