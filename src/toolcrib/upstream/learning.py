"""Records which files and hosts a server uses, from the output of its tracer, and proposes a sandbox that allows them.

Everything recorded is the server's own doing, so it is data for the owner, who decides: bounded in number and length,
and names with invisible characters or secrets are counted, not proposed. What the profile `project` grants anyway is
not kept. Files that look like credentials are listed apart and never part of the proposal.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from toolcrib.model.json import JsonObject
from toolcrib.model.sandbox import SandboxGrants, SandboxProfile
from toolcrib.model.text import visible

_MOST_PATHS: Final = 2_000
_MOST_HOSTS: Final = 200
_MOST_PROCESSES: Final = 2_000
_LONGEST_LINE: Final = 32_768
_LONGEST_PATH: Final = 1_000
_FOLDED: Final = 3
"""As many files of one directory are proposed as the directory."""

_LINE = re.compile(rb"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)", re.DOTALL)
_UNFINISHED = b" <unfinished ...>"
_RESULT = re.compile(rb"\) += (-?\d+)(?:<([^<>]*)>)?(?: (E[A-Z]+)\b.*)?$", re.DOTALL)
_NAMED = re.compile(rb'"(?:[^"\\]|\\.)*"|<[^<>]*>')
"""Names of files, in which the tracer escapes quotes and angle brackets."""
_TEXT = re.compile(rb'"((?:[^"\\]|\\.)*)"(?:\.\.\.)?')
_DIRECTORY = re.compile(rb"(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-f]{2}|.)")
_WRITES = re.compile(rb"\bO_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND)\b")
_INTERNET = re.compile(rb'sin6?_port=htons\((\d+)\).*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([0-9a-fA-F:.]+)"')
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f", b"a": b"\a", b"b": b"\b"}
CREDENTIALS = re.compile(
    r"(?:^|/)(?:\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.gcloud|\.docker|\.netrc|\.git-credentials|\.pgpass|\.npmrc|\.pypirc"
    r"|\.env(?:\.[\w-]+)?|\.password-store|\.mozilla|google-chrome|chromium|keyrings?|keychains?|gh/hosts\.yml|gcloud"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)|[^/]*(?:credential|secret|token|passwd|password|cookies)[^/]*"
    r"|[^/]+\.(?:pem|key|p12|pfx|kdbx|keystore))(?:/|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LearnedAccess:
    """What a server used outside of the profile `project`, folded, and the sandbox that allows it.

    `hosts` were reached through the proxy, `direct` without it. `credentials` are files that look secret; `left_out` is
    the number of names that cannot be shown or did not fit.
    """

    profile: SandboxProfile
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    direct: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    left_out: int = 0
    calls: int = 0

    def to_json(self) -> JsonObject:
        """Return the public shape: what was recorded, and the request that applies the proposal."""
        proposal: JsonObject = {"profile": self.profile, "read": list(self.read), "write": list(self.write)}
        proposal["hosts"] = [] if self.direct else list(self.hosts)  # a list would stop the direct connections
        return {
            "proposal": proposal,
            "hosts": list(self.hosts),
            "direct": list(self.direct),
            "sockets": list(self.sockets),
            "credentials": list(self.credentials),
            "leftOut": self.left_out,
            "recorded": self.calls,
        }


class AccessRecorder:
    """Collects what a server uses over all its starts."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._project = self._strict = SandboxGrants()
        self._home, self._proxy = "", 0
        self._rest = b""
        self._is_skipping = False
        self._unfinished: dict[bytes, bytes] = {}
        self._directories: dict[bytes, bytes] = {}
        self._cwd = b"/"
        self._read: dict[str, None] = {}
        self._write: dict[str, None] = {}
        self._hosts: dict[str, None] = {}
        self._direct: dict[str, None] = {}
        self._sockets: dict[str, None] = {}
        self._left_out = 0
        self._calls = 0
        self._wrote_work = False

    def begin(self, grants: tuple[SandboxGrants, SandboxGrants], home: str, cwd: str | None, proxy: int) -> None:
        """Start to record one process and its descendants, which has a proxy at this port.

        `grants` are what the profiles `project` and `strict` grant it.
        """
        (self._project, self._strict), self._home, self._proxy = grants, os.path.realpath(home), proxy
        self._cwd = os.fsencode(cwd or "/")
        self._rest = b""
        self._unfinished.clear()
        self._directories.clear()

    def feed(self, data: bytes) -> None:
        """Read output of the tracer."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._is_skipping:
                self._is_skipping = False
            elif len(line) <= _LONGEST_LINE:
                self._line(line)
        if len(self._rest) > _LONGEST_LINE:
            self._rest, self._is_skipping = b"", True

    def reached(self, host: str) -> None:
        """Record a host that was reached through the proxy."""
        self._add(self._hosts, host, _MOST_HOSTS)

    def result(self) -> LearnedAccess:
        """Return what was recorded so far."""
        read, write = [*self._read], [*self._write]
        credentials = sorted({path for path in (*read, *write) if CREDENTIALS.search(path)})
        folded_write = self._fold((path for path in write if path not in credentials), credentials)
        covered = SandboxGrants(write=folded_write)
        more = (path for path in read if path not in credentials and not covered.allows(path))
        folded_read = self._fold(more, credentials)
        needs_project = self._wrote_work or self._direct
        return LearnedAccess(
            "project" if needs_project else "strict",
            folded_read,
            folded_write,
            tuple(sorted(self._hosts)),
            tuple(sorted(self._direct)),
            tuple(sorted(self._sockets)),
            tuple(credentials[:100]),
            self._left_out,
            self._calls,
        )

    def _line(self, line: bytes) -> None:
        found = _LINE.match(line)
        if found is None:
            return
        process, resumed, name, rest = found.groups()
        if resumed is not None:
            name, rest = resumed, self._unfinished.pop(process, b"") + rest
        elif rest.endswith(_UNFINISHED):
            if len(self._unfinished) < _MOST_PROCESSES:
                self._unfinished[process] = rest[: -len(_UNFINISHED)]
            return
        end = _NAMED.sub(lambda found: b"_" * len(found[0]), rest).find(b") ")
        result = _RESULT.match(rest, end) if end >= 0 else None
        if result is not None:
            self._calls += 1
            self._call(process, name.decode(), rest[: result.start()], result)

    def _call(self, process: bytes, name: str, arguments: bytes, result: re.Match[bytes]) -> None:
        if name == "connect":
            if result[3] in (None, b"EINPROGRESS"):
                self._note_connection(arguments)
            return
        if result[1].startswith(b"-"):
            return
        plain = _DIRECTORY.sub(b"", _TEXT.sub(b'""', arguments))
        if name in ("chdir", "fchdir"):
            for path in self._paths(process, arguments):
                self._remember(process, os.fsencode(path))
        elif name.startswith("open") or name == "creat":
            if result[2] is not None and result[2].startswith(b"/"):
                path = os.fsdecode(_unescape(result[2])).removesuffix(" (deleted)")
                self._note_path(path, write=name == "creat" or _WRITES.search(plain) is not None)
        else:
            paths = list(self._paths(process, arguments))
            for path in paths[-1:] if name.startswith("symlink") else paths:
                self._note_path(path, write=not name.startswith("exec"))

    def _paths(self, process: bytes, arguments: bytes) -> Iterator[str]:
        """Yield the paths of a call, each relative to the directory before it or the process's."""
        directory = self._directories.get(process, self._cwd)
        limit = 1 if arguments.startswith(b'"') and b"[" in arguments else 2  # `execve` also has arguments
        position = 0
        for found in _TEXT.finditer(arguments):
            before = _DIRECTORY.findall(arguments[position : found.start()])
            base = _unescape(before[-1]) if before else directory
            if before and arguments[position : found.start()].lstrip(b", ").startswith(b"AT_FDCWD"):
                self._remember(process, base)
            position = found.end()
            yield os.fsdecode(os.path.normpath(os.path.join(base, _unescape(found[1]))))  # noqa: PTH118 bytes
            limit -= 1
            if limit == 0:
                return

    def _remember(self, process: bytes, directory: bytes) -> None:
        if len(self._directories) < _MOST_PROCESSES:
            self._directories[process] = directory

    def _note_connection(self, arguments: bytes) -> None:
        if b"sa_family=AF_UNIX" in arguments:
            path = _TEXT.search(arguments)
            if path is not None:
                self._add(self._sockets, os.fsdecode(_unescape(path[1])), _MOST_HOSTS)
            return
        found = _INTERNET.search(arguments)
        is_datagram = b"<UDP" in arguments[:20]
        if found is not None and not is_datagram:
            address, port = found[2].decode(), int(found[1])
            if (address, port) == ("127.0.0.1", self._proxy):
                return
            self._add(self._direct, f"[{address}]:{port}" if ":" in address else f"{address}:{port}", _MOST_HOSTS)

    def _note_path(self, path: str, *, write: bool) -> None:
        path = os.path.realpath(path)
        if self._project.allows(path, write=write):
            self._wrote_work |= write and not self._strict.allows(path, write=True)
            return
        if path == "/" or path.startswith(("/proc/", "/sys/", "/dev/")) or path in ("/proc", "/sys", "/dev"):
            return
        self._add(self._write if write else self._read, path, _MOST_PATHS)

    def _add(self, book: dict[str, None], name: str, most: int) -> None:
        if name in book:
            return
        is_plain = visible(name) == name and "\n" not in name and "\t" not in name and self._mask(name) == name
        if len(book) >= most or len(name) > _LONGEST_PATH or not is_plain:
            self._left_out += 1
        else:
            book[name] = None

    def _fold(self, paths: Iterator[str], credentials: Sequence[str]) -> tuple[str, ...]:
        """Return the paths without those inside others; many files of one directory become the directory."""
        by_parent: dict[str, list[str]] = {}
        for path in paths:
            by_parent.setdefault(str(PurePath(path).parent), []).append(path)
        folded: list[str] = []
        for parent, listed in by_parent.items():
            inside = [path for path in listed if not self._is_too_wide(path, credentials)]
            is_private = any(SandboxGrants(read=(parent,)).allows(path) for path in credentials)
            # A file that has been removed again, such as a temporary one, needs its directory.
            is_whole = len(inside) >= _FOLDED or not all(Path(path).exists() for path in inside)
            folded += [parent] if inside and is_whole and not is_private and not self._is_shared(parent) else inside
        kept: list[str] = []
        for path in sorted(folded, key=lambda each: len(PurePath(each).parts)):
            if not SandboxGrants(read=tuple(kept)).allows(path):
                kept.append(path)
        return tuple(sorted(kept))

    def _is_too_wide(self, path: str, credentials: Sequence[str]) -> bool:
        """Return whether a directory that the server has listed also holds what must not be proposed."""
        covers = SandboxGrants(read=(path,)).allows
        return covers(self._home) or any(map(covers, credentials)) or (self._is_shared(path) and Path(path).is_dir())

    def _is_shared(self, directory: str) -> bool:
        """Return whether a directory has files of many programs: never proposed as a whole."""
        place, home = PurePath(directory), PurePath(self._home)
        common = (home / ".config", home / ".local", home / ".local/share", home / ".local/state", home / ".cache")
        return home.is_relative_to(place) or place in common or len(place.parts) <= 2 or directory == "/var/lib"


def _unescape(text: bytes) -> bytes:
    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if code[:1].isdigit():
            return bytes([int(code, 8) & 0xFF])
        if len(code) == 3:
            return bytes([int(code[1:], 16)])
        return _LETTERS.get(code, code)

    return _ESCAPE.sub(plain, text)
