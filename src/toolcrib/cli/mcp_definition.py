"""What a person types for a new server, as the entry it becomes; pure.

Above: `mcp_add`, by flags and by wizard alike. Whether the entry is a good one is judged by the crib.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolcrib.errors import InvalidRequest
from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Typed:
    """The flags of `mcp add`; None and empty ones were not given."""

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


def entry_of(typed: Typed) -> JsonObject:
    """The entry for our file. Raises `cli.usage` for flags that do not go together."""
    _check(typed)
    entry: JsonObject = _remote(typed) if typed.url is not None else _local(typed)
    if typed.disabled:
        entry["enabled"] = False
    if typed.timeout is not None:
        entry["timeout"] = typed.timeout
    return entry


def _check(typed: Typed) -> None:
    if typed.url is not None and typed.command:
        raise _usage("Use either --url or -- <command...>, not both.")
    if typed.type not in (None, "http", "sse"):
        raise _usage("Invalid --type value. Use http or sse.")
    if typed.url is None:
        for flag, given in (("--token", typed.token), ("--header", typed.headers), ("--type", typed.type)):
            if given:
                raise _usage(f"{flag} requires --url (HTTP/SSE transport).")
    if typed.url is not None and (typed.env or typed.cwd):
        raise _usage(f"{'--env' if typed.env else '--cwd'} requires -- <command...> (stdio transport).")
    if typed.url is None and not typed.command:
        raise _usage("Say what the server is: --url URL, or -- <command...>.")


def _remote(typed: Typed) -> JsonObject:
    headers = dict(_pair(each, "--header") for each in typed.headers)
    if typed.token is not None:
        headers["Authorization"] = f"Bearer {typed.token}"
    entry: JsonObject = {"type": typed.type or "http", "url": typed.url}
    return entry | ({"headers": headers} if headers else {})


def _local(typed: Typed) -> JsonObject:
    entry: JsonObject = {"type": "stdio", "command": typed.command[0], "args": list(typed.command[1:])}
    env = dict(_pair(each, "--env") for each in typed.env)
    entry |= {"env": env} if env else {}
    return entry | ({"cwd": _directory(typed)} if typed.cwd else {})


def _directory(typed: Typed) -> str:
    """A relative path means the place where it was typed; in a project's file it means the project."""
    cwd = typed.cwd or ""
    return cwd if typed.scope == "project" or cwd.startswith(("~", "$")) else str(Path(cwd).absolute())


def _pair(text: str, flag: str) -> tuple[str, str]:
    separators = [mark for mark in ("=", ": ") if mark in text and (mark == "=" or flag == "--header")]
    first = min(separators, key=text.index, default="")
    name, _, value = text.partition(first) if first else ("", "", "")
    if not name.strip():
        raise _usage(f"{flag} needs NAME=VALUE.")
    return name.strip(), value


def _usage(message: str) -> InvalidRequest:
    return InvalidRequest("cli.usage", message, "Run `toolcrib mcp add --help`.")
