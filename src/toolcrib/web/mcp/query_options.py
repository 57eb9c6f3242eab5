"""The options in the address of the endpoint: `cwd`, `tools`, `result_tokens` and `tool_tokens`."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qs

from toolcrib.model.agents import LISTING_MODES, MOST_TOOL_TOKENS, ListingMode, ToolListing
from toolcrib.model.errors import InvalidRequest

ToolMode = ListingMode


class Asked(NamedTuple):
    """What the address of a client asks for: a project, how tools are offered, and budgets of tokens."""

    cwd: str | None
    tools: ToolMode | None = None
    result_tokens: int | None = None
    tool_tokens: int | None = None

    def within(self, listing: ToolListing) -> "Asked":
        """Return the options with an agent's listing and budget, unless the address names one of them."""
        if self.tools is not None or self.tool_tokens is not None:
            return self
        return self._replace(tools=listing.mode, tool_tokens=listing.tokens)


NOTHING_ASKED = Asked(None)
_MOST_TOKENS = MOST_TOOL_TOKENS


@lru_cache(maxsize=256)
def read_query(query: bytes, *, of_agent: bool = False) -> Asked:
    """Parse the query options of the endpoint. `tools=all` exists only for agents, which may list less by default."""
    named = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    mode = named.get("tools")
    tools: ToolMode | None = next((each for each in LISTING_MODES if mode == [each]), None)
    if mode is not None and (tools is None or (tools == "all" and not of_agent)):
        raise InvalidRequest("request.malformed", "tools may be `search` or `code`, once.")
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
