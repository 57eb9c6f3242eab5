"""Loads tools from a folder of Python modules: each `name.py` and each package is one server, named by its stem.

A module that cannot be loaded becomes one problem with file and line; the other modules work.

Must never raise for an author's mistake, run files that others can write, or leave a half-loaded module behind.
"""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from inspect import cleandoc
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from toolcrib.model.errors import CODES, ConfigError, ToolcribError
from toolcrib.model.problems import Problem
from toolcrib.tools.access import check_module
from toolcrib.tools.define import ToolServer, check_server_name, definition_of
from toolcrib.tools.failures import carriable, explain

_LONGEST = 1_000


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """One loaded module: its server, or the problem with it."""

    version: str
    outcome: ToolServer | Problem


@dataclass(frozen=True, slots=True)
class LoadedFolder:
    """The content of a folder: servers, problems, and the module of each by path."""

    servers: tuple[ToolServer, ...] = ()
    problems: tuple[Problem, ...] = ()
    modules: Mapping[Path, LoadedModule] = field(default_factory=dict[Path, LoadedModule], compare=False)


def load_folder(folder: Path, before: LoadedFolder | None = None) -> LoadedFolder:
    """Load every module of a folder; servers unchanged since `before` are kept. A missing folder is empty.

    Modules with problems are loaded again each time: the reason may be outside the module.
    """
    importlib.invalidate_caches()
    folder = folder.absolute()
    known = (before or LoadedFolder()).modules
    modules: dict[Path, LoadedModule] = {}
    try:
        paths = _modules(folder)
    except OSError as error:
        return LoadedFolder(problems=(_problem(folder, error),))
    for path in paths:
        version, kept = _version(path), known.get(path)
        taken = next((other for other in modules if _server_name(other) == _server_name(path)), None)
        if kept is None or kept.version != version or isinstance(kept.outcome, Problem) or taken is not None:
            kept = LoadedModule(version, _load(path) if taken is None else _name_taken_problem(path, taken))
        modules[path] = kept
    outcomes = [module.outcome for module in modules.values()]
    return LoadedFolder(
        servers=tuple(outcome for outcome in outcomes if isinstance(outcome, ToolServer)),
        problems=tuple(outcome for outcome in outcomes if isinstance(outcome, Problem)),
        modules=modules,
    )


def _modules(folder: Path) -> list[Path]:
    """Return the entries that look like modules."""
    if not folder.exists():
        return []
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith(("_", ".")))
    return [path for path in paths if path.name.endswith(".py") or os.path.lexists(path / "__init__.py")]


def _server_name(path: Path) -> str:
    return path.name.removesuffix(".py")


def _version(path: Path) -> str:
    """Return a text that changes with the module or any file of a package. Does not read files."""
    marks: list[tuple[str, int, int, int]] = []
    for part in [path, *(sorted(path.rglob("*.py")) if path.is_dir() else ())]:
        with suppress(OSError):
            status = part.stat()
            marks.append((str(part), status.st_mtime_ns, status.st_size, status.st_ino))
    return repr(marks)


def _name_taken_problem(path: Path, other: Path) -> Problem:
    message = f"`{other.name}` is already server `{_server_name(path)}`."
    return _problem(path, ConfigError("tool.module", message, "Rename one of them."))


def _load(path: Path) -> ToolServer | Problem:
    try:
        return _load_server(_server_name(path), path)
    except (Exception, SystemExit) as error:  # noqa: BLE001 boundary: modules are code of others
        return _problem(path, error)


def _load_server(name: str, path: Path) -> ToolServer:
    check_server_name(name)
    file = check_module(path)
    module_name = _module_name(path)
    _forget(module_name)
    try:
        module = _run(module_name, file)
        return module_server(name, module)
    except BaseException:
        _forget(module_name)
        raise


def module_server(name: str, module: ModuleType) -> ToolServer:
    """Return the server that a module defines. Raises `ConfigError` if it is invalid."""
    return ToolServer(
        name,
        tools=_tools(module),
        providers=_providers(module),
        instructions=cleandoc(module.__doc__) if module.__doc__ else None,
    )


class _FreshLoader(SourceFileLoader):
    """Compiles from source each time: cached bytecode is compared by seconds, but edits may be closer together."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _run(module_name: str, file: Path) -> ModuleType:
    places = [str(file.parent)] if file.name == "__init__.py" else None
    loader = _FreshLoader(module_name, str(file))
    spec = importlib.util.spec_from_file_location(module_name, file, loader=loader, submodule_search_locations=places)
    if spec is None:
        raise ImportError(f"{file.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with redirect_stdout(sys.stderr):  # stdout may carry a protocol
        loader.exec_module(module)
    return module


def _module_name(path: Path) -> str:
    """Return a unique module name, the same for each load: schemas may contain it."""
    place = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:12]
    return f"toolcrib_tools_{place}_{re.sub(r'[^A-Za-z0-9_]', '_', path.name.removesuffix('.py'))}"


def _forget(module_name: str) -> None:
    for name in [name for name in sys.modules if name == module_name or name.startswith(f"{module_name}.")]:
        del sys.modules[name]


def _tools(module: ModuleType) -> Sequence[Callable[..., Any]]:
    """Return the module's `tools`, or all of its own functions with `@tool`."""
    listed = vars(module).get("tools")
    if listed is not None and definition_of(listed) is None:
        if not isinstance(listed, list | tuple):
            raise ConfigError(
                "tool.module", "`tools` is not a list.", "List the functions, as in `tools = [forecast]`."
            )
        return cast("Sequence[Callable[..., Any]]", listed)
    own = (module.__name__, f"{module.__name__}.")
    found = {
        id(value): value
        for value in vars(module).values()
        if definition_of(value) is not None and (value.__module__ == own[0] or value.__module__.startswith(own[1]))
    }
    if not found:
        raise ConfigError(
            "tool.module", "The module has no tools.", "Put `@tool` on a function, or `_` before its name."
        )
    return list(found.values())


def _providers(module: ModuleType) -> Mapping[Any, Any]:
    found = vars(module).get("providers", {})
    if not isinstance(found, Mapping):
        raise ConfigError("tool.module", "`providers` is not a dict.", "Write `providers = {Weather: open_weather}`.")
    return cast("Mapping[Any, Any]", found)


def _problem(path: Path, error: BaseException) -> Problem:
    message = f"`{path.name}` could not be loaded: {explain(error)[:_LONGEST]}"
    file, line = _place(path, error)
    return Problem("tool.module", carriable(message), _hint(error), carriable(str(file)), line)


def _hint(error: BaseException) -> str | None:
    if isinstance(error, ToolcribError):
        return error.hint
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"Install the package that has `{error.name}` into Toolcrib's environment."
    return CODES["tool.module"].hint


def _place(path: Path, error: BaseException) -> tuple[Path, int | None]:
    """Return the last line of the module itself in the traceback."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        frames.append((error.filename, error.lineno))
    own = [(Path(name), line) for name, line in frames if Path(name).is_relative_to(path)]
    return own[-1] if own else (path, None)
