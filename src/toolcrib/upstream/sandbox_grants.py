"""Turns the sandbox profile of a server into paths: what one start of it may read and write.

`project`: programs and system files can be read; the project, the working directory, the directories that the
definition names and a private directory can be written; the network is on. `strict`: only the private directory can be
written, and there is no network. Everything else of the user's home is out of reach in both, other processes included.
A project's definition opens nothing outside of the project but the programs in its command line and code to load.

The private directory has the temporary files and the caches of its package runner: in the user's own cache a hostile
server could change a package that runs without a sandbox later.

Must never grant the user's home, a directory above it, or the crib's home, unless the owner listed it. Must never
follow a link out of a directory that the server can write: the server may have put it there for its next start.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final

from toolcrib.base.home import Home
from toolcrib.base.masking.text import mask_text
from toolcrib.model.sandbox import SandboxGrants
from toolcrib.model.servers import ResolvedServer, ServerSpec
from toolcrib.servers.sandbox import registry_origin
from toolcrib.upstream.container_grants import ENGINES, Container, is_socket
from toolcrib.upstream.learning import CREDENTIALS

_SYSTEM_LINUX: Final = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/opt", "/nix", "/snap",
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
    "/sys/devices/system", "/sys/fs/cgroup",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version",
    "/proc/filesystems", "/proc/sys", "/proc/net",
)  # fmt: skip
_SYSTEM_MACOS: Final = (
    "/bin", "/sbin", "/usr", "/etc", "/private/etc", "/System", "/Library", "/Applications", "/opt", "/nix",
    "/private/var/db", "/private/var/select", "/dev",
)  # fmt: skip
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_PROGRAM_DIRECTORIES: Final = frozenset({"bin", "sbin", "Scripts", "shims", "scripts"})


_CODE: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".rb", ".php", ".jar"})
"""Programs, whose directory is granted for reading only."""
_PACKAGES: Final = "node_modules"
_PACKAGE_FILES: Final = ("__init__.py", "package.json")
_MOST_LINKS: Final = 40
_MOST_SETTINGS: Final = 100
_LARGEST_SETTINGS: Final = 64 * 1024
"""Bytes of a file of settings that is searched for secrets; a larger one is withheld."""
_CODE_VARIABLES: Final = ("PYTHONPATH", "NODE_PATH")
_DATABASES: Final = frozenset({".db", ".sqlite", ".sqlite3", ".duckdb"})
"""Databases, which create files beside their own."""


@dataclass(frozen=True, slots=True)
class _Runner:
    """A package runner: the variables for its caches, with their directories in the private one; what it reads in the
    home; and the variables that make it use its caches only.
    """

    caches: Mapping[str, str] = field(default_factory=dict[str, str])
    reads: tuple[str, ...] = ()
    offline: tuple[str, ...] = ()


_BROWSERS: Final = (".cache/ms-playwright", "Library/Caches/ms-playwright")
_NODE: Final = _Runner(
    {
        "npm_config_cache": "npm", "PNPM_HOME": "pnpm", "YARN_CACHE_FOLDER": "yarn", "YARN_GLOBAL_FOLDER": "yarn",
        "BUN_INSTALL_CACHE_DIR": "bun", "COREPACK_HOME": "corepack",
    },
    (".npmrc", ".config/npm", ".yarnrc", ".yarnrc.yml", ".config/pnpm", ".bunfig.toml"),
    ("npm_config_offline",),
)  # fmt: skip
_PNPM: Final = replace(_NODE, caches={**_NODE.caches, "npm_config_store_dir": "pnpm"})  # npm warns about this one
_PYTHON: Final = _Runner(
    {"UV_CACHE_DIR": "uv", "UV_TOOL_DIR": "uv-tools", "PIP_CACHE_DIR": "pip", "PIPX_HOME": "pipx"},
    (".config/uv", ".config/pip", ".pip", ".local/share/uv/python"),
    ("UV_OFFLINE", "PIP_NO_INDEX"),
)
_DENO: Final = _Runner({"DENO_DIR": "deno"})
_ENGINE: Final = _Runner(reads=(".docker", ".config/containers"))
_RUNNERS: Final[Mapping[str, _Runner]] = {
    **dict.fromkeys(("npx", "npm", "yarn", "bun", "bunx", "node"), _NODE),
    **dict.fromkeys(("pnpm", "pnpx"), _PNPM),
    **dict.fromkeys(("uvx", "uv", "pipx"), _PYTHON),
    "deno": _DENO,
    **dict.fromkeys(ENGINES, _ENGINE),
}


@dataclass(frozen=True, slots=True)
class SandboxDeps:
    """Where private directories of servers are (`root`, in the crib's home), and the crib's environment."""

    root: Path
    environment: Mapping[str, str]


def grant(
    spec: ServerSpec, resolved: ResolvedServer, deps: SandboxDeps, platform: str = sys.platform
) -> ResolvedServer:
    """Return what to start with the grants of the server's sandbox. Reads the file system."""
    return _Granting(spec, resolved, deps, platform).result()


class _Granting:
    """Collects the grants of one start."""

    def __init__(self, spec: ServerSpec, resolved: ResolvedServer, deps: SandboxDeps, platform: str) -> None:
        self._spec = spec
        self._resolved = resolved
        self._platform = platform
        self._project = os.path.realpath(spec.source.project) if spec.source.project is not None else None
        self._is_foreign = self._project is not None or registry_origin(spec) is not None
        self._owner = Path(deps.environment.get("HOME") or "/nonexistent")
        named = resolved.env.get("HOME")
        self._home = Path(named) if named and self._may_name(named) else self._owner
        self._crib = deps.root.parent
        self._own_path = deps.environment.get("PATH") or ""
        self._path = resolved.env.get("PATH") or self._own_path
        self._bundles = Home(deps.root.parent).server_bundles
        self._private = deps.root / sha256(f"{spec.source.file}#{spec.name}".encode()).hexdigest()[:16]
        runner = Path(resolved.command or "").name
        known = _RUNNERS.get(runner.removesuffix(".cmd").removesuffix(".exe"), _Runner())
        self._program = self._found_program()
        # The server could write a program of such a name itself, to read what only the runner may read.
        self._runner = replace(known, reads=()) if self._is_changeable(self._program) else known

    def result(self) -> ResolvedServer:
        sandbox, env = self._spec.sandbox, self._resolved.env
        is_strict = sandbox.profile == "strict"
        system = _SYSTEM_MACOS if self._platform == "darwin" else _SYSTEM_LINUX
        programs = [
            *self._programs(),
            *self._code(),
            *(str(self._home / each) for each in _BROWSERS),
            *self._runner_files(),
        ]
        work = list(self._places())
        private = str(self._private)
        variables = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), private) | self._cache_variables()
        if sandbox.reach == "none":
            variables |= dict.fromkeys(self._runner.offline, "true")
        followed = self._links()
        write = followed.resolve(*_DEVICES, private, *(() if is_strict else work), *sandbox.write)
        read = followed.resolve(*system, *programs, *(work if is_strict else ()), *sandbox.read)
        granted = SandboxGrants(
            read=_outermost(read, write),
            write=_outermost(write),
            network=sandbox.reach,
            create=(private,),
        )
        sockets = self._starts_container(granted) or any(map(is_socket, (*sandbox.read, *sandbox.write)))
        granted = replace(granted, sockets=sockets)
        return replace(self._resolved, env={**variables, **env}, sandbox=granted)

    def _cache_variables(self) -> dict[str, str]:
        """Return the variables that move caches into the private directory. Installed browsers stay where they are."""
        made = {name: str(self._private / "cache" / place) for name, place in self._runner.caches.items()}
        made["XDG_CACHE_HOME"] = str(self._private / "cache")
        browsers = (str(self._home / each) for each in _BROWSERS)
        if (found := next((each for each in browsers if Path(each).exists()), None)) is not None:
            made["PLAYWRIGHT_BROWSERS_PATH"] = found
        python = self._home / ".local/share/uv/python"
        if self._runner is _PYTHON and not python.exists():
            made["UV_PYTHON_INSTALL_DIR"] = str(self._private / "cache" / "python")
        return made

    def _programs(self) -> Iterator[str]:
        """Yield the installations of the command and of everything on the PATH."""
        own = self._own_path.split(os.pathsep)
        named = (each for each in self._path.split(os.pathsep) if each in own or self._may_name(each))
        directories = [Path(each) for each in named if each.startswith("/")]
        if (found := self._program) is not None:
            directories += [Path(found).parent, Path(os.path.realpath(found)).parent]
        for directory in dict.fromkeys(directories):
            yield from self._installation(directory)

    def _runner_files(self) -> Iterator[str]:
        """Yield what the package runner reads in the home. The package that it starts can read the same."""
        is_checked = self._is_foreign and self._runner is not _ENGINE  # an engine's client starts no code of others
        for place in self._runner.reads:
            if not (is_checked and _has_secrets(self._home / place)):
                yield str(self._home / place)

    def _found_program(self) -> str | None:
        """Return the file of the command."""
        command = self._resolved.command or ""
        found = shutil.which(command, path=self._path) if os.sep not in command else self._absolute(command)
        return found if found is not None and os.access(found, os.X_OK) else None

    def _is_changeable(self, file: str | None) -> bool:
        """Return whether the server, or the repository that it comes from, can write a file or a link to it."""
        if file is None:
            return True
        above = {Path(file), Path(os.path.realpath(file))}
        changeable = [os.path.realpath(each) for each in self._changeable()]
        return any(path.is_relative_to(each) for path in above for each in changeable)

    def _starts_container(self, granted: SandboxGrants) -> bool:
        """Return whether the command is an engine's client that starts a container which fits the sandbox."""
        if self._runner is not _ENGINE:
            return False
        container = Container(self._resolved.args, self._resolved.env, self._is_foreign)
        is_strict = self._spec.sandbox.profile == "strict"

        def may_mount(source: str, is_written: bool) -> bool:
            # Only what is open as a whole: below it, the server could put a link before the engine mounts the path.
            real = self._links().followed(str(Path(self._resolved.cwd or "/", source)))
            if real is None or real in granted.write or (real in granted.read and not is_written):
                return real is not None
            return not self._is_foreign and not (is_strict and is_written) and self._may_own_mount(real)

        return container.fits(granted.network, may_mount)

    def _may_own_mount(self, real: str) -> bool:
        """Return whether a definition of the owner may mount a path: the engine has more rights than the account."""
        try:
            is_of_account = os.stat(real).st_uid == os.getuid()  # noqa: PTH116 without links
        except OSError:
            return False
        is_safe = not is_socket(real) and not self._is_shared(Path(real)) and not self._is_changeable(real)
        return is_of_account and is_safe

    def _installation(self, directory: Path) -> Iterator[str]:
        """Yield the directory that a program and its libraries are in, and the base of a virtual environment."""
        root = directory.parent
        if _PACKAGES in directory.parts:
            yield from self._unless_shared(_packages_of(directory))
            return
        if directory.name not in _PROGRAM_DIRECTORIES or self._is_shared(root) or not _is_installation(root):
            if not self._is_shared(directory):
                yield str(directory)
            return
        yield str(root)
        base = _base_of(root)
        if base is not None and not self._is_shared(base.parent):
            yield str(base.parent)

    def _places(self) -> Iterator[str]:
        """Yield the project, the working directory, and the other files that the definition names."""
        project = self._spec.source.project
        for place in (project, self._resolved.cwd):
            if place is not None and self._may_name(place) and not self._is_shared(Path(place)):
                yield place
        for path in self._named_paths():
            if not _is_code(path) and self._may_name(str(path)) and not self._is_withheld(path):
                yield from self._unless_shared(path.parent if path.suffix.lower() in _DATABASES else path)

    def _code(self) -> Iterator[str]:
        """Yield the directories of the programs that the definition names, and of the app's plugin."""
        for path in (Path(self._resolved.command or ""), *self._named_paths()):
            if path.is_relative_to(self._bundles) and path != self._bundles:
                # The bundle that the server was installed from is in the crib's home, but is code like any other.
                yield str(self._bundles / path.relative_to(self._bundles).parts[0])
        for path in self._named_paths():
            if path.suffix.lower() in _CODE:
                yield from self._unless_shared(_packages_of(path.parent))
            elif _is_code(path):
                real = self._links().followed(str(path))
                for file in (path, Path(real or path)):
                    yield from self._installation(file.parent)
        listed = os.pathsep.join(self._resolved.env.get(name, "") for name in _CODE_VARIABLES).split(os.pathsep)
        for value in (*listed, self._resolved.cwd or ""):  # a program may also load code of its working directory
            if value.startswith("/") and (self._may_name(value) or _has_code(Path(value))):
                yield from self._unless_shared(Path(value))
        if self._spec.source.root is not None:
            yield from self._unless_shared(Path(self._spec.source.root))

    def _named_paths(self) -> Iterator[Path]:
        """Yield the existing paths in the arguments and variables of the definition."""
        values = [value for name, value in self._resolved.env.items() if name not in _CODE_VARIABLES]
        paths = (value for value in values if value.startswith("/") and self._may_name(value))
        for word in (*self._resolved.args, *paths):
            if (path := self._absolute(word)) is not None:
                yield Path(path)

    def _may_name(self, path: str) -> bool:
        """Return whether the definition can open a path: that of a project only what is in the project."""
        return self._project is None or Path(os.path.realpath(path)).is_relative_to(self._project)

    def _is_withheld(self, path: Path) -> bool:
        """Return whether a path looks like credentials and its publisher may have chosen it."""
        return registry_origin(self._spec) is not None and CREDENTIALS.search(os.path.realpath(path)) is not None

    def _changeable(self) -> list[str]:
        """Return the directories with links of the server, or of the repository that it comes from."""
        project = () if self._project is None else (self._project,)
        return [*project, *self._places(), str(self._private), *self._spec.sandbox.write]

    def _links(self) -> "_Links":
        return _Links(self._changeable())

    def _unless_shared(self, path: Path) -> Iterator[str]:
        if not self._is_shared(path):
            yield str(path)

    def _absolute(self, word: str) -> str | None:
        """Return the existing path that a word names, also as the value of an option."""
        value = word.rpartition("=")[2] if word.startswith("-") else word
        if not value or "\0" in value or len(value) > 4096:
            return None
        path = Path(self._resolved.cwd or "/") / value
        return str(path) if os.sep in value and os.path.exists(path) else None  # noqa: PTH110 of every argument

    def _is_shared(self, path: Path) -> bool:
        """Return whether a directory has more than one program's or project's files: never granted as a whole."""
        real = Path(os.path.realpath(path))
        crib = self._crib
        for home in (Path(os.path.realpath(self._owner)), Path(os.path.realpath(self._home))):
            if real in (home / ".local", home / ".config", home / ".local" / "share") or home.is_relative_to(real):
                return True
        return crib.is_relative_to(real) or real.is_relative_to(crib)


def _has_secrets(path: Path) -> bool:
    """Return whether a file of settings, or one in a directory of them, has what looks like a secret."""
    try:
        files = list(islice(path.iterdir(), _MOST_SETTINGS)) if path.is_dir() else [path]
        texts = [file.read_text(errors="replace") for file in files if file.is_file() and not _is_large(file)]
        return any(map(_is_large, files)) or any(mask_text(text) != text for text in texts)
    except OSError:
        return True


def _is_large(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > _LARGEST_SETTINGS


def _is_code(path: Path) -> bool:
    """Return whether a file is a program, which a server may run and not change."""
    return path.suffix.lower() in _CODE or (path.is_file() and os.access(path, os.X_OK))


def _has_code(directory: Path) -> bool:
    """Return whether programs can load something from a directory."""
    try:
        entries = list(islice(directory.iterdir(), 1000))
    except (OSError, ValueError):
        return False
    return any(each.suffix in _CODE or any((each / name).exists() for name in _PACKAGE_FILES) for each in entries)


def _packages_of(directory: Path) -> Path:
    """Return the directory of all packages that a package of Node.js was installed with, else the directory itself."""
    parts = directory.parts
    return Path(*parts[: parts.index(_PACKAGES) + 1]) if _PACKAGES in parts else directory


def _is_installation(root: Path) -> bool:
    """Return whether programs in a directory below need the whole of it: other directories may have private files."""
    return any((root / each).exists() for each in ("lib", "libexec", "pyvenv.cfg", "shims"))


def _base_of(root: Path) -> Path | None:
    """Return the directory of the Python that a virtual environment was created with."""
    try:
        lines = (root / "pyvenv.cfg").read_text().splitlines()
    except (OSError, ValueError):
        return None
    homes = (line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == "home")
    base = next((Path(os.path.realpath(each)) for each in homes if each), None)
    # A server may have written this file itself, so the directory has to be what the file claims.
    is_python = base is not None and _is_installation(base.parent) and os.access(base / "python3", os.X_OK)
    return base if is_python else None


class _Links:
    """Resolves paths. Links in `changeable` directories must not lead out of them: the server can replace them."""

    def __init__(self, changeable: Iterable[str]) -> None:
        self._changeable = [os.path.realpath(each) for each in changeable]

    def resolve(self, *paths: str) -> tuple[str, ...]:
        """Return each path once, without links, except in /proc, where they depend on the process."""
        found = (path if path.startswith("/proc/") else self.followed(path) for path in paths)
        return tuple(dict.fromkeys(path for path in found if path is not None))

    def followed(self, path: str) -> str | None:
        """Return where a path leads, or None if a link that the server can replace leads out of its directories."""
        real, followed, pending = "/", 0, _names(path)
        places = list[str]()
        while pending:
            name = pending.pop()
            step = str(Path(real).parent) if name == ".." else str(Path(real, name))
            try:
                target = str(Path(step).readlink())
            except (OSError, ValueError):  # no link
                real = step
                continue
            if (followed := followed + 1) > _MOST_LINKS:
                return None
            places += (each for each in self._changeable if Path(real).is_relative_to(each))
            real = "/" if target.startswith("/") else real
            pending += _names(target)
        return real if all(Path(real).is_relative_to(each) for each in places) else None


def _names(path: str) -> list[str]:
    """Return the parts of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _outermost(paths: tuple[str, ...], others: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the paths that no other one contains: those inside of a directory that the server can write may be
    replaced by links between here and the start.
    """
    around = {*paths, *others}
    return tuple(
        path for path in paths if path not in others and not any(str(above) in around for above in Path(path).parents)
    )
