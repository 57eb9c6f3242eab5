"""Which definitions mean the same server, and the safe name each server is known by.

Both are functions of the definitions alone, so the order in which files are read cannot matter.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit, urlunsplit

from toolcrib.config.expand import SYNTAXES, Field, Reference, fill
from toolcrib.model.json import digest
from toolcrib.model.servers import ServerSpec

MAX_NAME = 100
_MAX_ALIAS = 60
_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_safe_name(name: str) -> bool:
    """Whether a name may be given to a server here."""
    return _SAFE.fullmatch(name) is not None and bool(name.strip("."))


def identity(spec: ServerSpec) -> str:
    """The same for two definitions that start the same program or reach the same address in the same way.

    Values count: one program with two accounts is two servers. References count by what they refer to, whatever the
    client's way of writing them.
    """

    def text(kind: Field, value: str) -> str:
        allowed = kind in SYNTAXES[spec.variables].fields
        return fill(value, spec.variables, _named) if allowed else value

    def values(kind: Field, mapping: Mapping[str, str]) -> dict[str, str]:
        return {name if kind == "env" else name.lower(): text(kind, value) for name, value in mapping.items()}

    headers = values("headers", spec.headers)
    headers |= {name.lower(): fill(value, "claude", _named) for name, value in spec.header_env.items()}
    if spec.url is not None:
        return digest(["remote", normal_url(text("url", spec.url)), headers])
    command = re.sub(r"\.(?:exe|cmd|bat)$", "", text("command", spec.command or ""), flags=re.IGNORECASE)
    args = [text("args", argument) for argument in spec.args]
    if command.rpartition("/")[2] == "npx":
        args = [argument for argument in args if argument not in ("-y", "--yes")]
    env = {**values("env", spec.env), **{name: f"${{variable:{name}}}" for name in spec.env_pass}}
    relative = any(word.startswith(("./", "../")) for word in (command, *args, spec.cwd or "")) or spec.cwd == "."
    return digest(["stdio", command, args, env, spec.cwd, spec.source.directory if relative else None])


def normal_url(url: str) -> str:
    """A URL without the differences that make none: case of the host, default port, last slash, fragment."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    if port is not None and _DEFAULT_PORTS.get(parts.scheme.lower()) != port:
        host = f"{host}:{port}"
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(
        (parts.scheme.lower(), f"{user}@{host}" if user else host, parts.path.rstrip("/"), parts.query, "")
    )


def aliases(rows: Iterable[tuple[str, str]], reserved: Collection[str]) -> dict[tuple[str, str], str]:
    """A unique safe name for each row (name, key), in the order given: the first keeps a name that is safe.

    A name that had to be changed, was taken or is reserved gets six digits of a hash of its key.
    """
    listed = list(rows)
    written = {name for name, _ in listed}
    taken = set(reserved)
    given: dict[tuple[str, str], str] = {}
    for name, key in listed:
        safe = _UNSAFE.sub("_", name).strip("_.-")[:_MAX_ALIAS] or "server"
        wanted = name if is_safe_name(name) else safe
        if wanted in taken or (wanted != name and wanted in written):
            wanted = f"{wanted[: MAX_NAME - 7]}_{_short_hash(name, key)}"
        number = 2
        alias = wanted
        while alias in taken:
            alias, number = f"{wanted}_{number}", number + 1
        taken.add(alias)
        given[name, key] = alias
    return given


def _named(reference: Reference) -> str:
    return f"${{{reference.kind}:{reference.name}}}"


def _short_hash(name: str, key: str) -> str:
    return hashlib.sha256(f"{name}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
