"""Suggests similar names when a command names something that does not exist.

The crib reports what kind of thing was not found. The names of that kind are compared with the words that were typed.

Must never hide the original error: a failed lookup suggests nothing.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TYPE_CHECKING

from toolcrib.model.errors import NotFound, ToolcribError

if TYPE_CHECKING:
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

MOST = 3
"""Names in one suggestion."""
_CUTOFF = 0.7
"""Required similarity, from 0 to 1."""

command_line: ContextVar[Sequence[str]] = ContextVar("command_line", default=())
"""The words of the command line."""


def _names(rows: "Iterable[JsonObject]", *keys: str) -> list[str]:
    return [str(row[key]) for row in rows for key in keys if row.get(key)]


async def _tools(client: "ApiClient") -> list[str]:
    return _names(await client.tools(), "ref")


async def _servers(client: "ApiClient") -> list[str]:
    return _names(await client.servers(), "name", "alias")


async def _agents(client: "ApiClient") -> list[str]:
    return _names(await client.agents(), "id")


async def _apps(client: "ApiClient") -> list[str]:
    return _names(await client.connections.list(), "client")


async def _schedules(client: "ApiClient") -> list[str]:
    return _names(await client.schedules.list(), "id")


async def _sessions(client: "ApiClient") -> list[str]:
    return _names(await client.sessions.list(), "id")


async def _tokens(client: "ApiClient") -> list[str]:
    return _names(await client.permissions.tokens(), "name")


async def _rules(client: "ApiClient") -> list[str]:
    return _names(await client.permissions.rules(), "id")


async def _approvals(client: "ApiClient") -> list[str]:
    return _names(await client.permissions.approvals(), "id")


async def _plugins(client: "ApiClient") -> list[str]:
    return _names(await client.plugins.list(), "name")


_LISTS: "Mapping[str, Callable[[ApiClient], Awaitable[list[str]]]]" = {
    "tool.unknown": _tools,
    "server.unknown": _servers,
    "agent.unknown": _agents,
    "client.unknown": _apps,
    "schedule.unknown": _schedules,
    "session.unknown": _sessions,
    "token.unknown": _tokens,
    "rule.unknown": _rules,
    "approval.unknown": _approvals,
    "plugin.unknown": _plugins,
}


async def known_names(client: "ApiClient", kind: str) -> list[str]:
    """Return the names of one kind, such as `server` or `tool`."""
    return await _LISTS[f"{kind}.unknown"](client)


async def with_suggestion(client: "ApiClient", error: NotFound) -> NotFound:
    """Return the error with similar names as its hint, or the same error if there are none."""
    lookup = _LISTS.get(error.code)
    if lookup is None:
        return error
    try:
        known = await lookup(client)
    except ToolcribError:
        return error
    found = similar(known, command_line.get())
    return NotFound(error.code, error.message, f"Did you mean {' or '.join(found)}?") if found else error


def similar(known: Sequence[str], words: Iterable[str]) -> list[str]:
    """Return the known names closest to a word that is not one of them."""
    by_folded = {name.casefold(): name for name in known}
    for word in words:
        if word.startswith("-") or word in known:
            continue
        tool = word.rpartition("/")[2]
        same_tool = [name for name in known if "/" in word and name.endswith(f"/{tool}")]
        found = same_tool or [by_folded[name] for name in _closest(word.casefold(), by_folded)]
        if found:
            return found[:MOST]
    return []


def _closest(word: str, known: Iterable[str]) -> list[str]:
    return get_close_matches(word, list(known), n=MOST, cutoff=_CUTOFF)
