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
_WORTH_SHORTENING: Final = 100
"""The same for repeated text."""


@dataclass(frozen=True, slots=True)
class ToolCost:
    """The estimated tokens of one definition, and its calls in the last days.

    `saved` are the tokens that its shortened description saves, and `shortens` those that one would save.
    """

    ref: ToolRef
    tokens: int
    calls: int
    saved: int = 0
    shortens: int = 0

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"ref": str(self.ref), "tokens": self.tokens, "calls": self.calls, "saved": self.saved}


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
        """Return what would save tokens: search mode, and hiding or shortening the tools of a server."""
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
        return found + self._shortenings()

    def _shortenings(self) -> list[JsonObject]:
        found: list[JsonObject] = []
        for server in self.servers():
            longer = [each for each in self.tools if each.ref.server == server["server"] and each.shortens]
            saved = sum(each.shortens for each in longer)
            if saved >= _WORTH_SHORTENING:
                message = f"Shorten the descriptions of {len(longer)} tools of {server['server']} that repeat text."
                refs = [str(each.ref) for each in longer]
                found.append(
                    {"kind": "shorten", "server": server["server"], "saves": saved, "message": message, "tools": refs}
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
    listed: Mapping[ToolRef, Tool] | None = None,
    shorter: Mapping[ToolRef, Tool] | None = None,
) -> CostReport:
    """Return the costs of tools that are sorted by server. `name` returns the name that clients receive.

    `listed` has the tools whose descriptions are shortened, and `shorter` those that can be, both in the shorter form.
    """
    found: list[ToolCost] = []
    for tool in tools:
        exposed = name(tool.ref)
        form = (listed or {}).get(tool.ref, tool)
        tokens = definition_tokens(exposed, form)
        least = definition_tokens(exposed, (shorter or {}).get(tool.ref, form))
        saved = definition_tokens(exposed, tool) - tokens
        found.append(ToolCost(tool.ref, tokens, calls.get(tool.ref, 0), saved, max(0, tokens - least)))
    return CostReport(tuple(found), search_tokens, search_above)


def definition_tokens(name: str, tool: Tool) -> int:
    """Return the estimated tokens of a definition under this name."""
    return estimate_bytes(len(tool.encoded) + len(name.encode()) + _ENVELOPE)
