"""Decides which definitions mean the same server, and assigns each server a safe name.

Both depend on the definitions alone, so the order in which files are read does not matter.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit, urlunsplit

from toolcrib.model.json import digest
from toolcrib.model.servers import ServerSpec
from toolcrib.servers.variables import DefinitionPaths, Field, VariableReference, fill, syntax_in

MAX_NAME = 100
_MAX_ALIAS = 60
_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_safe_name(name: str) -> bool:
    """Return whether a server can have this name here."""
    return _SAFE.fullmatch(name) is not None and bool(name.strip("."))


def identity(spec: ServerSpec) -> str:
    """Return the same digest for definitions that start the same program or reach the same URL in the same way.

    Values count: one program with two accounts is two servers. Variables and secrets count by name, whatever the app's
    syntax; directories and files by the path they stand for.
    """
    paths = DefinitionPaths(spec, {})

    def named(reference: VariableReference) -> str:
        if reference.kind == "place":
            return paths.place(reference.name) or _reference_text(reference)
        return f"${{file:{paths.included(reference)}}}" if reference.kind == "file" else _reference_text(reference)

    def text(kind: Field, value: str) -> str:
        return fill(value, syntax_in(kind, spec.variables), named)

    def values(kind: Field, mapping: Mapping[str, str]) -> dict[str, str]:
        return {name if kind == "env" else name.lower(): text(kind, value) for name, value in mapping.items()}

    headers = values("headers", spec.headers)
    headers |= {name.lower(): fill(value, "claude", _reference_text) for name, value in spec.header_env.items()}
    if spec.url is not None:
        return digest(["remote", normal_url(text("url", spec.url)), headers])
    command = re.sub(r"\.(?:exe|cmd|bat)$", "", text("command", spec.command or ""), flags=re.IGNORECASE)
    args = [text("args", argument) for argument in spec.args]
    if command.rpartition("/")[2] == "npx":
        args = [argument for argument in args if argument not in ("-y", "--yes")]
    env = {**values("env", spec.env), **{name: f"${{variable:{name}}}" for name in spec.env_pass}}
    relative = any(word.startswith(("./", "../")) for word in (command, *args, spec.cwd or "")) or spec.cwd == "."
    cwd = text("cwd", spec.cwd) if spec.cwd is not None else None
    directory = spec.source.directory if relative else None
    env_file = paths.env_file()
    included = [] if env_file is None else [str(env_file)]
    return digest(["stdio", command, args, env, cwd, directory, *included])


def normal_url(url: str) -> str:
    """Normalise the host's case, default port, trailing slash and fragment of a URL."""
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


def aliases(rows: Iterable[tuple[str, str, Collection[str]]], reserved: Collection[str]) -> dict[tuple[str, str], str]:
    """Return a unique safe name for each row (name, key, names it keeps), in order: the first row keeps a safe name.

    A name that is unsafe, taken or reserved gets six digits of a hash of its key. No later row gets a name that an
    earlier one keeps.
    """
    listed = list(rows)
    written = {name for name, _, _ in listed}
    taken = set(reserved)
    given: dict[tuple[str, str], str] = {}
    for name, key, kept in listed:
        safe = _UNSAFE.sub("_", name).strip("_.-")[:_MAX_ALIAS] or "server"
        wanted = name if is_safe_name(name) else safe
        if wanted in taken or (wanted != name and wanted in written):
            wanted = f"{wanted[: MAX_NAME - 7]}_{_short_hash(name, key)}"
        number = 2
        alias = wanted
        while alias in taken:
            alias, number = f"{wanted}_{number}", number + 1
        taken.add(alias)
        taken.update(kept)
        given[name, key] = alias
    return given


def _reference_text(reference: VariableReference) -> str:
    return f"${{{reference.kind}:{reference.name}}}"


def _short_hash(name: str, key: str) -> str:
    return hashlib.sha256(f"{name}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
