"""Remembers the last valid content of files, for when one of them becomes unreadable.

`discover` and the views of servers read through `LastGood`, which never reads a file on its own.
"""

from dataclasses import replace
from pathlib import Path

from toolcrib.model.problems import Problem
from toolcrib.servers.readers.read import ConfigFile, FileReading, read_place


class LastGood:
    """Reads files; for a broken or emptied one, returns the last good content with the current problem.

    The servers of a deleted file disappear with it. The content is remembered per file and directories, since some
    files cover several projects.
    """

    def __init__(self) -> None:
        self._good: dict[tuple[str, Path, tuple[Path, ...]], FileReading] = {}

    def read(self, place: ConfigFile, directories: tuple[Path, ...], platform: str) -> FileReading | None:
        """Like `read_place`, but fall back to the last good content."""
        key = (place.format, place.file, directories)
        reading = read_place(place, directories, platform)
        if reading is None:
            self._good.pop(key, None)
        elif not reading.broken and not (reading.emptied and key in self._good):
            self._good[key] = reading
        elif key in self._good:
            return replace(self._good[key], problems=reading.problems or (_emptied(place),), broken=True)
        return reading


def _emptied(place: ConfigFile) -> Problem:
    message = f"{place.file.name}: the file was emptied; its last content is still in use"
    return Problem("config.empty", message, "Restore its content, or delete the file.", str(place.file))
