"""Finds out what a server's sandbox refused, from error results of calls and from its standard error.

The system only returns "permission denied" to the server, so this reads what the server reports. A path counts only if
the sandbox does not allow it: other errors of permission are not the sandbox's. What a server writes is not trusted: it
ends up in a problem for the owner, who decides. Links are resolved, so that the owner sees what would be allowed.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Final

from toolcrib.model.problems import Problem
from toolcrib.model.sandbox import RefusedAccess, SandboxGrants
from toolcrib.model.servers import ServerSpec
from toolcrib.model.text import visible

_KEPT: Final = 10
_LONGEST_TEXT: Final = 20_000
_LONGEST_PATH: Final = 500
_DENIED = r"(?:permission denied|operation not permitted)"
_PATHS: Final = (
    re.compile(rf"{_DENIED}[^'\"\n]{{0,40}}['\"](/[^'\"\n]{{1,{_LONGEST_PATH}}})['\"]", re.IGNORECASE),
    re.compile(rf"(?:^|[\s(])(/[^\s:'\"]{{1,{_LONGEST_PATH}}}): {_DENIED}", re.IGNORECASE),
    re.compile(rf"['\"](/[^'\"\n]{{1,{_LONGEST_PATH}}})['\"]: (?:\[Errno \d+\] )?{_DENIED}", re.IGNORECASE),
)
_SOCKETS: Final = re.compile(
    rf"\bunix(?:://)? ?(/[^\s:'\"]{{1,{_LONGEST_PATH}}}): (?:socket|connect): {_DENIED}", re.IGNORECASE
)
_ENGINES: Final = re.compile(r"/(?:docker|podman|containerd|crio|nerdctl)[^/]*(?:/[^/]*)?\.sock$")
_HOSTS: Final = re.compile(r"(?:getaddrinfo E[A-Z_]+|connect E(?:ACCES|PERM)) ([\w.\[\]:-]{1,253})")
_NO_NETWORK: Final = re.compile(
    r"name resolution|EAI_AGAIN|\[Errno 1\] Operation not permitted(?!: ['\"]/)|Network is unreachable"
)


def refused_accesses(text: str, grants: SandboxGrants) -> Iterator[RefusedAccess]:
    """Yield what a text of the server says was refused, if it is outside these grants."""
    text = text[-_LONGEST_TEXT:]
    found = (found for pattern in _PATHS for found in pattern.findall(text))
    for real in dict.fromkeys(os.path.realpath(path) for path in found):
        if not grants.allows(real):
            yield RefusedAccess("read", real)
        elif not grants.allows(real, write=True):
            yield RefusedAccess("write", real)
    if not grants.sockets:
        yield from (RefusedAccess("write", os.path.realpath(path)) for path in dict.fromkeys(_SOCKETS.findall(text)))
    if grants.network != "none":
        return
    hosts = list(dict.fromkeys(_HOSTS.findall(text)))
    yield from (RefusedAccess("network", host) for host in hosts)
    if not hosts and _NO_NETWORK.search(text):
        yield RefusedAccess("network")


class Refusals:
    """What the sandbox of one server refused lately, newest last."""

    def __init__(self) -> None:
        self._found: dict[RefusedAccess, None] = {}

    def read(self, texts: Iterable[str], grants: SandboxGrants) -> bool:
        """Look for refusals in texts of the server. Returns whether there are new ones."""
        found = [access for access in refused_accesses("\n".join(texts), grants) if self.add(access)]
        return bool(found)

    def add(self, access: RefusedAccess) -> bool:
        """Add a refusal. Returns whether it is new."""
        if access in self._found or len(self._found) >= _KEPT:
            return False
        self._found[access] = None
        return True

    def all(self) -> tuple[RefusedAccess, ...]:
        """Return everything refused since the sandbox was set."""
        return tuple(self._found)


def refusal_problem(spec: ServerSpec, access: RefusedAccess) -> Problem:
    """Return the problem for one refusal, with the command that allows it."""
    name, target = spec.alias or spec.name, visible(access.target)
    if access.kind == "host":
        what, options = f"the host {target}", f"--allow-host {shlex.quote(target)}"
    elif access.kind == "network":
        what = f"the network ({target})" if target else "the network"
        options = "--network"
    else:
        what = f"writing {target}" if access.kind == "write" else f"access to {target}"
        quoted = shlex.quote(target)
        options = f"--write {quoted}" if access.kind == "write" else f"--read {quoted}` or `--write {quoted}"
    message = f'The sandbox of server "{spec.name}" ({spec.sandbox.profile}) refused {what}.'
    if _ENGINES.search(target):
        message += (
            " Through this socket a server can start containers that read and write every file of this machine,"
            " so its sandbox no longer protects anything."
        )
    hint = f"If the server needs it, run `toolcrib mcp sandbox {name}` with `{options}`."
    return Problem("sandbox.refused", message, hint)
