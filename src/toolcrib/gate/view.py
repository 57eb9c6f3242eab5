"""What one principal sees: decisions on one snapshot and one version of the rules, computed on demand.

Decisions are stored per server, so the view of the next snapshot reuses those of every unchanged server. A view is
valid for one snapshot and one version of the rules; `PrincipalViews` returns the current one.

Must never show a tool that could not be decided: a failure of the rules hides it.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, get_args

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.gate.catalog.catalog import Catalog, Snapshot, SnapshotPart
from toolcrib.gate.policy.decide import Grants, decide, sees
from toolcrib.gate.policy.paths import REAL
from toolcrib.gate.policy.permissions import RuleBook
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.gate.touched_paths import HomeGuard
from toolcrib.model.errors import InvalidRequest, Unavailable
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.marks import NO_MARKS, HeldMarks
from toolcrib.model.policy import Decision, DecisionStep, Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.servers import NO_NAMES
from toolcrib.model.tools import ContentItem, Tool, ToolRef

if TYPE_CHECKING:
    from toolcrib.gate.policy import explain
    from toolcrib.gate.policy.explain import ExplainQuery
else:
    explain = lazy_module("toolcrib.gate.policy.explain")

logger = logging.getLogger(__name__)

UNSETTLED = -1
"""A rules version that never occurs. A view with an undecided tool gets it, so it is not reused."""
_VIEWS_KEPT = 256
"""Number of cached views. The least recently used one is evicted and rebuilt on demand."""
_VERDICTS = frozenset(get_args(Verdict))
_FAILED = DecisionStep("registered", True, "exclude", "The rules could not be applied to this tool. See the log.")


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools one principal sees, sorted by identity. The object is cached per version and principal."""

    version: tuple[int, int]
    tools: tuple[Tool, ...]


class _ServerDecisions:
    """The decisions made so far on the tools of one server, and its visible tools once computed."""

    __slots__ = ("decisions", "part", "visible_tools")

    def __init__(self, part: SnapshotPart) -> None:
        self.part = part
        self.decisions: dict[ToolRef, Decision] = {}
        self.visible_tools: tuple[Tool, ...] | None = None


class PrincipalView:
    """The decisions for one principal. `before` is an earlier view of the same principal."""

    def __init__(
        self,
        snapshot: Snapshot,
        rules: Rules,
        principal: Principal,
        grants: Grants,
        before: "PrincipalView | None" = None,
        home: HomeGuard | None = None,
        marks: Callable[[Principal], HeldMarks] | None = None,
    ) -> None:
        """`marks` returns the current marks of the principal's conversation."""
        self.version = (snapshot.version, rules.version)
        self.rules_version: str | None = rules.fingerprint
        self.snapshot = snapshot
        self._inputs = (principal, grants, rules)
        self._home = home or HomeGuard()
        self._marks = marks
        known: dict[str, _ServerDecisions] = {}
        if before is not None and before.version[1] == rules.version and before._inputs[1] == grants:
            known = before._by_server
        self._by_server = {server: _reuse_decisions(known.get(server), part) for server, part in snapshot.parts.items()}

    def canonical(self, ref: ToolRef) -> ToolRef:
        """Return the same tool under the canonical name of its server."""
        return ref if ref in self.snapshot.tools else self.snapshot.canonical(ref)

    def decision(self, ref: ToolRef) -> Decision:
        """Return the decision on a tool, regardless of its arguments."""
        decided = self._by_server.get(ref.server)
        tool = decided.part.tools.get(ref) if decided is not None else None
        if decided is None or tool is None:  # not cached: unknown names come from outside and are unbounded
            return self._decide(ref, None)
        cached = decided.decisions.get(ref)
        if cached is None:
            cached = decided.decisions[ref] = self._decide(ref, tool)
        return cached

    def decision_on(self, ref: ToolRef, arguments: JsonObject, encoded: bytes) -> Decision:
        """Return the decision on one call. Reads the arguments only if a rule tests them or they may name the home."""
        decision = self.decision(ref)
        if not decision.needs_arguments and not self._home.may_be_named(encoded):
            return decision
        return self._decide(ref, self.snapshot.tools.get(ref), arguments)

    def paths(self, ref: ToolRef, arguments: JsonObject) -> tuple[TouchedPath, ...]:
        """Return the paths that a call currently touches; see `HomeGuard.touched`."""
        tool = self.snapshot.tools.get(ref)
        if tool is None or tool.kind == "builtin":  # these check the home themselves
            return ()
        return self._home.touched(ref, arguments, self._inputs[0].cwd)

    def question(self, ref: ToolRef, arguments: JsonObject | None) -> "ExplainQuery":
        """Return everything the decision depends on, for an explanation."""
        paths = self.paths(ref, arguments) if arguments is not None else None
        return explain.ExplainQuery(ref, self.snapshot.tools.get(ref), *self._inputs, arguments, paths, REAL, self.held)

    @property
    def held(self) -> HeldMarks:
        """The current marks of the principal's conversation."""
        return self._marks(self._inputs[0]) if self._marks is not None else NO_MARKS

    @cached_property
    def listing(self) -> Listing:
        """The tools this principal sees, without those that only a runtime runs."""
        visible_tools = [
            self._visible_of(decided) for server, decided in self._by_server.items() if not self._is_runtime(server)
        ]
        return Listing(self.version, tuple(chain.from_iterable(visible_tools)))

    @cached_property
    def own_tools(self) -> tuple[Tool, ...]:
        """The runtime's own tools that this principal may use."""
        visible_tools = [
            self._visible_of(decided) for server, decided in self._by_server.items() if self._is_runtime(server)
        ]
        return tuple(chain.from_iterable(visible_tools))

    def _is_runtime(self, server: str) -> bool:
        return self.snapshot.sources[server].kind == "runtime"

    @cached_property
    def servers(self) -> frozenset[str]:
        """The servers with at least one visible tool, or that would show one if they had any."""
        return frozenset(
            server
            for server, decided in self._by_server.items()
            if not self._is_runtime(server)
            and (self._visible_of(decided) if decided.part.tools else self.whole_server(server).visible)
        )

    def whole_server(self, server: str) -> Decision:
        """Return the decision on a server as a whole: the decision on a tool of it with an empty name."""
        ref = ToolRef(server, "")
        part = self.snapshot.parts.get(server)
        return self._decide(ref, Tool(ref, "", {}, part.source.kind, names=part.names) if part is not None else None)

    def decide_on(self, tool: Tool) -> Decision:
        """Return the decision on something that is decided like a tool, such as a skill."""
        return self._decide(tool.ref, tool)

    def would_see(self, ref: ToolRef) -> bool:
        """Return whether this principal would see an upstream tool of this name if it existed."""
        ref = self.snapshot.canonical(ref)
        part = self.snapshot.parts.get(ref.server)
        names = part.names if part is not None else NO_NAMES
        return self._decide(ref, Tool(ref, "", {}, "upstream", names=names)).visible

    def may_know(self, server: str) -> bool:
        """Return whether this principal may learn that the server exists: it sees, or would see, one of its tools."""
        if server in self.servers or self.would_see(ToolRef(server, "")):
            return True
        grants = self._inputs[1]
        named = (ToolRef.parse(pattern) for pattern in (*(grants.permissions or ()), *grants.bundles))
        return any(self.would_see(ToolRef(server, ref.tool)) for ref in named if ref is not None)

    @cached_property
    def prompts(self) -> tuple[ContentItem, ...]:
        """The prompts of the visible servers."""
        return self._of_servers(self.snapshot.prompts.values())

    @cached_property
    def resources(self) -> tuple[ContentItem, ...]:
        """The resources of the visible servers."""
        return self._of_servers(self.snapshot.resources)

    @cached_property
    def templates(self) -> tuple[ContentItem, ...]:
        """The resource templates of the visible servers."""
        return self._of_servers(self.snapshot.templates)

    def _of_servers(self, items: Iterable[ContentItem]) -> tuple[ContentItem, ...]:
        return tuple(item for item in items if item.server in self.servers)

    def _visible_of(self, decided: _ServerDecisions) -> tuple[Tool, ...]:
        if decided.visible_tools is None:
            decided.visible_tools = tuple(filter(self._sees, decided.part.tools.values()))
        return decided.visible_tools

    def _sees(self, tool: Tool) -> bool:
        try:
            return sees(tool, *self._inputs)
        except Exception:  # boundary: an undecided tool is hidden, and the others are still decided
            logger.exception("Could not apply the rules to %s.", tool.ref)
            self.version = (self.snapshot.version, UNSETTLED)
            return False

    def _decide(self, ref: ToolRef, tool: Tool | None, arguments: JsonObject | None = None) -> Decision:
        try:
            paths = self.paths(ref, arguments) if arguments is not None else None
            marks = self.held if self._inputs[2].test_marks else NO_MARKS
            decision = decide(ref, tool, *self._inputs, arguments, paths, REAL, marks=marks)
            if decision.verdict in _VERDICTS:
                return decision
        except Exception:  # boundary: an undecided tool is hidden, and the others are still decided
            logger.exception("Could not apply the rules to %s.", ref)
        self.version = (self.snapshot.version, UNSETTLED)
        return Decision("hidden", ref, (_FAILED,))


class NoView(PrincipalView):
    """An empty view for a principal whose view could not be computed. Never cached."""

    def __init__(self, snapshot: Snapshot, principal: Principal) -> None:
        super().__init__(snapshot, Rules(), principal, Grants(permissions=()))
        self.version = (snapshot.version, UNSETTLED)
        self.rules_version = None

    def question(self, ref: ToolRef, arguments: JsonObject | None) -> "ExplainQuery":
        """Raise `Unavailable`: there is nothing to explain."""
        raise Unavailable("internal", "The rules cannot be explained at the moment. See the log.")

    def _decide(self, ref: ToolRef, tool: Tool | None, arguments: JsonObject | None = None) -> Decision:
        return Decision("hidden" if tool is not None else "unknown", ref, (_FAILED,))

    def _sees(self, tool: Tool) -> bool:
        return False


class PrincipalViews:
    """The current view of every principal. The last ones are cached."""

    def __init__(
        self,
        catalog: Catalog,
        rules: RuleBook,
        grants: Callable[[Principal], Grants],
        home: HomeGuard,
        marks: Callable[[Principal], HeldMarks] | None = None,
    ) -> None:
        """`marks` returns the current marks of a principal's conversation."""
        self._marks = marks
        self._snapshots = catalog.by_directory
        self._rules = rules
        self._grants = grants
        self._home = home
        self._views: OrderedDict[Principal, PrincipalView] = OrderedDict()
        self._latest: tuple[Principal | None, PrincipalView | None] = None, None

    def of(self, principal: Principal) -> PrincipalView:
        """Return what this principal sees now."""
        snapshot = self._snapshots.get(principal.cwd) or self._snapshots[None]
        try:
            rules = self._rules() if self._rules.may_be_outdated else self._rules.current
            version = (snapshot.version, rules.version)
            latest, view = self._latest
            if latest is principal and view is not None and view.version == version:
                return view
            view = self._views.get(principal)
            if view is None or view.version != version:
                view = self._views[principal] = PrincipalView(
                    snapshot, rules, principal, self._grants(principal), view, self._home, self._marks
                )
        except Exception:  # boundary: without a computed view the principal sees nothing, until the next attempt
            logger.exception("Could not compute what %s may see.", principal.name)
            return NoView(snapshot, principal)
        if len(self._views) > _VIEWS_KEPT:
            self._views.popitem(last=False)
        self._views.move_to_end(principal)
        self._latest = principal, view
        return view


def _reuse_decisions(cached: _ServerDecisions | None, part: SnapshotPart) -> _ServerDecisions:
    return cached if cached is not None and cached.part is part else _ServerDecisions(part)


def encode_arguments(arguments: JsonObject) -> bytes:
    """Return the canonical JSON of the arguments. Raises `InvalidRequest` for values that are not JSON."""
    try:
        return canonical(arguments)
    except TypeError as error:
        raise InvalidRequest("tool.arguments_invalid", f"The arguments are not JSON: {error}.") from error


def fill_defaults(tool: Tool | None, arguments: JsonObject, encoded: bytes) -> tuple[JsonObject, bytes]:
    """Return the arguments with the schema's defaults filled in, and their canonical JSON.

    A call that a condition or a person decides on is bound to these arguments and sent with them, so exactly these run.
    A call decided without its arguments is sent unchanged.
    """
    filled = arguments if tool is None else tool.filled(arguments)
    return (arguments, encoded) if filled is arguments else (filled, encode_arguments(filled))
