"""Suggests similar names when a command names something that does not exist.

The crib reports what kind of thing was not found. The names of that kind are compared with the words that were typed.

Must never hide the original error: a failed lookup suggests nothing.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

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


_Rows: TypeAlias = "Callable[[ApiClient], Awaitable[list[JsonObject]]]"
_LISTS: "Mapping[str, tuple[_Rows, tuple[str, ...]]]" = {
    "tool.unknown": (lambda client: client.tools(), ("ref",)),
    "server.unknown": (lambda client: client.servers(), ("name", "alias")),
    "agent.unknown": (lambda client: client.agents(), ("id",)),
    "client.unknown": (lambda client: client.connections.list(), ("client",)),
    "schedule.unknown": (lambda client: client.schedules.list(), ("id",)),
    "session.unknown": (lambda client: client.sessions.list(), ("id",)),
    "token.unknown": (lambda client: client.permissions.tokens(), ("name",)),
    "rule.unknown": (lambda client: client.permissions.rules(), ("id",)),
    "preset.unknown": (lambda client: client.permissions.presets(), ("id",)),
    "approval.unknown": (lambda client: client.permissions.approvals(), ("id",)),
    "plugin.unknown": (lambda client: client.plugins.list(), ("name",)),
    "secret.unknown": (lambda client: client.secrets.stored(), ("name",)),
    "node.unknown": (lambda client: client.nodes(), ("id",)),
}
"""By error code: how to list what exists, and the fields that name it."""


async def known_names(client: "ApiClient", kind: str) -> list[str]:
    """Return the names of one kind, such as `server` or `tool`."""
    rows, keys = _LISTS[f"{kind}.unknown"]
    return [str(row[key]) for row in await rows(client) for key in keys if row.get(key)]


async def require_known(client: "ApiClient", kind: str, name: str | None) -> None:
    """Raise a `NotFound` if a name that filters a list does not exist: an empty list would not explain itself."""
    if name is None:
        return
    known = await known_names(client, kind)
    if kind == "server":
        known += {str(tool["server"]) for tool in await client.tools()}
    if name not in known:
        raise NotFound(f"{kind}.unknown", f'{kind.capitalize()} "{name}" not found.', _hint(similar(known, [name])))


async def with_suggestion(client: "ApiClient", error: NotFound) -> NotFound:
    """Return the error with similar names as its hint, or the same error if there are none."""
    if error.code not in _LISTS:
        return error
    try:
        known = await known_names(client, error.code.removesuffix(".unknown"))
    except ToolcribError:
        return error
    hint = _hint(similar(known, command_line.get()))
    return NotFound(error.code, error.message, hint) if hint else error


def _hint(names: Sequence[str]) -> str | None:
    return f"Did you mean {' or '.join(names)}?" if names else None


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
