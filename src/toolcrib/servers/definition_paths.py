"""Computes the paths that a definition refers to, without reading any file.

`resolve` reads these files when a server starts; `exposure` lists them before.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from toolcrib.model.servers import ServerSpec
from toolcrib.servers.variables import Lookup, VariableReference, fill, spec_references


class DefinitionPaths:
    """The paths of one definition. `workspace` is the base of relative paths for definitions outside projects."""

    def __init__(self, spec: ServerSpec, environment: Mapping[str, str], workspace: Path | None = None) -> None:
        self._spec = spec
        self._environment = environment
        self._file = Path(spec.source.file)
        directory = spec.source.directory or spec.source.project
        self.base = Path(directory) if directory is not None else workspace

    def place(self, name: str) -> str | None:
        """Return the value of a placeholder like `workspaceFolder`."""
        home = self._environment.get("HOME")
        base = str(self.base) if self.base is not None else None
        root = Path(self._spec.source.root) if self._spec.source.root is not None else self._file.parent
        places = {
            "workspaceFolder": base,
            "workspaceRoot": base,
            "workspacePath": base,
            "cwd": base,
            "workspaceFolderBasename": Path(base).name if base else None,
            "userHome": home,
            "HOME": home,
            "DESKTOP": f"{home}/Desktop" if home else None,
            "DOCUMENTS": f"{home}/Documents" if home else None,
            "DOWNLOADS": f"{home}/Downloads" if home else None,
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        return places.get(name, str(root))

    def included(self, reference: VariableReference) -> Path:
        """Return the file whose content replaces a reference."""
        return self._path(reference.name, self._file.parent)

    def env_file(self) -> Path | None:
        """Return the file of variables that a definition names, if any."""
        return self._env_file(self._known)

    def files(self) -> Iterator[tuple[str, Path, Path]]:
        """Yield every file read when the server starts: the key that names it, its path, and its path for display.

        The latter shows the names of variables instead of their values.
        """
        for key, reference in spec_references(self._spec):
            if reference.kind == "file":
                yield key, self.included(reference), self.included(reference)
        env_file, written = self.env_file(), self._env_file(self._known_place)
        if env_file is not None and written is not None:
            yield "envFile", env_file, written

    def _env_file(self, lookup: Lookup) -> Path | None:
        named = self._spec.env_file
        if named is None:
            return None
        return self._path(fill(named, self._spec.variables, lookup), self.base or self._file.parent)

    def _known(self, reference: VariableReference) -> str | None:
        if reference.kind == "variable":
            return self._environment.get(reference.name)
        return self._known_place(reference)

    def _known_place(self, reference: VariableReference) -> str | None:
        return self.place(reference.name) if reference.kind == "place" else None

    def _path(self, named: str, base: Path) -> Path:
        home = self._environment.get("HOME", "~")
        return base / Path(f"{home}{named[1:]}" if named.startswith("~/") else named)
