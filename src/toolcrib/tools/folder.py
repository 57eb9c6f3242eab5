"""Keeps the owner's folder of tool modules loaded; no grant is needed for them.

A changed module is reloaded and swapped atomically; the others keep their providers' state. Running calls of a replaced
module may finish. A module that cannot be loaded is reported as a problem.

Must never run a module on the event loop: its import may be slow, and must not delay calls.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from os.path import samestat
from pathlib import Path

import anyio
import anyio.to_thread
from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] names a type of trio, not installed

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ToolSource
from toolcrib.tools import LoadedFolder, PythonSource, load_folder
from toolcrib.tools.plugins.edits import ModuleEdits

logger = logging.getLogger(__name__)

DEBOUNCE_MS = 200
"""Milliseconds without changes before a module is loaded; an editor writes a file in several steps."""
QUIET_MS = 1000
"""Milliseconds after which the watcher yields without a change."""
LOAD_SECONDS = 30.0
CALLS_MAY_END = 30.0
"""Seconds that running calls of a replaced module may still take."""

Exchange = Callable[[Iterable[str], Iterable[ToolSource], Iterable[Problem]], object]
"""Removes sources (by name), adds others, and sets the problems of the folder."""
Notice = Callable[[str, JsonObject], object]
"""Records an edit of the folder in the audit log: its kind and the changes."""


class ToolFolder:
    """The servers of one folder."""

    def __init__(
        self,
        folder: Path,
        exchange: Exchange,
        *,
        services: Collection[str],
        taken: Callable[[str], bool],
        kept: Path,
        notice: Notice,
    ) -> None:
        """Initialize the folder; `kept` is the file that stores module hashes between runs."""
        self._folder = folder
        self._edits = ModuleEdits(folder, kept)
        self._notice = notice
        self._exchange = exchange
        self._services = services
        self._taken = taken
        self._loaded = LoadedFolder()
        self._sources: dict[str, PythonSource] = {}
        self._problems: tuple[Problem, ...] = ()
        self._stopped = anyio.Event()

    async def load(self) -> list[PythonSource]:
        """Synchronise the catalog with the folder. Returns the removed sources, which the caller retires."""
        if (edits := await anyio.to_thread.run_sync(self._edits.since_last)) is not None:
            self._notice("tools.file", edits)  # before the modules run
        loaded = await self._read()
        if loaded == self._loaded:
            return []
        kept = {name: source for name, source in self._sources.items() if source.server in loaded.servers}
        new, problems = self._open(loaded, kept)
        gone = [source for name, source in self._sources.items() if name not in kept]
        self._exchange([source.name for source in gone], new, [*loaded.problems, *problems])
        self._loaded, self._sources = loaded, kept | {source.name: source for source in new}
        known, self._problems = self._problems, (*loaded.problems, *problems)
        for problem in self._problems:
            if problem not in known:
                logger.warning("%s", problem.message, extra={"code": problem.code})
        return gone

    async def follow(self) -> None:
        """Reload whenever something in the folder changes, until stopped."""
        async with anyio.create_task_group() as retiring:
            async for _ in self._changes():
                for source in await self.load():
                    retiring.start_soon(source.retire, CALLS_MAY_END)

    async def _changes(self) -> AsyncIterator[None]:
        """Yield once when watching has started, since a change may have been missed, then for each change."""
        polling = False
        while not self._stopped.is_set():
            try:
                async for _ in self._watch(polling=polling):
                    yield
            except OSError as error:
                if polling or isinstance(error, FileNotFoundError):  # missing now, but it may come back
                    with anyio.move_on_after(QUIET_MS / 1000):
                        await self._stopped.wait()
                else:  # the system's limit of watches is reached
                    logger.warning("Polling %s instead of watching it: %s", self._folder, error)
                    polling = True

    async def _watch(self, *, polling: bool) -> AsyncIterator[None]:
        """Watch the folder until it is replaced by another one, which the watcher does not notice."""
        begun = False
        folder = self._folder.stat()
        watching = awatch(
            self._folder,
            debounce=DEBOUNCE_MS,
            rust_timeout=QUIET_MS,
            yield_on_timeout=True,
            stop_event=self._stopped,
            force_polling=polling,
        )
        async for changes in watching:
            if changes or not begun:
                yield
            begun = True
            if not samestat(folder, self._folder.stat()):
                return

    def stop(self) -> None:
        """Stop `follow` soon. Cancelling it would wait for the watcher's thread, which can take seconds."""
        self._stopped.set()

    async def aclose(self) -> None:
        """Close every source."""
        for source in self._sources.values():
            await source.aclose()

    async def _read(self) -> LoadedFolder:
        with anyio.move_on_after(LOAD_SECONDS):
            return await anyio.to_thread.run_sync(load_folder, self._folder, self._loaded, abandon_on_cancel=True)
        message = f"The modules in {self._folder} were not loaded within {LOAD_SECONDS:g} s."
        problem = Problem(
            "tool.module", message, "Look for a module that blocks while it is imported.", str(self._folder)
        )
        return LoadedFolder(self._loaded.servers, (problem,), self._loaded.modules)

    def _open(self, loaded: LoadedFolder, kept: Collection[str]) -> tuple[list[PythonSource], list[Problem]]:
        """Return sources for the new servers, and problems for those with a taken name or invalid providers."""
        sources: list[PythonSource] = []
        problems: list[Problem] = []
        files = {module.outcome: str(path) for path, module in loaded.modules.items()}
        for server in loaded.servers:
            if server.name in kept:
                continue
            file = files[server]
            if self._taken(server.name) and server.name not in self._sources:
                message = f"`{server.name}` cannot be loaded: a server of this name is already registered."
                problems.append(Problem("tool.server_exists", message, "Rename the module.", file))
                continue
            try:
                sources.append(PythonSource(server, services=self._services))
            except ToolcribError as error:
                problems.append(Problem(error.code, error.message, error.hint, file))
        return sources, problems
