"""Detects modules of the owner's folder that were added, changed or removed by hand, also between runs.

A module runs in the crib's process, so editing one changes what is allowed. Hashes of the folder are stored in the
home, so that an edit made while no crib was running is recorded at the next start. The first state of a new home is the
baseline, not a change.
"""

import logging
from contextlib import suppress
from pathlib import Path

import orjson

from toolcrib.base.files.private import replace_private
from toolcrib.base.files.reading import content_digest, read_bytes
from toolcrib.model.json import JsonObject, is_object

logger = logging.getLogger(__name__)

_Hashes = dict[str, str]
"""SHA-256 of each module, by path relative to the folder."""


class ModuleEdits:
    """The modules of one folder as last seen."""

    def __init__(self, folder: Path, kept: Path) -> None:
        """Initialize the detector; `kept` is the file that stores the hashes between runs."""
        self._folder = folder
        self._kept = kept
        self._seen: _Hashes | None = None

    def since_last(self) -> JsonObject | None:
        """Return the changes since the last call or, the first time, since the last run. Blocking."""
        is_first, before, now = self._seen is None, self._seen, _hashes(self._folder)
        before = self._last() if before is None else before
        self._seen = now
        if before != now:
            self._keep(now)
        if before is None or before == now:
            return None
        change: JsonObject = {
            "added": {name: {"digest": now[name]} for name in sorted(now.keys() - before.keys())},
            "removed": sorted(before.keys() - now.keys()),
            "changed": {
                name: {"before": before[name], "after": now[name]}
                for name in sorted(before.keys() & now.keys())
                if before[name] != now[name]
            },
        }
        shape: JsonObject = {"file": str(self._folder), **{key: value for key, value in change.items() if value}}
        return {**shape, "since": "the last run"} if is_first else shape

    def _last(self) -> _Hashes | None:
        try:
            shape = orjson.loads(self._kept.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        return {name: str(value) for name, value in shape.items()} if is_object(shape) else None

    def _keep(self, hashes: _Hashes) -> None:
        try:
            replace_private(self._kept, orjson.dumps(hashes, option=orjson.OPT_SORT_KEYS))
        except OSError as error:
            logger.warning("%s cannot be written: %s.", self._kept, error.strerror or error)


def _hashes(folder: Path) -> _Hashes:
    hashes: _Hashes = {}
    with suppress(OSError):
        for path in sorted(folder.rglob("*.py")):
            if isinstance(content := read_bytes(path), bytes):
                hashes[path.relative_to(folder).as_posix()] = content_digest(content)
    return hashes
