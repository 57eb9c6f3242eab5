"""Crew tools for source code: find definitions and references of a symbol.

A caller can search its own directory and the owner's projects, nothing else.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired

import anyio.to_thread
from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.agents.symbols.entries import Kind
from toolcrib.builtin.caller import Calling
from toolcrib.gate.policy.bundles import Projects
from toolcrib.gate.policy.zones import is_inside
from toolcrib.model.errors import Denied, NotFound
from toolcrib.model.principals import Principal
from toolcrib.tools import Inject, tool

if TYPE_CHECKING:
    from toolcrib.agents.symbols.index import IndexState, Symbols

ProjectDir = Annotated[
    str | None, "A directory: yours, one below it, or a project of `crib_list_projects`. Default: yours."
]


class ShownIndex(TypedDict):
    """What was looked through. `complete` is false where time did not suffice: ask again, and there is more."""

    files: int
    skipped: int
    failed: int
    complete: bool


class ShownSymbol(TypedDict):
    """One definition."""

    name: str
    kind: Kind
    file: str
    line: int
    container: NotRequired[str]
    signature: str


class FoundSymbols(TypedDict):
    """The answer to `crib_code_symbols`."""

    projectDir: str
    symbols: list[ShownSymbol]
    total: int
    index: ShownIndex


class ShownReference(TypedDict):
    """One line on which a name stands."""

    file: str
    line: int
    text: str
    isDefinition: bool


class FoundReferences(TypedDict):
    """The answer to `crib_find_references`."""

    projectDir: str
    references: list[ShownReference]
    total: int
    index: ShownIndex


@dataclass(frozen=True, slots=True)
class CodeDirectory:
    """The code that can be searched; `symbols` returns its index.

    `cwd` is the default directory for callers without one. `is_closed` returns whether a directory is in the crib's
    home or contains it, for a caller.
    """

    symbols: "Callable[[], Symbols]"
    projects: Projects
    cwd: Callable[[], str]
    is_closed: Callable[[str, Principal], bool]

    async def root(self, principal: Principal, wanted: str | None) -> Path:
        """Return the real path of the directory; raise `code.outside` or `code.no_directory`."""
        own = await _real(principal.cwd or self.cwd())
        root = await _real(os.path.join(own, wanted)) if wanted else own  # noqa: PTH118 it is text until it is real
        known = (own, *(project.path for project in await self.projects.list()))
        if not any(is_inside(root, directory) for directory in known):
            raise Denied("code.outside", f"{root} is neither in your directory nor in a project.")
        if await anyio.to_thread.run_sync(self.is_closed, root, principal):
            hint = "Name a directory that does not contain it."
            raise Denied("code.outside", f"{root} contains the crib's home, which is closed to agents.", hint)
        if not await anyio.Path(root).is_dir():
            raise NotFound("code.no_directory", f"{root} is not a directory.")
        return Path(root)


async def _real(path: str) -> str:
    return await anyio.to_thread.run_sync(os.path.realpath, path.replace("\0", ""))


Code = Annotated[CodeDirectory, Inject]


@tool(read_only=True, requires="symbols", title="Find symbols")
async def crib_code_symbols(
    query: Annotated[
        str, "A name or part of it; `Outer.name` for a nested symbol; empty for all.", Field(max_length=200)
    ],
    project_dir: ProjectDir = None,
    kinds: Annotated[list[Kind] | None, "Only symbols of these kinds."] = None,
    limit: Annotated[int, "Maximum number of results.", Field(ge=1, le=200)] = 20,
    *,
    code: Code,
    context: Calling,
) -> FoundSymbols:
    """Find where functions, classes, methods, types and constants are defined in a project's source code.

    Use it instead of searching text when you know a name or a part of it. It reads Python, TypeScript, JavaScript, Go,
    Rust, Java, C and C++, skips what git ignores, and sees changes immediately. Returns the closest names first, each
    with kind, file (relative to projectDir), line, container and signature; total is the number of all matches.
    """
    root = await code.root(context.principal, project_dir)
    found = await code.symbols().find(root, query, kinds or (), limit)
    shown: list[ShownSymbol] = [each.to_json() for each in found.items]  # pyright: ignore[reportAssignmentType] the same
    return {"projectDir": str(root), "symbols": shown, "total": found.total, "index": _index(found.state)}


@tool(read_only=True, requires="symbols", title="Find references")
async def crib_find_references(
    symbol_name: Annotated[str, "The exact name; case-sensitive.", Field(min_length=1, max_length=200)],
    project_dir: ProjectDir = None,
    limit: Annotated[int, "Maximum number of results.", Field(ge=1, le=500)] = 50,
    *,
    code: Code,
    context: Calling,
) -> FoundReferences:
    """Find every line of a project's source code that contains a name, except in comments and strings.

    Use it before you change or remove something, to see its uses. Names are compared as text: two symbols with the same
    name are not distinguished. Returns definitions first, then uses by file and line, each with the text of the line;
    total is the number of all matches.
    """
    root = await code.root(context.principal, project_dir)
    found = await code.symbols().references(root, symbol_name, limit)
    shown: list[ShownReference] = [each.to_json() for each in found.items]  # pyright: ignore[reportAssignmentType] the same
    return {"projectDir": str(root), "references": shown, "total": found.total, "index": _index(found.state)}


def _index(state: "IndexState") -> ShownIndex:
    return {
        "files": state.files,
        "skipped": state.skipped,
        "failed": state.failed,
        "complete": state.complete,
    }


TOOLS = (crib_code_symbols, crib_find_references)
