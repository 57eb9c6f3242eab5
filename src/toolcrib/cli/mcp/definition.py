"""Converts the flags of `mcp add` to a server definition.

Pure. The crib validates the definition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Typed:
    """The flags of `mcp add`; None or empty if not given."""

    url: str | None = None
    type: str | None = None
    token: str | None = None
    headers: Sequence[str] = ()
    env: Sequence[str] = ()
    cwd: str | None = None
    timeout: int | None = None
    scope: str = "user"
    disabled: bool = False
    command: Sequence[str] = ()
    share: str | None = None
    placement: str | None = None
    client_id: str | None = None


def entry_of(typed: Typed) -> JsonObject:
    """Return the definition. Raises `cli.usage` for conflicting flags."""
    _check(typed)
    entry: JsonObject = _remote(typed) if typed.url is not None else _local(typed)
    if typed.disabled:
        entry["enabled"] = False
    if typed.timeout is not None:
        entry["timeout"] = typed.timeout
    if typed.share is not None:
        entry["share"] = typed.share
    if typed.placement is not None:
        entry["placement"] = typed.placement
    return entry


def _check(typed: Typed) -> None:
    if typed.url is not None and typed.command:
        raise _usage("Use either --url or -- <command...>, not both.")
    _check_choices(typed)
    if typed.client_id is not None and not typed.client_id.strip():
        raise _usage("--client-id requires a client ID.")
    if typed.url is None:
        remote = (typed.token, typed.headers, typed.type, typed.client_id)
        for flag, given in zip(("--token", "--header", "--type", "--client-id"), remote, strict=True):
            if given:
                raise _usage(f"{flag} requires --url (HTTP/SSE transport).")
    if typed.url is not None and (typed.env or typed.cwd):
        raise _usage(f"{'--env' if typed.env else '--cwd'} requires -- <command...> (stdio transport).")
    if typed.url is None and not typed.command:
        raise _usage("Specify the server: --url URL, or -- <command...>.")


def _check_choices(typed: Typed) -> None:
    for flag, value, choices in (
        ("type", typed.type, "http sse"),
        ("share", typed.share, "shared session"),
        ("placement", typed.placement, "node one"),
    ):
        if value is not None and value not in choices.split():
            raise _usage(f"Invalid --{flag} value. Use {choices.replace(' ', ' or ')}.")


def _remote(typed: Typed) -> JsonObject:
    headers = dict(_pair(each, "--header") for each in typed.headers)
    if typed.token is not None:
        headers["Authorization"] = f"Bearer {typed.token}"
    entry: JsonObject = {"type": typed.type or "http", "url": typed.url}
    entry |= {"headers": headers} if headers else {}
    return entry | ({"auth": {"type": "oauth", "clientId": typed.client_id}} if typed.client_id else {})


def _local(typed: Typed) -> JsonObject:
    entry: JsonObject = {"type": "stdio", "command": typed.command[0], "args": list(typed.command[1:])}
    env = dict(_pair(each, "--env") for each in typed.env)
    entry |= {"env": env} if env else {}
    return entry | ({"cwd": _directory(typed)} if typed.cwd else {})


def _directory(typed: Typed) -> str:
    """Return the directory. A relative path is resolved from the working directory; in a project's file it stays
    relative.
    """
    cwd = typed.cwd or ""
    return cwd if typed.scope == "project" or cwd.startswith(("~", "$")) else str(Path(cwd).absolute())


def _pair(text: str, flag: str) -> tuple[str, str]:
    separators = [mark for mark in ("=", ": ") if mark in text and (mark == "=" or flag == "--header")]
    first = min(separators, key=text.index, default="")
    name, _, value = text.partition(first) if first else ("", "", "")
    if not name.strip():
        raise _usage(f"{flag} requires NAME=VALUE.")
    return name.strip(), value


def _usage(message: str) -> InvalidRequest:
    return InvalidRequest("cli.usage", message, "Run `toolcrib mcp add --help`.")
