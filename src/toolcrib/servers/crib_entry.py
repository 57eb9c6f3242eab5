"""Writes and recognises entries of a crib in the files of apps.

An entry is recognised by its command, or by a named token's secret sent to a loopback address, so no crib has to be
queried. `discover` uses this to avoid connecting a crib to itself.

Must never mistake another server for a crib.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.model.tokens import PREFIX
from toolcrib.servers.commands import program

NAME = "toolcrib"
_SOURCE = DefinitionSource("toolcrib", "user", "this crib")
_AGENTS = "/mcp/agents/"


@dataclass(frozen=True, slots=True)
class CribEntry:
    """The content of a crib's entry: the agent, and either the URL with its secret or the command.

    `home` is the one its command names; None means the default home. `token` is the name of the token that the command
    acts as; None means the owner.
    """

    agent: str | None = None
    url: str | None = None
    secret: str | None = field(default=None, repr=False)
    command: str | None = None
    home: str | None = None
    token: str | None = None

    @property
    def tools(self) -> str | None:
        """How the tools are offered, if its URL says so: `search` or `code`."""
        return dict(parse_qsl(urlsplit(self.url or "").query)).get("tools")


def crib_entry(spec: ServerSpec) -> CribEntry | None:
    """Return the content of a crib's entry; None for any other server."""
    return _of_command(spec) if spec.url is None else _of_address(spec)


def own_address(spec: ServerSpec) -> CribEntry | None:
    """Return the same for any loopback URL that looks like a crib's, whatever credentials are sent."""
    parts = _local(spec.url or "")
    if parts is None or not (parts.path.rstrip("/") == "/mcp" or parts.path.startswith(_AGENTS)):
        return None
    agent = unquote(parts.path[len(_AGENTS) :]).strip("/") if parts.path.startswith(_AGENTS) else ""
    return CribEntry(agent or None, spec.url, _bearer(spec.headers))


def http_spec(name: str, url: str, secret: str) -> ServerSpec:
    """Return the definition that reaches a crib at its URL."""
    headers = {"Authorization": f"Bearer {secret}"}
    return ServerSpec(name, "http", _SOURCE, url=url, headers=headers, variables="none")


def stdio_spec(
    name: str, command: Sequence[str], *, home: str | None, agent: str | None, token: str | None = None
) -> ServerSpec:
    """Return the definition that starts a crib's stdio front, as a named token if given."""
    given = (("--home", home), ("--agent", agent), ("--as", token))
    options = [word for option, value in given if value for word in (option, value)]
    args = (*command[1:], "stdio", *options)
    return ServerSpec(name, "stdio", _SOURCE, command=command[0], args=args, variables="none")


def own_command() -> tuple[str, ...]:
    """Return the command that starts this Toolcrib from anywhere: next to its Python, else on the path."""
    beside = Path(sys.executable).with_name("toolcrib.exe" if sys.platform == "win32" else "toolcrib")
    found = str(beside) if beside.is_file() else shutil.which("toolcrib")
    return (found,) if found else (sys.executable, "-P", "-m", "toolcrib")


def _of_command(spec: ServerSpec) -> CribEntry | None:
    words = [spec.command or "", *spec.args]
    for index, word in enumerate(words):
        if program(word) == "toolcrib" and words[index + 1 : index + 2] == ["stdio"]:
            options = words[index + 2 :]
            agent, home = _option(options, "--agent"), _option(options, "--home")
            return CribEntry(agent, command=spec.command, home=home, token=_option(options, "--as"))
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
        is_address = host[:1].isdigit() or ":" in host
        return parts if host == "localhost" or (is_address and ip_address(host).is_loopback) else None
    except ValueError:
        return None
