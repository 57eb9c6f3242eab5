"""Remembers what files last said, for when one of them can no longer be read.

`LastGood` is what `discover` and the views of servers read through. It never looks at a file on its own.
"""

from dataclasses import replace
from pathlib import Path

from toolcrib.config.readers.read import FileReading, Place, read_place


class LastGood:
    """Reads places; for one that broke it gives the last good content with the problem of now.

    A file that is gone is gone: its servers go with it. What one file says depends on the directories that are asked
    for, since some speak for several projects; so the memory is of both.
    """

    def __init__(self) -> None:
        self._good: dict[tuple[str, Path, tuple[Path, ...]], FileReading] = {}

    def read(self, place: Place, directories: tuple[Path, ...], platform: str) -> FileReading | None:
        """As `read_place`, with memory."""
        key = (place.format, place.file, directories)
        reading = read_place(place, directories, platform)
        if reading is None:
            self._good.pop(key, None)
        elif not reading.broken:
            self._good[key] = reading
        elif key in self._good:
            return replace(self._good[key], problems=reading.problems, broken=True)
        return reading
