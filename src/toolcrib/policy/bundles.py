"""Tools that are granted together, and the directories in which they are: bundles and projects, as they are now.

Both are kept in the database and in memory, where every listing looks them up. Bundles that come with Toolcrib are
among them and are never changed. A directory inside of several projects has what all of them grant, so that setting one
never takes anything away.

Above: `permissions` owns them; the doors change them. Below: the store, `patterns`. It must never keep a pattern that
names nothing: what a person means is looked up when it is written.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import anyio
import anyio.to_thread

from toolcrib.errors import Conflict, NotFound
from toolcrib.model.policy import Bundle
from toolcrib.model.projects import Project
from toolcrib.policy.coding import is_inside
from toolcrib.policy.members import Fault, FaultyRequest
from toolcrib.policy.patterns import Names, understood
from toolcrib.policy.presets import PRESETS
from toolcrib.store.bundles import create_bundle, delete_bundle, load_bundles, replace_bundle
from toolcrib.store.engine import Store
from toolcrib.store.projects import delete_project, load_projects, save_project

_PRESETS = {bundle.id: bundle for bundle in PRESETS}


class Bundles:
    """All bundles: those that come with Toolcrib first, then those that people made, by id."""

    def __init__(self, store: Store, names: Callable[[], Names], on_change: Callable[[], None]) -> None:
        self._store = store
        self._names = names
        self._on_change = on_change
        self._own: dict[str, Bundle] = {}
        self._lock = anyio.Lock()

    async def load(self) -> None:
        """Take up what the database has."""
        async with self._lock:
            self._set({bundle.id: bundle for bundle in await load_bundles(self._store)})

    def list(self) -> tuple[Bundle, ...]:
        """All of them."""
        return (*PRESETS, *(self._own[id] for id in sorted(self._own)))

    def find(self, id: str) -> Bundle | None:
        """One of them, if it is there."""
        return _PRESETS.get(id) or self._own.get(id)

    def get(self, id: str) -> Bundle:
        """One of them; raises `NotFound` (`bundle.unknown`)."""
        found = self.find(id)
        if found is None:
            raise NotFound("bundle.unknown", f"There is no bundle {id!r}.")
        return found

    async def create(self, bundle: Bundle) -> Bundle:
        """Add a bundle. Raises `Conflict` (`bundle.exists`) if one of its id is there."""
        if bundle.id in _PRESETS:
            raise Conflict("bundle.exists", f"There is a bundle {bundle.id} already.")
        checked = self._checked(bundle)
        async with self._lock:
            await create_bundle(self._store, checked)
            self._set({**self._own, checked.id: checked})
        return checked

    async def replace(self, bundle: Bundle) -> Bundle:
        """Change a bundle as a whole. Raises `bundle.unknown`, and `bundle.preset` for one that is not changed."""
        self._check_own(bundle.id)
        checked = self._checked(bundle)
        async with self._lock:
            if not await replace_bundle(self._store, checked):
                raise NotFound("bundle.unknown", f"There is no bundle {bundle.id!r}.")
            self._set({**self._own, checked.id: checked})
        return checked

    async def remove(self, id: str) -> None:
        """Remove a bundle; raises as `replace` does."""
        self._check_own(id)
        async with self._lock:
            if not await delete_bundle(self._store, id):
                raise NotFound("bundle.unknown", f"There is no bundle {id!r}.")
            self._set({known: bundle for known, bundle in self._own.items() if known != id})

    def _check_own(self, id: str) -> None:
        if id in _PRESETS:
            raise Conflict("bundle.preset", f"The bundle {id} comes with Toolcrib and is not changed.")

    def _checked(self, bundle: Bundle) -> Bundle:
        known = self._names()
        patterns = [understood(text, known) for text in bundle.tools]
        faults = [
            Fault(f"tools/{at}", f"`tools/{at}` must be `server/tool` with `*` for any, or a name that is known here.")
            for at, pattern in enumerate(patterns)
            if pattern is None
        ]
        if faults:
            raise FaultyRequest("request.invalid", faults)
        return replace(bundle, tools=tuple(pattern for pattern in patterns if pattern is not None), preset=False)

    def _set(self, own: dict[str, Bundle]) -> None:
        if own != self._own:
            self._own = own
            self._on_change()


class Projects:
    """Directories that have a default agent or bundles. `trusted` says of a path whether its owner agreed to it."""

    def __init__(
        self, store: Store, bundles: Bundles, trusted: Callable[[str], bool], on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._bundles = bundles
        self._trusted = trusted
        self._on_change = on_change
        self._projects: dict[str, Project] = {}
        self._lock = anyio.Lock()

    async def load(self) -> None:
        """Take up what the database has."""
        async with self._lock:
            self._set(await load_projects(self._store))

    async def list(self) -> tuple[Project, ...]:
        """All of them, by path."""
        projects = tuple(self._projects[path] for path in sorted(self._projects))
        return await anyio.to_thread.run_sync(lambda: tuple(map(self._shown, projects)))

    async def get(self, path: str) -> Project:
        """One directory; raises `NotFound` (`project.unknown`) where nothing is set for it."""
        found = self._projects.get(await _real(path))
        if found is None:
            raise NotFound("project.unknown", f"Nothing is set for {path}.")
        return await anyio.to_thread.run_sync(self._shown, found)

    async def save(self, project: Project) -> Project:
        """Set the agent and the bundles of a directory, whatever was set before. Raises `bundle.unknown`."""
        for id in project.bundles:
            self._bundles.get(id)
        real = replace(project, path=await _real(project.path), trusted=False)
        async with self._lock:
            await save_project(self._store, real)
            self._set((*self._projects.values(), real))
        return await anyio.to_thread.run_sync(self._shown, real)

    async def remove(self, path: str) -> None:
        """Forget what was set for a directory; raises `project.unknown`."""
        real = await _real(path)
        async with self._lock:
            if not await delete_project(self._store, real):
                raise NotFound("project.unknown", f"Nothing is set for {path}.")
            self._set(project for project in self._projects.values() if project.path != real)

    async def without_bundle(self, id: str) -> None:
        """No directory has this bundle any more, so that another one of the same id is not granted unasked."""
        for project in tuple(self._projects.values()):
            if id in project.bundles:
                await self.save(replace(project, bundles=tuple(each for each in project.bundles if each != id)))

    def tools(self, cwd: str | None) -> tuple[str, ...]:
        """What the bundles of every project around a directory grant, as patterns."""
        return tuple(dict.fromkeys(tool for bundle in self._around(cwd) for tool in bundle.tools))

    def prompts(self, cwd: str | None) -> tuple[str, ...]:
        """What the bundles of every project around a directory add to the prompts of agents there."""
        return tuple(dict.fromkeys(bundle.prompt for bundle in self._around(cwd) if bundle.prompt))

    def _around(self, cwd: str | None) -> Iterator[Bundle]:
        if cwd is not None:
            around = (project for path, project in self._projects.items() if is_inside(cwd, path))
            found = (self._bundles.find(id) for project in around for id in project.bundles)
            yield from (bundle for bundle in found if bundle is not None)

    def _shown(self, project: Project) -> Project:
        return replace(project, trusted=self._trusted(project.path))

    def _set(self, projects: Iterable[Project]) -> None:
        found = {project.path: project for project in projects}
        if found != self._projects:
            self._projects = found
            self._on_change()


async def _real(path: str) -> str:
    """One directory has one name, whatever links lead to it."""
    return await anyio.to_thread.run_sync(os.path.realpath, path)
