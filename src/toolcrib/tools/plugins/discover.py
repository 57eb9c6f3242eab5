"""Finds installed packages with tools: those with an entry point in the group `toolcrib.tools`.

Reads only files: the metadata of each distribution and the manifest in its package. A package only counts where its
distribution installed it, so a directory of the same name elsewhere on the path cannot replace it. Packages in the
working directory are ignored.

Must never import a package it finds.
"""

import importlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from toolcrib.model.json import Json
from toolcrib.model.plugins import Manifest
from toolcrib.model.problems import Problem
from toolcrib.tools.plugins.manifest import FILE, read_manifest

GROUP: Final = "toolcrib.tools"


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """An installed package with tools: its entry points, and its manifest or the problem with it."""

    package: str
    entries: tuple[EntryPoint, ...]
    manifest: Manifest | Problem

    @property
    def name(self) -> str:
        """The name of the plugin; without a manifest, that of its package."""
        return self.manifest.name if isinstance(self.manifest, Manifest) else self.package

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers it would add."""
        return tuple(entry.name for entry in self.entries)


def discover() -> list[FoundPlugin]:
    """Return every installed package with tools, by plugin name. A duplicate name is a problem."""
    importlib.invalidate_caches()
    by_package: dict[str, list[EntryPoint]] = {}
    distributions: dict[str, Distribution] = {}
    for entry in entry_points(group=GROUP):
        if entry.dist is not None and not _is_here(entry.dist):
            by_package.setdefault(entry.dist.name, []).append(entry)
            distributions[entry.dist.name] = entry.dist
    found: dict[str, FoundPlugin] = {}
    for package, entries in sorted(by_package.items()):
        entries.sort(key=lambda entry: entry.name)
        one = FoundPlugin(package, tuple(entries), _manifest(distributions[package], entries))
        if one.name in found:
            message = f"{package} and {found[one.name].package} both provide the plugin {one.name!r}."
            one = FoundPlugin(package, tuple(entries), Problem("plugin.manifest", message, "Uninstall one of them."))
        found[one.name] = one
    return [found[name] for name in sorted(found)]


def _is_here(distribution: Distribution) -> bool:
    """Return whether its metadata is in the working directory, which `python -m` adds to the path."""
    return Path(str(distribution.locate_file(""))).resolve() == Path.cwd()


def _manifest(distribution: Distribution, entries: Sequence[EntryPoint]) -> Manifest | Problem:
    tops = {entry.module.partition(".")[0] for entry in entries}
    if len(tops) != 1:
        return _problem(f"{distribution.name} offers tools from several packages: {', '.join(sorted(tops))}.")
    (top,) = tops
    folder = _folder(distribution, top)
    if folder is None:
        return _problem(f"The package `{top}` of {distribution.name} was not found where it was installed.")
    manifest = read_manifest(folder / FILE)
    if isinstance(manifest, Manifest) and manifest.version != distribution.version:
        stated = f"The manifest says version {manifest.version}, but {distribution.name} {distribution.version}"
        return _problem(f"{stated} is installed.", str(folder / FILE))
    return manifest


def _folder(distribution: Distribution, top: str) -> Path | None:
    """Return the directory of a top-level package if it belongs to its distribution. Does not run its code."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec is not None else []
    home = Path(str(distribution.locate_file(""))).resolve()
    source = _editable(distribution)
    for place in places:
        if place.parent == home or (source is not None and place.is_relative_to(source)):
            return place
    return None


def _editable(distribution: Distribution) -> Path | None:
    """Return the source directory of an editable install (`pip install -e`)."""
    try:
        origin: Json = json.loads(distribution.read_text("direct_url.json") or "null")
    except ValueError:
        return None
    match origin:
        case {"url": str(url), "dir_info": {"editable": True}} if url.startswith("file:"):
            return Path(url2pathname(urlsplit(url).path)).resolve()
        case _:
            return None


def _problem(message: str, file: str | None = None) -> Problem:
    return Problem("plugin.manifest", message, "Report this to the developers of the plugin.", file)
