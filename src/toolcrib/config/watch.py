"""Notices changed files and keeps what they last said when they can no longer be read.

`LastGood` is the memory that `discover` reads through. `changes` yields whenever a place may have changed: it listens
to the directories, and looks at the files from time to time as well, so that no limit of the system makes it blind.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import anyio
from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType] - its types name a package that is optional

from toolcrib.config.readers.read import FileReading, Place, read_place

DEBOUNCE_MS = 200
POLL_SECONDS = 5.0

Fingerprint = tuple[int, int, int, int] | None


class LastGood:
    """Reads places; for one that broke it gives the last good content with the problem of now.

    A file that is gone is gone: its servers go with it.
    """

    def __init__(self) -> None:
        self._good: dict[tuple[str, Path], FileReading] = {}

    def read(self, place: Place, directories: tuple[Path, ...], platform: str) -> FileReading | None:
        """As `read_place`, with memory."""
        key = (place.format, place.file)
        reading = read_place(place, directories, platform)
        if reading is None:
            self._good.pop(key, None)
        elif not reading.broken:
            self._good[key] = reading
        elif key in self._good:
            return replace(self._good[key], problems=reading.problems, broken=True)
        return reading


async def changes(
    places: Callable[[], Iterable[Path]], *, poll_seconds: float = POLL_SECONDS, debounce_ms: int = DEBOUNCE_MS
) -> AsyncIterator[frozenset[Path]]:
    """Yield the files that changed, as long as the caller listens. `places` is asked anew after every change.

    A change is a difference in what the file system says about a file. Directories are listened to only to notice it
    at once; if that fails, looking every `poll_seconds` is enough.
    """
    known = _fingerprints(places())
    while True:
        await _wait(known, poll_seconds, debounce_ms)
        now = await anyio.to_thread.run_sync(_fingerprints, places())
        changed = frozenset(path for path in {*known, *now} if known.get(path) != now.get(path))
        known = now
        if changed:
            yield changed


async def _wait(paths: Iterable[Path], seconds: float, debounce_ms: int) -> None:
    """Return when one of the files is touched, and after `seconds` at the latest."""
    wanted = {str(path) for path in paths}
    directories = sorted({str(path.parent) for path in paths if path.parent.is_dir()})

    def is_wanted(change: Change, path: str) -> bool:
        return path in wanted

    with anyio.move_on_after(seconds):
        try:
            if directories:
                async for _ in awatch(*directories, watch_filter=is_wanted, debounce=debounce_ms, recursive=False):
                    return
        except (OSError, RuntimeError):
            # No more watches to be had, or a directory went away just now: the next look will tell.
            pass
        await anyio.sleep_forever()


def _fingerprints(paths: Iterable[Path]) -> dict[Path, Fingerprint]:
    return {path: _fingerprint(path) for path in paths}


def _fingerprint(path: Path) -> Fingerprint:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
