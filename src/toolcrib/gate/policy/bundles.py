"""Bundles (tools that are granted together) and projects (directories with a default agent or bundles).

Both are stored in the database and held in memory for every listing. Preset bundles come with Toolcrib and never
change. A directory inside several projects has the grants of all of them, so that adding a project never removes one.

Must never store a pattern that matches nothing: names are resolved when they are written.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import anyio
import anyio.to_thread

from toolcrib.gate.policy.fields import FaultyRequest, FieldFault
from toolcrib.gate.policy.patterns import Names, resolve_pattern
from toolcrib.gate.policy.zones import is_inside
from toolcrib.model.errors import Conflict, NotFound
from toolcrib.model.policy import Bundle
from toolcrib.model.projects import Project
from toolcrib.store.bundles import (
    create_bundle,
    delete_bundle,
    delete_project,
    load_bundles,
    load_projects,
    replace_bundle,
    save_project,
)
from toolcrib.store.engine import Store

PRESETS: tuple[Bundle, ...] = (
    Bundle(
        "researcher",
        "Researcher",
        (
            "claude_code/Read", "claude_code/Glob", "claude_code/Grep", "claude_code/WebSearch",
            "claude_code/WebFetch", "crew/crib_recall_memory", "crew/crib_save_memory", "crew/crib_library_*",
            "agent_zoo/agent_zoo_query_brain_entries", "agent_zoo/agent_zoo_create_brain_entry",
        ),
        "Researches and records findings: reading, searching, memory and the library.",
        "You research. Check several sources before you conclude, state where each finding comes from and how sure "
        "you are, and keep what others will need in the library.",
        preset=True,
    ),
    Bundle(
        "reviewer",
        "Reviewer",
        (
            "claude_code/Read", "claude_code/Glob", "claude_code/Grep", "crew/crib_code_symbols",
            "crew/crib_find_references", "crew/crib_github_list_prs", "crew/crib_github_get_pr_diff",
            "crew/crib_github_repo_info", "crew/crib_github_list_issues", "crew/crib_github_review_pr",
            "crew/crib_github_comment_on_pr",
        ),
        "Reviews code and changes: reading, symbols, pull requests.",
        "You review. Read the whole change and what it touches before you judge; name file and line, say what would "
        "go wrong and how you know, and do not change the code yourself.",
        preset=True,
    ),
    Bundle(
        "operator",
        "Operator",
        (
            "toolcrib/*", "crew/crib_list_agents", "crew/crib_list_projects", "crew/crib_current_project",
            "crew/crib_create_work_task", "crew/crib_check_work_status", "crew/crib_list_work_tasks",
            "crew/crib_manage_schedule", "crew/crib_notify_owner", "crew/crib_configure_notifications",
            "crew/crib_extend_timeout",
        ),
        "Keeps the crib running: its servers and settings, schedules, work tasks and notices.",
        "You operate this crib. Look at the state before you change it, change one thing at a time, check that it "
        "had the effect you wanted, and tell the owner what you did.",
        preset=True,
    ),
)  # fmt: skip
"""In display order."""


_PRESETS = {bundle.id: bundle for bundle in PRESETS}


class Bundles:
    """All bundles: presets first, then custom ones by id."""

    def __init__(self, store: Store, names: Callable[[], Names], on_change: Callable[[], None]) -> None:
        self._store = store
        self._names = names
        self._on_change = on_change
        self._own: dict[str, Bundle] = {}
        self._lock = anyio.Lock()

    async def load(self) -> None:
        """Load the bundles from the database."""
        async with self._lock:
            self._set({bundle.id: bundle for bundle in await load_bundles(self._store)})

    def list(self) -> tuple[Bundle, ...]:
        """Return all bundles."""
        return (*PRESETS, *(self._own[id] for id in sorted(self._own)))

    def find(self, id: str) -> Bundle | None:
        """Return a bundle, or None."""
        return _PRESETS.get(id) or self._own.get(id)

    def get(self, id: str) -> Bundle:
        """Return a bundle. Raises `NotFound` (`bundle.unknown`)."""
        found = self.find(id)
        if found is None:
            raise NotFound("bundle.unknown", f"Bundle {id!r} not found.")
        return found

    async def create(self, bundle: Bundle) -> Bundle:
        """Add a bundle. Raises `Conflict` (`bundle.exists`) if its id is taken."""
        if bundle.id in _PRESETS:
            raise Conflict("bundle.exists", f"Bundle {bundle.id} already exists.")
        checked = self._check_patterns(bundle)
        async with self._lock:
            await create_bundle(self._store, checked)
            self._set({**self._own, checked.id: checked})
        return checked

    async def replace(self, bundle: Bundle) -> Bundle:
        """Replace a bundle as a whole. Raises `bundle.unknown`, and `bundle.preset` for a preset."""
        self._check_own(bundle.id)
        checked = self._check_patterns(bundle)
        async with self._lock:
            if not await replace_bundle(self._store, checked):
                raise NotFound("bundle.unknown", f"Bundle {bundle.id!r} not found.")
            self._set({**self._own, checked.id: checked})
        return checked

    async def remove(self, id: str) -> None:
        """Remove a bundle. Raises like `replace`."""
        self._check_own(id)
        async with self._lock:
            if not await delete_bundle(self._store, id):
                raise NotFound("bundle.unknown", f"Bundle {id!r} not found.")
            self._set({known: bundle for known, bundle in self._own.items() if known != id})

    def _check_own(self, id: str) -> None:
        if id in _PRESETS:
            raise Conflict("bundle.preset", f"Bundle {id} is built in and cannot be changed.")

    def _check_patterns(self, bundle: Bundle) -> Bundle:
        known = self._names()
        patterns = [resolve_pattern(text, known) for text in bundle.tools]
        faults = [
            FieldFault(
                f"tools/{at}", f"`tools/{at}` must be `server/tool` with `*` for any, or the name of a known tool."
            )
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
    """Directories with a default agent or bundles. `trusted` returns whether the owner trusts a path."""

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
        """Load the projects from the database."""
        async with self._lock:
            self._set(await load_projects(self._store))

    async def list(self) -> tuple[Project, ...]:
        """Return all projects, sorted by path."""
        projects = tuple(self._projects[path] for path in sorted(self._projects))
        return await anyio.to_thread.run_sync(lambda: tuple(map(self._with_trust, projects)))

    async def get(self, path: str) -> Project:
        """Return the project at a path. Raises `NotFound` (`project.unknown`)."""
        found = self._projects.get(await _real(path))
        if found is None:
            raise NotFound("project.unknown", f"{path} has no project settings.")
        return await anyio.to_thread.run_sync(self._with_trust, found)

    async def save(self, project: Project) -> Project:
        """Set the agent and the bundles of a directory, replacing earlier ones. Raises `bundle.unknown`."""
        for id in project.bundles:
            self._bundles.get(id)
        real = replace(project, path=await _real(project.path), trusted=False)
        async with self._lock:
            await save_project(self._store, real)
            self._set((*self._projects.values(), real))
        return await anyio.to_thread.run_sync(self._with_trust, real)

    async def remove(self, path: str) -> None:
        """Remove the project at a path. Raises `project.unknown`."""
        real = await _real(path)
        async with self._lock:
            if not await delete_project(self._store, real):
                raise NotFound("project.unknown", f"{path} has no project settings.")
            self._set(project for project in self._projects.values() if project.path != real)

    async def without_bundle(self, id: str) -> None:
        """Remove this bundle from all projects, so that a later one with the same id is not granted by accident."""
        for project in tuple(self._projects.values()):
            if id in project.bundles:
                await self.save(replace(project, bundles=tuple(each for each in project.bundles if each != id)))

    def tools(self, cwd: str | None) -> tuple[str, ...]:
        """Return the tool patterns granted by the bundles of every project around a directory."""
        return tuple(dict.fromkeys(tool for bundle in self._around(cwd) for tool in bundle.tools))

    def agent(self, cwd: str) -> str | None:
        """Return the default agent of the nearest project around a real directory that has one."""
        around = [each for path, each in self._projects.items() if each.agent is not None and is_inside(cwd, path)]
        return max(around, key=lambda project: len(project.path)).agent if around else None

    def prompts(self, cwd: str | None) -> tuple[str, ...]:
        """Return the prompts that the bundles of every project around a directory add for agents."""
        return tuple(dict.fromkeys(bundle.prompt for bundle in self._around(cwd) if bundle.prompt))

    def _around(self, cwd: str | None) -> Iterator[Bundle]:
        if cwd is not None:
            around = (project for path, project in self._projects.items() if is_inside(cwd, path))
            found = (self._bundles.find(id) for project in around for id in project.bundles)
            yield from (bundle for bundle in found if bundle is not None)

    def _with_trust(self, project: Project) -> Project:
        return replace(project, trusted=self._trusted(project.path))

    def _set(self, projects: Iterable[Project]) -> None:
        found = {project.path: project for project in projects}
        if found != self._projects:
            self._projects = found
            self._on_change()


async def _real(path: str) -> str:
    """Return the real path, so that one directory has one name."""
    return await anyio.to_thread.run_sync(os.path.realpath, path)
