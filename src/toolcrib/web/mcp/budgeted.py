"""A list of tools that fits a budget: the most used ones, and search for the rest.

`/mcp?tool_tokens=8000` lists tools marked `always_load`, then those that the principal called most in the last 30 days,
then the others in order, until the estimated tokens of their definitions reach the budget. If any are left out,
`find_tools` and `call_tool` are listed too. Every tool stays callable under its own name.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from toolcrib.gate.costs import definition_tokens
from toolcrib.gate.gate import Gate
from toolcrib.gate.search import search_tools
from toolcrib.gate.view import Listing
from toolcrib.model.json import JsonObject, dumps
from toolcrib.model.principals import Principal
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.web.mcp.views import Everything, Instruct, Kind, Searchable, Target

RecentCalls = Callable[[Principal], Awaitable[Mapping[ToolRef, int]]]
"""Returns how often the principal called each tool in the last days."""
SEARCH_TOKENS = sum(estimate_bytes(len(dumps(each))) for each in search_tools.DEFINITIONS)
_KEPT = 256


async def no_calls(_: Principal) -> Mapping[ToolRef, int]:
    """Return that nothing was called."""
    return {}


class ContextBudgets(NamedTuple):
    """What clients receive unless they ask otherwise.

    Results of more than `result_tokens` are shortened, except those of tools that match `whole_results`; 0 means none
    are. `recent_calls` decides which tools a list within a budget begins with.
    """

    result_tokens: int = 0
    whole_results: Sequence[str] = ()
    recent_calls: RecentCalls = no_calls


class _Picked(NamedTuple):
    """The tools that are listed for one principal, and the calls they were picked by."""

    listing: Listing
    calls: Mapping[ToolRef, int]
    refs: frozenset[ToolRef]


class Budgeted(Searchable):
    """Everything that fits a budget of tokens, and search for the rest."""

    def __init__(self, gate: Gate, tokens: int, recent_calls: RecentCalls, instruct: Instruct | None = None) -> None:
        super().__init__(gate, instruct)
        self._tokens = tokens
        self._recent_calls = recent_calls
        self._picked: dict[Principal, _Picked] = {}

    @property
    def key(self) -> str:
        """A separate key for each budget, because the tool lists differ."""
        return f"{super().key} within {self._tokens}"

    async def prepare(self, principal: Principal) -> None:
        """Load what the principal called, once for each listing."""
        picked = self._picked.get(principal)
        if picked is None or picked.listing is not self._gate.listing(principal):
            calls = await self._recent_calls(principal)
            if len(self._picked) >= _KEPT:
                self._picked.clear()
            self._pick(principal, calls)

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """Yield the picked tools under their unique names, and the search tools if others are left out."""
        if kind != "tools":
            yield from super().entries(kind, principal)
            return
        picked = self._of(principal)
        for name, encoded in Everything.entries(self, kind, principal):
            ref = self._gate.ref_of_name("endpoint", name)
            if ref is None or ref in picked.refs:
                yield name, encoded
        if len(picked.refs) < len(picked.listing.tools):
            yield from super().entries(kind, principal)

    def fingerprint(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """Return the definitions, of which those that are listed are chosen."""
        return Everything.fingerprint(self, kind, principal)

    def variant(self, principal: Principal) -> str:
        """Return whether `read_result` is listed."""
        return Everything.variant(self, principal)

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """Resolve the search tools, and every other tool by its unique name, whether it is listed or not."""
        return super().target(principal, name, arguments) or Everything.target(self, principal, name, arguments)

    def capabilities(self, principal: Principal) -> JsonObject:
        """Return all capabilities: the list changes."""
        return Everything.capabilities(self, principal)

    def _of(self, principal: Principal) -> _Picked:
        picked = self._picked.get(principal)
        if picked is None or picked.listing is not self._gate.listing(principal):
            picked = self._pick(principal, picked.calls if picked is not None else {})
        return picked

    def _pick(self, principal: Principal, calls: Mapping[ToolRef, int]) -> _Picked:
        listing = self._gate.listing(principal)
        listed = self._gate.listed(principal)
        costs = {tool.ref: definition_tokens(self._gate.name("endpoint", tool.ref), tool) for tool in listed}
        left = self._tokens
        refs = set(costs)
        if sum(costs.values()) > left:
            refs.clear()
            left -= SEARCH_TOKENS
            for tool in sorted(listing.tools, key=lambda tool: _order(tool, calls)):
                if costs[tool.ref] <= left:
                    left -= costs[tool.ref]
                    refs.add(tool.ref)
        picked = self._picked[principal] = _Picked(listing, calls, frozenset(refs))
        return picked


def _order(tool: Tool, calls: Mapping[ToolRef, int]) -> tuple[bool, int, ToolRef]:
    return not tool.marks.always_load, -calls.get(tool.ref, 0), tool.ref
