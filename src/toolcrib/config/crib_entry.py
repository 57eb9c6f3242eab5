"""Entries of a crib in other tools' files: how they are written, and how they are known again.

A crib is known by its command, or by the secret of a named token that is sent to this machine; so it is known without
asking anybody where it listens. Above: `discover`, which never connects a crib to itself, and `servers.clients`, which
writes such entries. Below: `model`. It must never take anything for a crib that could be somebody else's server.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from toolcrib.config.commands import program
from toolcrib.model.servers import ServerSpec, Source
from toolcrib.model.tokens import PREFIX

NAME = "toolcrib"
_SOURCE = Source("toolcrib", "user", "this crib")
_AGENTS = "/mcp/agents/"


@dataclass(frozen=True, slots=True)
class CribEntry:
    """What such an entry says: which agent it asks as, and either where with which secret, or what it starts.

    `home` is the one that its command names; None is the usual one.
    """

    agent: str | None = None
    url: str | None = None
    secret: str | None = field(default=None, repr=False)
    command: str | None = None
    home: str | None = None


def crib_entry(spec: ServerSpec) -> CribEntry | None:
    """What an entry of a crib says; None for any other server."""
    return _of_command(spec) if spec.url is None else _of_address(spec)


def own_address(spec: ServerSpec) -> CribEntry | None:
    """The same for an address of this machine that looks like a crib's, whatever is sent there."""
    parts = _local(spec.url or "")
    if parts is None or not (parts.path.rstrip("/") == "/mcp" or parts.path.startswith(_AGENTS)):
        return None
    agent = unquote(parts.path[len(_AGENTS) :]).strip("/") if parts.path.startswith(_AGENTS) else ""
    return CribEntry(agent or None, spec.url, _bearer(spec.headers))


def http_spec(name: str, url: str, secret: str) -> ServerSpec:
    """The definition that reaches a crib at its address."""
    headers = {"Authorization": f"Bearer {secret}"}
    return ServerSpec(name, "http", _SOURCE, url=url, headers=headers, variables="none")


def stdio_spec(name: str, command: Sequence[str], *, home: str | None, agent: str | None) -> ServerSpec:
    """The definition that starts a front of a crib."""
    options = [*(("--home", home) if home else ()), *(("--agent", agent) if agent else ())]
    args = (*command[1:], "stdio", *options)
    return ServerSpec(name, "stdio", _SOURCE, command=command[0], args=args, variables="none")


def own_command() -> tuple[str, ...]:
    """How this very Toolcrib is started from anywhere: the command beside its Python, else one on the path."""
    beside = Path(sys.executable).with_name("toolcrib.exe" if sys.platform == "win32" else "toolcrib")
    found = str(beside) if beside.is_file() else shutil.which("toolcrib")
    return (found,) if found else (sys.executable, "-m", "toolcrib")


def _of_command(spec: ServerSpec) -> CribEntry | None:
    words = [spec.command or "", *spec.args]
    for index, word in enumerate(words):
        if program(word) == "toolcrib" and words[index + 1 : index + 2] == ["stdio"]:
            options = words[index + 2 :]
            agent, home = _option(options, "--agent"), _option(options, "--home")
            return CribEntry(agent, command=spec.command, home=home)
    return None


def _of_address(spec: ServerSpec) -> CribEntry | None:
    found = own_address(spec)
    return found if found is not None and (found.secret or "").startswith(PREFIX) else None


def _option(words: Sequence[str], name: str) -> str | None:
    for index, word in enumerate(words):
        if word == name:
            return words[index + 1] if index + 1 < len(words) else None
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _bearer(headers: Mapping[str, str]) -> str | None:
    sent = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
    scheme, _, secret = sent.partition(" ")
    return secret.strip() or None if scheme.lower() == "bearer" else None


def _local(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        return parts if host == "localhost" or ip_address(host).is_loopback else None
    except ValueError:
        return None
