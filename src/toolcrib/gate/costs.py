"""The cost of a tool set: the tokens its definitions take in a client's context, beside the calls of its tools.

Counts are estimates (`model.token_estimate`) of each definition as the MCP endpoint lists it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from toolcrib.model.json import JsonObject
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.model.tools import Tool, ToolRef

DAYS: Final = 30
"""The days whose calls are counted."""
_ENVELOPE: Final = len('{"name":"",},')
_WORTH_HIDING: Final = 500
"""Tokens of unused tools below which a suggestion is not worth a person's time."""


@dataclass(frozen=True, slots=True)
class ToolCost:
    """The estimated tokens of one definition, and its calls in the last days."""

    ref: ToolRef
    tokens: int
    calls: int

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"ref": str(self.ref), "tokens": self.tokens, "calls": self.calls}


@dataclass(frozen=True, slots=True)
class CostReport:
    """The costs of all tools that a principal sees, and of the tools that search mode shows instead.

    Search mode is suggested above `search_above` tokens.
    """

    tools: tuple[ToolCost, ...]
    search_tokens: int
    search_above: int

    @property
    def tokens(self) -> int:
        """The tokens of all definitions."""
        return sum(each.tokens for each in self.tools)

    def servers(self) -> list[JsonObject]:
        """Return the sums by server, the most expensive first."""
        groups = {server: list(costs) for server, costs in groupby(self.tools, key=lambda each: each.ref.server)}
        sums: list[JsonObject] = [
            {
                "server": server,
                "tools": len(costs),
                "tokens": sum(each.tokens for each in costs),
                "used": sum(each.calls > 0 for each in costs),
                "calls": sum(each.calls for each in costs),
            }
            for server, costs in groups.items()
        ]
        return sorted(sums, key=lambda each: (-each["tokens"], each["server"]))

    def suggestions(self) -> list[JsonObject]:
        """Return what would save tokens: search mode, and hiding the unused tools of a server."""
        found: list[JsonObject] = []
        if self.tokens > self.search_above:
            saved = self.tokens - self.search_tokens
            message = (
                f"Use search mode (`toolcrib connect CLIENT --tools search`): a client then receives "
                f"{self.search_tokens:,} tokens."
            )
            found.append({"kind": "search", "saves": saved, "message": message})
        for server in self.servers():
            unused = [each for each in self.tools if each.ref.server == server["server"] and not each.calls]
            saved = sum(each.tokens for each in unused)
            if saved >= _WORTH_HIDING and unused:
                message = f"Hide {len(unused)} tools of {server['server']} that were not called in {DAYS} days."
                refs = [str(each.ref) for each in unused]
                found.append(
                    {"kind": "hide", "server": server["server"], "saves": saved, "message": message, "tools": refs}
                )
        return found

    def to_json(self) -> JsonObject:
        """Return the public shape; `estimate` marks the counts as estimates."""
        return {
            "estimate": True,
            "method": "4 bytes of UTF-8 per token",
            "days": DAYS,
            "tokens": self.tokens,
            "searchTokens": self.search_tokens,
            "servers": self.servers(),
            "tools": [each.to_json() for each in self.tools],
            "suggestions": self.suggestions(),
        }


def costs(
    tools: Iterable[Tool],
    name: Callable[[ToolRef], str],
    calls: Mapping[ToolRef, int],
    search_tokens: int,
    search_above: int = 10_000,
) -> CostReport:
    """Return the costs of tools that are sorted by server. `name` returns the name that clients receive."""
    found = tuple(ToolCost(each.ref, definition_tokens(name(each.ref), each), calls.get(each.ref, 0)) for each in tools)
    return CostReport(found, search_tokens, search_above)


def definition_tokens(name: str, tool: Tool) -> int:
    """Return the estimated tokens of a definition under this name."""
    return estimate_bytes(len(tool.encoded) + len(name.encode()) + _ENVELOPE)
