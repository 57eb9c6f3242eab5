"""The owner's own folder of modules with tools, kept in step with what is in it; no grant is needed for them.

A changed module is loaded anew and swapped in one step; the others, and what their providers opened, stay. Calls that
run in a module that is swapped out may end first. What cannot be loaded is a problem beside the rest.

Above: `host` gives it a folder and the catalog's way to swap. Below: `tools`. It must never run what is in the folder
on the event loop: a module may take its time to be imported, and nobody's calls wait for it.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from os.path import samestat
from pathlib import Path

import anyio
import anyio.to_thread
from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] names a type of trio, not installed

from toolcrib.errors import ToolcribError
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ToolSource
from toolcrib.tools import LoadedFolder, PythonSource, load_folder

logger = logging.getLogger(__name__)

DEBOUNCE_MS = 200
"""An editor writes a file in several steps; the module is loaded when it has been quiet for this long."""
QUIET_MS = 1000
"""How long watching goes on before it says that nothing has happened."""
LOAD_SECONDS = 30.0
CALLS_MAY_END = 30.0
"""Seconds that calls of a module that is swapped out may still take."""

Exchange = Callable[[Iterable[str], Iterable[ToolSource], Iterable[Problem]], object]
"""Takes sources out (by name) and in, together with the problems that stand beside them."""


class ToolFolder:
    """The servers of one folder."""

    def __init__(self, folder: Path, exchange: Exchange, *, services: Collection[str], taken: Callable[[str], bool]):
        self._folder = folder
        self._exchange = exchange
        self._services = services
        self._taken = taken
        self._loaded = LoadedFolder()
        self._sources: dict[str, PythonSource] = {}
        self._problems: tuple[Problem, ...] = ()
        self._stopped = anyio.Event()

    async def load(self) -> list[PythonSource]:
        """Bring the catalog in step with the folder; gives the sources that were taken out, still to be retired."""
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
        """Load again whenever something in the folder changes, until stopped."""
        async with anyio.create_task_group() as retiring:
            async for _ in self._changes():
                for source in await self.load():
                    retiring.start_soon(source.retire, CALLS_MAY_END)

    async def _changes(self) -> AsyncIterator[None]:
        """One step for each change, and one when watching has begun: something may have changed just before."""
        polling = False
        while not self._stopped.is_set():
            try:
                async for _ in self._watched(polling=polling):
                    yield
            except OSError as error:
                if polling or isinstance(error, FileNotFoundError):  # it is not there now, but may come back
                    with anyio.move_on_after(QUIET_MS / 1000):
                        await self._stopped.wait()
                else:  # the system gives no more watches
                    logger.warning("%s is looked at now and then instead of being watched: %s", self._folder, error)
                    polling = True

    async def _watched(self, *, polling: bool) -> AsyncIterator[None]:
        """Watch the folder until it is another one: what is put in its place is not told to who watches the old one."""
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
        """End `follow` soon; cancelling it would wait for the watching thread, which looks up every few seconds."""
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
            "tool.module", message, "Look for a module that waits when it is imported.", str(self._folder)
        )
        return LoadedFolder(self._loaded.servers, (problem,), self._loaded.modules)

    def _open(self, loaded: LoadedFolder, kept: Collection[str]) -> tuple[list[PythonSource], list[Problem]]:
        """Sources for the servers that are not kept; one whose name or providers do not fit is a problem."""
        sources: list[PythonSource] = []
        problems: list[Problem] = []
        files = {module.outcome: str(path) for path, module in loaded.modules.items()}
        for server in loaded.servers:
            if server.name in kept:
                continue
            file = files[server]
            if self._taken(server.name) and server.name not in self._sources:
                message = f"`{server.name}` cannot be loaded: a server of this name is registered already."
                problems.append(Problem("tool.server_exists", message, "Rename the module.", file))
                continue
            try:
                sources.append(PythonSource(server, services=self._services))
            except ToolcribError as error:
                problems.append(Problem(error.code, error.message, error.hint, file))
        return sources, problems
