"""Connects a stdio front to the process that holds the home, and reconnects when that process ends.

If no crib is running, this process becomes the holder, on the port of the previous one; the host's modules are imported
only then. A front that is the holder hands over to a waiting `toolcrib serve` and joins it.

The succession lock decides which process holds next: a waiting `serve` holds the lock, or the front that takes over.
Must never hold the home while a `serve` waits for it.
"""

import asyncio
import importlib
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolcrib.base.home import Home, HomeLock, RunInfo, find_holder
from toolcrib.base.settings import Settings
from toolcrib.model.errors import Unavailable
from toolcrib.web.loopback import LoopbackHttp, Lost, Unreached

if TYPE_CHECKING:
    from types import ModuleType

logger = logging.getLogger(__name__)

JOIN_WAIT = 30.0
"""Seconds to find the holder or become it before giving up."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a task that ends with the front."""

_PAUSE = 0.1
_LOOK_EVERY = 0.5


class HolderConnection:
    """Finds the holder, or becomes it if there is none."""

    def __init__(self, settings: Settings, home: Home, http: LoopbackHttp, spawn: Spawn) -> None:
        self._settings = settings
        self._home = home
        self._http = http
        self._spawn = spawn
        self._holder: RunInfo | None = None
        self._port: int | None = None
        self._is_here = False
        self._searching = asyncio.Lock()
        self._succession = HomeLock(home, home.succession_file)

    async def holder(self) -> RunInfo:
        """Return the current holder, finding or becoming it if it is unknown or has ended.

        Checking on every call is cheap. A tool call sent to a holder that just ended would have an unknown outcome.
        """
        async with self._searching:
            if self._holder is None or not (self._is_here or find_holder(self._home) == self._holder):
                self._holder = await self._reach()
                self._port = urlsplit(self._holder.url).port
            return self._holder

    def lost(self, holder: RunInfo) -> None:
        """Record that this holder no longer answers."""
        if self._holder == holder and not self._is_here:
            self._holder = None

    async def successor(self, holder: RunInfo) -> None:
        """Wait until this stopping holder has exited. Raises `home.busy` on timeout."""
        for _ in range(int(JOIN_WAIT / _PAUSE)):
            if find_holder(self._home) != holder:
                self.lost(holder)
                return
            await asyncio.sleep(_PAUSE)
        raise Unavailable("home.busy", f"The crib at {holder.url} is stopping but has not exited.")

    async def keep(self) -> None:
        """Watch the holder's event stream, and find or become the next holder when it ends."""
        while True:
            holder = await self.holder()
            try:
                async with self._http.stream("GET", f"{holder.url}/api/events") as events:
                    async for _ in events.pieces():
                        pass
            except (Lost, Unreached) as error:
                logger.debug("The event stream of the running crib ended: %s", error)
            self.lost(holder)
            await asyncio.sleep(_PAUSE)

    async def _reach(self) -> RunInfo:
        deadline = asyncio.get_running_loop().time() + JOIN_WAIT
        while asyncio.get_running_loop().time() < deadline:
            if info := find_holder(self._home):
                return info
            if self._succession.try_acquire():
                try:
                    return await self._begin_holding()
                except Unavailable as error:
                    if error.code != "crib.running":
                        raise
                finally:
                    self._succession.release()
            await asyncio.sleep(_PAUSE)  # another process is becoming the holder
        raise Unavailable("home.busy", f"A process holds {self._home.root} but does not respond.")

    async def _begin_holding(self) -> RunInfo:
        """Become the holder in a separate task; return once it answers requests."""
        # In a thread, because the import takes longer than many requests.
        run = await asyncio.to_thread(importlib.import_module, "toolcrib.web.run")
        started: asyncio.Future[RunInfo] = asyncio.get_running_loop().create_future()
        self._spawn(self._hold(run, started))
        return await started

    async def _hold(self, run: "ModuleType", started: "asyncio.Future[RunInfo]") -> None:
        try:
            async with run.hold(self._settings, kind="stdio", port=self._port) as holding:
                self._is_here = True
                started.set_result(holding.info)
                await self._until_wanted()
                logger.info("`toolcrib serve` is taking over from this process.")
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            self._is_here = False

    async def _until_wanted(self) -> None:
        """Return when another process waits to become the holder."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if not self._succession.held and not self._succession.try_acquire():
                return
            self._succession.release()
