"""What one asker sees: the decisions on one snapshot and one version of the rules, made when first asked for.

Decisions are kept by server, so that a view of the next snapshot takes over those on all servers that did not change.

Above: the gate keeps views and makes new ones when tools or rules change. Below: `policy.decide`. It must never show
what could not be decided: a failure of the rules hides the tool.
"""

import logging
import os.path
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import get_args

from toolcrib.catalog.snapshot import Part, Snapshot
from toolcrib.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Decision, Step, Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ContentItem, Tool, ToolRef
from toolcrib.policy import coding
from toolcrib.policy.decide import Grants, decide, sees
from toolcrib.policy.explain import Question
from toolcrib.policy.rules import Rules

logger = logging.getLogger(__name__)

UNSETTLED = -1
"""The number of rules that no rules have: a view in which something could not be decided is used no longer."""
_VERDICTS = frozenset(get_args(Verdict))
_UNDECIDED = Step("registered", True, "exclude", "The rules could not be applied to this tool; the log says why.")


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools one asker sees, in order of their identity. Equal versions of equal askers are the same object."""

    version: tuple[int, int]
    tools: tuple[Tool, ...]


class _Decided:
    """The decisions on tools of one server as far as they were asked for, and which tools are seen once that was."""

    __slots__ = ("decisions", "part", "seen")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.decisions: dict[ToolRef, Decision] = {}
        self.seen: tuple[Tool, ...] | None = None


class View:
    """The decisions for one asker. `before` is an earlier view of the same asker, if there is one."""

    def __init__(
        self, snapshot: Snapshot, rules: Rules, principal: Principal, grants: Grants, before: "View | None" = None
    ) -> None:
        self.version = (snapshot.version, rules.version)
        self.rules_version: str | None = rules.fingerprint
        self.snapshot = snapshot
        self._asked = (principal, grants, rules)
        known: dict[str, _Decided] = {}
        if before is not None and before.version[1] == rules.version and before._asked[1] == grants:
            known = before._decided
        self._decided = {server: _of_part(known.get(server), part) for server, part in snapshot.parts.items()}

    def decision(self, ref: ToolRef) -> Decision:
        """The decision on a tool whatever it is called with."""
        decided = self._decided.get(ref.server)
        tool = decided.part.tools.get(ref) if decided is not None else None
        if decided is None or tool is None:  # unknown names come from outside and are without end, so none is kept
            return self._decide(ref, None)
        kept = decided.decisions.get(ref)
        if kept is None:
            kept = decided.decisions[ref] = self._decide(ref, tool)
        return kept

    def decision_on(self, ref: ToolRef, arguments: JsonObject) -> Decision:
        """The decision on one call: the same, unless a rule looks at the arguments."""
        decision = self.decision(ref)
        if not decision.needs_arguments:
            return decision
        return self._decide(ref, self.snapshot.tools.get(ref), arguments)

    def question(self, ref: ToolRef, arguments: JsonObject | None) -> Question:
        """All that the decision depends on, to be explained."""
        paths = _paths(ref, arguments, self._asked[0]) if arguments is not None else None
        return Question(ref, self.snapshot.tools.get(ref), *self._asked, arguments, paths)

    @cached_property
    def listing(self) -> Listing:
        """The tools this asker sees. What only a runtime runs is in no list."""
        seen = [self._seen_of(decided) for server, decided in self._decided.items() if not self._is_runtime(server)]
        return Listing(self.version, tuple(chain.from_iterable(seen)))

    @cached_property
    def own_tools(self) -> tuple[Tool, ...]:
        """The tools of its own that this asker's runtime may have."""
        seen = [self._seen_of(decided) for server, decided in self._decided.items() if self._is_runtime(server)]
        return tuple(chain.from_iterable(seen))

    def _is_runtime(self, server: str) -> bool:
        return self.snapshot.sources[server].kind == "runtime"

    @cached_property
    def servers(self) -> frozenset[str]:
        """The servers of which this asker sees a tool, or would see one if they had any."""
        return frozenset(
            server
            for server, decided in self._decided.items()
            if not self._is_runtime(server)
            and (self._seen_of(decided) if decided.part.tools else self.whole_server(server).visible)
        )

    def whole_server(self, server: str) -> Decision:
        """The decision on a server as such: that on a tool of it which has no name."""
        ref = ToolRef(server, "")
        source = self.snapshot.sources.get(server)
        return self._decide(ref, Tool(ref, "", {}, source.kind) if source is not None else None)

    @cached_property
    def prompts(self) -> tuple[ContentItem, ...]:
        """The prompts of these servers."""
        return self._of_servers(self.snapshot.prompts.values())

    @cached_property
    def resources(self) -> tuple[ContentItem, ...]:
        """The resources of these servers."""
        return self._of_servers(self.snapshot.resources)

    @cached_property
    def templates(self) -> tuple[ContentItem, ...]:
        """The templates of these servers."""
        return self._of_servers(self.snapshot.templates)

    def _of_servers(self, items: Iterable[ContentItem]) -> tuple[ContentItem, ...]:
        return tuple(item for item in items if item.server in self.servers)

    def _seen_of(self, decided: _Decided) -> tuple[Tool, ...]:
        if decided.seen is None:
            decided.seen = tuple(filter(self._sees, decided.part.tools.values()))
        return decided.seen

    def _sees(self, tool: Tool) -> bool:
        try:
            return sees(tool, *self._asked)
        except Exception:  # boundary: what cannot be decided is refused, and nothing else stops
            logger.exception("The rules could not be applied to %s.", tool.ref)
            self.version = (self.snapshot.version, UNSETTLED)
            return False

    def _decide(self, ref: ToolRef, tool: Tool | None, arguments: JsonObject | None = None) -> Decision:
        paths = _paths(ref, arguments, self._asked[0]) if arguments is not None else None
        try:
            decision = decide(ref, tool, *self._asked, arguments, paths)
            if decision.verdict in _VERDICTS:
                return decision
        except Exception:  # boundary: what cannot be decided is refused, and nothing else stops
            logger.exception("The rules could not be applied to %s.", ref)
        self.version = (self.snapshot.version, UNSETTLED)
        return Decision("hidden", ref, (_UNDECIDED,))


class NoView(View):
    """What is seen where nobody can tell what may be: nothing, and nothing of it is kept."""

    def __init__(self, snapshot: Snapshot, principal: Principal) -> None:
        super().__init__(snapshot, Rules(), principal, Grants(permissions=()))
        self.version = (snapshot.version, UNSETTLED)
        self.rules_version = None

    def question(self, ref: ToolRef, arguments: JsonObject | None) -> Question:
        """There is nothing to explain."""
        raise Unavailable("internal", "The rules cannot be told at the moment; the log says why.")

    def _decide(self, ref: ToolRef, tool: Tool | None, arguments: JsonObject | None = None) -> Decision:
        return Decision("hidden" if tool is not None else "unknown", ref, (_UNDECIDED,))

    def _sees(self, tool: Tool) -> bool:
        return False


def _of_part(kept: _Decided | None, part: Part) -> _Decided:
    return kept if kept is not None and kept.part is part else _Decided(part)


def _paths(ref: ToolRef, arguments: JsonObject, principal: Principal) -> tuple[str, ...] | None:
    """The real paths that a coding agent's own tool names: rules are about where a link leads, not where it stands."""
    if ref.server != coding.SERVER or principal.cwd is None:
        return None
    return tuple(os.path.realpath(path) for path in coding.named_paths(ref.tool, arguments, principal.cwd))
