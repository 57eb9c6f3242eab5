"""The options in the address of the endpoint: `cwd`, `tools`, `result_tokens` and `tool_tokens`."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import parse_qs

from toolcrib.model.errors import InvalidRequest

ToolMode = Literal["all", "search", "code"]
"""What a client lists: all tools, or those that find and call them."""


class Asked(NamedTuple):
    """What the address of a client asks for: a project, how tools are offered, and budgets of tokens."""

    cwd: str | None
    tools: ToolMode = "all"
    result_tokens: int | None = None
    tool_tokens: int | None = None


NOTHING_ASKED = Asked(None)
_MOST_TOKENS = 10_000_000


@lru_cache(maxsize=256)
def read_query(query: bytes) -> Asked:
    """Parse the query options of the endpoint."""
    named = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    mode = named.get("tools")
    if mode is not None and mode not in (["search"], ["code"]):
        raise InvalidRequest("request.malformed", "tools may be `search` or `code`, once.")
    tools: ToolMode = "all" if mode is None else "code" if mode == ["code"] else "search"
    cwd = named.get("cwd")
    return Asked(
        cwd[-1] if cwd else None, tools, _read_tokens(named, "result_tokens"), _read_tokens(named, "tool_tokens")
    )


def _read_tokens(named: Mapping[str, list[str]], key: str) -> int | None:
    values = named.get(key)
    if values is None:
        return None
    value = values[0] if len(values) == 1 else ""
    if not (value.isascii() and value.isdigit() and len(value) < 9 and int(value) <= _MOST_TOKENS):
        raise InvalidRequest("request.malformed", f"{key} may be a number up to {_MOST_TOKENS}, once.")
    return int(value)
