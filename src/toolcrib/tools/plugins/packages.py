"""Installed plugins: listed with the capabilities they request, loaded once the owner has granted them.

A grant is for one version, one set of capabilities and one manifest; any change needs a new grant. Granted plugins are
imported in a thread with a timeout; their tools then pass the same gate and rules as all others. A plugin that cannot
be loaded is reported as a problem. Capabilities are declared, not enforced.

Must never import a plugin that was not granted.
"""

import importlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from toolcrib.model.errors import ConfigError, Conflict, NotFound, ToolcribError
from toolcrib.model.plugins import Manifest, Plugin, PluginGrant, PluginState
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ToolSource
from toolcrib.store.engine import Store
from toolcrib.store.plugins import delete_grant, load_grants, save_grant, switch_grant
from toolcrib.tools import PythonSource, ToolServer, module_server
from toolcrib.tools.failures import carriable, explain
from toolcrib.tools.folder import CALLS_MAY_END, LOAD_SECONDS
from toolcrib.tools.plugins.discover import FoundPlugin, discover

TIMEOUT: Final = 30.0
"""Timeout in seconds of plugin tools that set none."""
_LONGEST: Final = 1_000

logger = logging.getLogger(__name__)


class ReplaceSources(Protocol):
    """Removes sources of a group (by name), adds others, and sets the problems of the group."""

    def __call__(
        self, removed: Iterable[str], new: Iterable[ToolSource], problems: Iterable[Problem], group: str = ...
    ) -> object: ...


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One loaded plugin: its sources, or the problem with it."""

    manifest: Manifest
    sources: tuple[PythonSource, ...] = ()
    problem: Problem | None = None


class Plugins:
    """The installed plugins of one crib."""

    def __init__(
        self,
        store: Store,
        exchange: ReplaceSources,
        tasks: TaskGroup,
        *,
        services: Collection[str],
        taken: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._exchange = exchange
        self._tasks = tasks
        self._services = services
        self._taken = taken
        self._loaded: dict[str, _Loaded] = {}
        self._imported: dict[str, str] = {}
        self._plugins: dict[str, Plugin] = {}
        self._changing = anyio.Lock()

    async def load(self) -> None:
        """Synchronise the catalog with the installed and granted plugins."""
        async with self._changing:
            await self._load()

    async def list(self) -> Sequence[Plugin]:
        """Return every installed plugin, by name."""
        await self.load()
        return tuple(self._plugins.values())

    async def get(self, name: str) -> Plugin:
        """Return one plugin. Raises `plugin.unknown`."""
        await self.load()
        return self._get(name)

    async def grant(self, name: str, digest: str, *, by: str) -> Plugin:
        """Grant a plugin as shown; `digest` is that of the manifest. Raises `plugin.changed`, `plugin.manifest`."""
        manifest = (await self.get(name)).manifest
        if manifest is None:
            problem = self._get(name).problems[0]
            raise ConfigError(problem.code, problem.message, problem.hint)
        if manifest.digest != digest:
            raise Conflict("plugin.changed", f"{name} changed after you reviewed it.")
        now = datetime.now(UTC)
        grant = PluginGrant(name, manifest.version, manifest.capabilities, digest, now, by)
        async with self._changing:
            await save_grant(self._store, grant)
            self._forget_failure(name)
            await self._load()
        return self._get(name)

    async def revoke(self, name: str) -> Plugin | None:
        """Revoke a grant, even of a plugin that is no longer installed; its tools are removed at once."""
        async with self._changing:
            if not await delete_grant(self._store, name):
                raise _not_granted(name)
            await self._load()
        return self._plugins.get(name)

    async def switch(self, name: str, *, enabled: bool) -> Plugin:
        """Enable or disable a granted plugin."""
        async with self._changing:
            if not await switch_grant(self._store, name, enabled):
                raise _not_granted(name)
            self._forget_failure(name)
            await self._load()
        return self._get(name)

    async def aclose(self) -> None:
        """Close every source."""
        for loaded in self._loaded.values():
            for source in loaded.sources:
                await source.aclose()

    def _get(self, name: str) -> Plugin:
        plugin = self._plugins.get(name)
        if plugin is None:
            raise NotFound("plugin.unknown", f"Plugin {name!r} not found.")
        return plugin

    async def _load(self) -> None:
        found = await anyio.to_thread.run_sync(discover)
        grants = {grant.name: grant for grant in await load_grants(self._store)}
        wanted = {one.name: one for one in found if _state_of(one, grants.get(one.name)) == "loaded"}
        removed = self._take_out(wanted)
        leaving = {source.name for source in removed}
        claimed = set[str]()

        def is_free(name: str) -> bool:
            return name not in claimed and (name in leaving or not self._taken(name))

        fresh: dict[str, _Loaded] = {}
        for name, one in wanted.items():
            if name not in self._loaded:
                fresh[name] = await self._open(one, is_free)
                claimed |= {source.name for source in fresh[name].sources}
        self._loaded |= fresh
        self._plugins = {one.name: self._describe(one, grants.get(one.name)) for one in found}
        problems = [problem for plugin in self._plugins.values() for problem in plugin.problems]
        new = [source for loaded in fresh.values() for source in loaded.sources]
        self._exchange([source.name for source in removed], new, problems, "plugins")
        for source in removed:
            self._tasks.start_soon(source.retire, CALLS_MAY_END)

    def _take_out(self, wanted: Mapping[str, FoundPlugin]) -> Sequence[PythonSource]:
        """Remove plugins that are no longer wanted or have changed. Returns their sources."""
        removed: deque[PythonSource] = deque()
        for name, loaded in tuple(self._loaded.items()):
            if name not in wanted or wanted[name].manifest != loaded.manifest:
                removed += self._loaded.pop(name).sources
        return removed

    def _forget_failure(self, name: str) -> None:
        """Forget a failure, so that the plugin is loaded again. Called on grants and switches, not on every listing."""
        loaded = self._loaded.get(name)
        if loaded is not None and loaded.problem is not None:
            del self._loaded[name]

    async def _open(self, one: FoundPlugin, is_free: Callable[[str], bool]) -> _Loaded:
        """Import a granted plugin and create its sources."""
        manifest = one.manifest
        if not isinstance(manifest, Manifest):
            raise TypeError("a plugin without a manifest is never loaded")
        if self._imported.setdefault(one.package, manifest.version) != manifest.version:
            message = f"{one.name} {self._imported[one.package]} is loaded; {manifest.version} loads at the next start."
            return _Loaded(manifest, problem=Problem("plugin.failed", message, "Restart the crib."))
        try:
            with anyio.fail_after(LOAD_SECONDS):
                import_all = partial(_servers, one.entries)
                servers = await anyio.to_thread.run_sync(import_all, abandon_on_cancel=True)
            return _Loaded(manifest, tuple(self._source(server, is_free) for server in servers))
        except TimeoutError:
            return self._load_failure(one, manifest, f"it was not loaded within {LOAD_SECONDS:g} s")
        except (Exception, SystemExit) as error:  # boundary: plugins are foreign code
            logger.warning("Plugin %s could not be loaded", one.name, exc_info=error)
            return self._load_failure(one, manifest, explain(error)[:_LONGEST])

    def _source(self, server: ToolServer, is_free: Callable[[str], bool]) -> PythonSource:
        if not is_free(server.name):
            raise Conflict("tool.server_exists", f"A server named {server.name!r} is already registered.")
        return PythonSource(server, services=self._services)

    def _load_failure(self, one: FoundPlugin, manifest: Manifest, why: str) -> _Loaded:
        message = carriable(f"Plugin {one.name} could not be loaded: {why}")
        return _Loaded(manifest, problem=Problem("plugin.failed", message))

    def _describe(self, one: FoundPlugin, grant: PluginGrant | None) -> Plugin:
        state, loaded = _state_of(one, grant), self._loaded.get(one.name)
        manifest = one.manifest if isinstance(one.manifest, Manifest) else None
        plugin = Plugin(one.name, one.package, state, one.servers, manifest, grant)
        if isinstance(one.manifest, Problem):
            return replace(plugin, problems=(one.manifest,))
        if state != "loaded" or loaded is None:
            return plugin
        if loaded.problem is not None:
            return replace(plugin, state="failed", problems=(loaded.problem,))
        return replace(plugin, tools=tuple(str(tool.ref) for source in loaded.sources for tool in source.tools()))


def _state_of(one: FoundPlugin, grant: PluginGrant | None) -> PluginState:
    """Return the state of a plugin before it is loaded; `loaded` if it may be."""
    if isinstance(one.manifest, Problem):
        return "invalid"
    if grant is None:
        return "not_granted"
    if not grant.covers(one.manifest):
        return "changed"
    return "loaded" if grant.enabled else "disabled"


def _servers(entries: Sequence[EntryPoint]) -> list[ToolServer]:
    """Return the servers of a plugin. Runs its code for the first time."""
    servers: list[ToolServer] = []
    for entry in entries:
        with redirect_stdout(sys.stderr):  # stdout may carry a protocol
            module = importlib.import_module(entry.module)
        offered: Any = getattr(module, entry.attr) if entry.attr else module_server(entry.name, module)
        if not isinstance(offered, ToolServer):
            message = (
                f"The entry point `{entry.name}` leads to {entry.value}, which is neither a `ToolServer` nor a module."
            )
            raise ConfigError("tool.module", message)
        servers.append(replace(offered, name=entry.name, kind="plugin", timeout=offered.timeout or TIMEOUT))
    return servers


def _not_granted(name: str) -> ToolcribError:
    return NotFound("plugin.not_granted", f"Plugin {name!r} has no grant.")
