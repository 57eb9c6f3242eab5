"""Decides whether the client of a container engine may use local sockets: only to start what the sandbox would allow.

The engine starts a container outside of the sandbox, and its socket opens every file of the machine. A definition gets
it only for `docker run` with options that are known to give the container no more than the profile gives a process:
it mounts only what the profile opens, and it has a network only if the profile has one. For everything else the owner
has to list the socket.

Must never allow an option that is not known: each of them may open the machine.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolcrib.model.sandbox import SandboxNetwork

ENGINES: Final = frozenset({"docker", "podman"})
_SWITCHES: Final = frozenset({"--interactive", "--rm", "--tty", "--init", "--read-only", "--quiet"})
_SHORT_SWITCHES: Final = re.compile(r"-[itq]+")
_VALUED: Final = frozenset({
    "-e", "--env", "--env-file", "-u", "--user", "-w", "--workdir", "--name", "--platform", "--pull", "-m", "--memory",
    "--memory-swap", "--cpus", "--pids-limit", "--cap-drop", "-h", "--hostname", "--entrypoint", "--tmpfs",
    "--shm-size", "--stop-timeout", "--stop-signal",
})  # fmt: skip
_MOUNTS: Final = frozenset({"-v", "--volume", "--mount"})
_NETWORKS: Final = frozenset({"--network", "--net"})
_OWN_NETWORK: Final = frozenset({"bridge", "default"})
_OPTIONS_OF_MOUNTS: Final = frozenset({"ro", "rw", "z", "Z", "cached", "delegated", "consistent"})
_CLIENT_VARIABLES: Final = re.compile(
    r"(?:DOCKER|BUILDKIT|BUILDX|COMPOSE|CONTAINERS?|PODMAN|REGISTRY|STORAGE|XDG|SSH|SSL|GO\w*|LD|DYLD)(?:_\w*)?"
    r"|PATH|HOME|USER|TMPDIR|BASH_ENV|ENV|SHELLOPTS|PYTHON\w*|.*_PROXY",
    re.IGNORECASE,
)
"""Variables that change what the client itself loads, runs or talks to."""


@dataclass(frozen=True, slots=True)
class Container:
    """What a definition asks of the engine: `words` follow the command. `env` has the variables of the definition."""

    words: Sequence[str]
    env: Mapping[str, str]
    is_foreign: bool
    """Whether a project or a registry defines it. The owner's definitions may set variables of the client."""

    def fits(self, network: SandboxNetwork, may_mount: Callable[[str, bool], bool]) -> bool:
        """Return whether the container gets no more than a profile with this network, and with these mounts.

        `may_mount` returns whether a directory may be mounted; its second argument is whether to write to it.
        """
        words = [*self.words[1:]] if self.words[:1] == ("container",) else [*self.words]
        if words[:1] != ["run"]:
            return False
        own_network, passed = "bridge", set[str]()
        for name, value in _options(words[1:]):
            if name in _MOUNTS:
                mount = _bind_mounts(value) if name == "--mount" else _volume(value)
                if mount is None or (mount.source and not may_mount(mount.source, mount.is_written)):
                    return False
            elif name in _NETWORKS:
                own_network = value
            elif name in ("-e", "--env"):
                passed.add(value)
            elif name == "--security-opt":
                if not value.startswith("no-new-privileges"):
                    return False
            elif name not in _VALUED and name not in _SWITCHES:
                return False
        is_known = own_network == "none" or (own_network in _OWN_NETWORK and network == "all")
        return is_known and (not self.is_foreign or self._sets_only(passed))

    def _sets_only(self, passed: set[str]) -> bool:
        """Return whether all variables are for the container, and none has a meaning for the client."""
        return all(name in passed and not _CLIENT_VARIABLES.fullmatch(name) for name in self.env)


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options before the image with their values. A value that is missing is empty."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return
        if _SHORT_SWITCHES.fullmatch(word):
            continue
        name, is_given, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _SWITCHES:
            # `--read-only=false` is a known option with an unknown effect.
            yield (name if value in ("", "true") else word), value
        else:
            yield name, value if is_given else next(rest, "")


@dataclass(frozen=True, slots=True)
class _Mount:
    source: str = ""
    """Empty if nothing of this machine is mounted."""
    is_written: bool = True


def _volume(value: str) -> _Mount | None:
    """Return what `-v` mounts; None if it is a volume of the engine, which may have data of other containers."""
    parts = value.split(":")
    if len(parts) == 1:
        return _Mount() if value.startswith("/") else None
    options = {each for part in parts[2:] for each in part.split(",")}
    if len(parts) > 3 or not options <= _OPTIONS_OF_MOUNTS or (os.sep not in parts[0] and parts[0] != "."):
        return None
    return _Mount(parts[0], "ro" not in options)


def _bind_mounts(value: str) -> _Mount | None:
    """Return what `--mount` mounts; None if it is not known to be harmless."""
    fields = {name: text for name, _, text in (part.partition("=") for part in value.split(","))}
    kind = fields.pop("type", "volume")
    source = fields.pop("source", None) or fields.pop("src", "")
    is_read_only = any(fields.pop(name, "false") in ("", "true", "1") for name in ("readonly", "ro"))
    for name in ("target", "destination", "dst"):
        fields.pop(name, None)
    if kind == "tmpfs" and not source:
        return _Mount()
    return _Mount(source, not is_read_only) if kind == "bind" and source and not fields else None


def is_socket(path: str) -> bool:
    """Return whether a path is a local socket."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 also for bytes that are no path
    except (OSError, ValueError):
        return False
