"""Marks of conversations: which ones have read untrusted text or private data.

A conversation is a session with everything it started: sessions, jobs and work tasks share the marks of the session or
token at the root. Outside of sessions it is the caller itself, all MCP sessions of one token together, so that opening
another MCP session does not remove a mark. Such marks end a day after the last call that set one, or when a person
clears them; those of a session last as long as the session and what it started, also if a token started the session.

A mark is set after the call returned and before its result is delivered, so a later call that the result could have
influenced is decided with the mark. Calls that an agent's runtime runs itself set it when they start, since the crib
does not deliver their results.

Must never let a failure of the database remove a mark that was set.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from toolcrib.gate.catalog.catalog import Catalog
from toolcrib.gate.policy.flows import Flows, reads_like_text
from toolcrib.model.errors import NotFound, Unavailable
from toolcrib.model.marks import MARKS, NO_MARKS, HeldMarks, Mark, MarkingCall
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, Tool, ToolRef
from toolcrib.store.engine import Store
from toolcrib.store.marks import MarkRow, delete_marks, has_started, load_marks, prolong_marks, save_marks

MOST_CALLS: Final = 3
"""Number of calls that are stored for each mark of a conversation."""
MARKED_FOR: Final = timedelta(hours=24)
"""How long a mark outside of sessions holds after the last call that set one."""
_PROLONG_BELOW: Final = timedelta(hours=23)
_MOST_TOOLS: Final = 10_000
_SESSION: Final = "session "

logger = logging.getLogger(__name__)


def conversation_of(principal: Principal) -> str:
    """Return the conversation that the calls of a principal belong to."""
    root = principal
    while root.creator is not None:
        root = root.creator
    return f"{root.scope} {root.token_id}" if root.session is None and root.token_id is not None else root.scope


def _conversations_of(principal: Principal) -> tuple[str, ...]:
    """Return the conversation of a principal, and the session in it whose marks must outlast those of its caller."""
    root = conversation_of(principal)
    if root.startswith(_SESSION) or principal.session is None:
        return (root,)
    first = principal
    while first.creator is not None and first.creator.session is not None:
        first = first.creator
    return root, first.scope


@dataclass(slots=True)
class _Conversation:
    held: HeldMarks = NO_MARKS
    until: datetime | None = None
    unsaved: int = 0
    """Number of writes that have not succeeded. While there are any, the database is not the whole truth."""

    def add(self, mark: Mark, call: MarkingCall) -> None:
        known = self.held.calls.get(mark, ())
        if len(known) < MOST_CALLS and all(each.audit_id != call.audit_id for each in known):
            self.held = HeldMarks({**self.held.calls, mark: (*known, call)})


class _Unsaved(NamedTuple):
    """Marks of one conversation that have to be stored, and the time until which its other marks are prolonged."""

    name: str
    known: _Conversation
    rows: list[MarkRow]
    until: datetime | None


@dataclass(slots=True)
class ConversationMarks:
    """The marks of all conversations, in memory and in the database."""

    store: Store
    flows: Flows
    catalog: Catalog
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _known: dict[str, _Conversation] = field(default_factory=dict[str, _Conversation])
    _marking: dict[ToolRef, tuple[Tool, tuple[Mark, ...]]] = field(
        default_factory=dict[ToolRef, tuple[Tool, tuple[Mark, ...]]]
    )
    unmarking: dict[ToolRef, Tool] = field(default_factory=dict[ToolRef, Tool])
    """The tools that are known to set no marks. Calls of them skip this module."""

    def __post_init__(self) -> None:
        self.flows.listen(self.renew)

    async def load(self) -> None:
        """Load the marks of earlier runs."""
        self._add(await load_marks(self.store, self.clock()))

    @property
    def are_shared(self) -> bool:
        """Whether other processes on the same database set marks, too."""
        return self.store.shared

    async def refresh(self, principal: Principal) -> None:
        """Load the marks that other processes set for a conversation. Keeps the known ones if that fails."""
        for name in _conversations_of(principal):
            rows = await load_marks(self.store, self.clock(), name)
            known = self._known.get(name)
            if known is not None and not known.unsaved:
                del self._known[name]
            self._add(rows)

    def _add(self, rows: list[MarkRow]) -> None:
        for row in rows:
            known = self._known.setdefault(row.conversation, _Conversation())
            known.until = row.until
            known.add(row.mark, row.call)

    def held(self, principal: Principal) -> HeldMarks:
        """Return the marks of the conversation that this principal is part of."""
        if not self._known:
            return NO_MARKS
        now, found = self.clock(), _Conversation()
        for name in _conversations_of(principal):
            known = self._known.get(name)
            if known is None or (known.until is not None and known.until <= now):
                continue
            if not found.held:
                found.held = known.held
            else:
                for mark, calls in known.held.calls.items():
                    for call in calls:
                        found.add(mark, call)
        return found.held

    def all(self) -> Mapping[str, HeldMarks]:
        """Return the marks of all marked conversations, by conversation."""
        now = self.clock()
        return {name: known.held for name, known in self._known.items() if known.until is None or known.until > now}

    def due(self, principal: Principal, tool: Tool, result: CallResult | None = None) -> tuple[Mark, ...]:
        """Return the marks that a call of this tool has to set. What a person calls by hand sets none.

        A list of names, such as those of channels, counts as untrusted only if its `result` reads like text.
        """
        cached = self._marking.get(tool.ref)
        if cached is None or cached[0] is not tool:
            if len(self._marking) >= _MOST_TOOLS:
                self.renew()
            cached = self._marking[tool.ref] = (tool, self._marks_of(principal, tool))
            if not cached[1]:
                self.unmarking[tool.ref] = tool
        if principal.by_hand:
            return ()
        marks = cached[1]
        if "untrusted" in marks and result is not None and self.flows.lists_names(tool) and not reads_like_text(result):
            return tuple(mark for mark in marks if mark != "untrusted")
        return marks

    def _marks_of(self, principal: Principal, tool: Tool) -> tuple[Mark, ...]:
        part = self.catalog.at(principal.cwd).parts.get(tool.ref.server)  # what a tool returns depends on the others
        flows = self.flows.of(tool, part.tools if part is not None else None)
        return tuple(mark for mark in MARKS if mark in flows)

    def renew(self) -> None:
        """Compute the flows of all tools again, after the owner changed them."""
        self._marking.clear()
        self.unmarking.clear()

    async def set(self, principal: Principal, ref: ToolRef, marks: tuple[Mark, ...], audit_id: int) -> None:
        """Mark a conversation. The marks hold at once; they are durable when this returns."""
        call = MarkingCall(audit_id, ref, self.clock())
        await self._save([self._set(name, marks, call) for name in _conversations_of(principal)])

    def _set(self, name: str, marks: tuple[Mark, ...], call: MarkingCall) -> _Unsaved:
        """Mark a conversation in memory. Returns what the database lacks."""
        until = None if name.startswith(_SESSION) else call.at + MARKED_FOR
        known = self._known.get(name)
        if known is None or (known.until is not None and known.until <= call.at):
            known = self._known[name] = _Conversation()
        prolongs = until is not None and known.until is not None and known.until - call.at < _PROLONG_BELOW
        if known.until is None or prolongs:
            known.until = until
        earlier = {mark: known.held.calls.get(mark, ()) for mark in marks}
        # A tool that the runtime runs itself marks when it starts and when it has ended.
        again = {mark for mark in marks if any(each.audit_id == call.audit_id for each in earlier[mark])}
        new: list[Mark] = [mark for mark in marks if mark not in again and len(earlier[mark]) < MOST_CALLS]
        for mark in new:
            known.add(mark, call)
        rows = [MarkRow(name, mark, call, known.until) for mark in new]
        return _Unsaved(name, known, rows, known.until if prolongs else None)

    async def _save(self, changes: Sequence[_Unsaved]) -> None:
        """Store marks that already hold. They hold until the crib stops if that fails."""
        for each in changes:
            if not each.rows and each.until is None:
                continue
            each.known.unsaved += 1
            try:
                if each.rows:
                    await save_marks(self.store, each.rows)
                if each.until is not None:
                    await prolong_marks(self.store, each.name, each.until)
                each.known.unsaved -= 1
            except Unavailable as error:
                logger.warning("Could not store the marks of %s: %s", each.name, error)

    async def copy(self, old: Principal, new: Principal) -> None:
        """Give a new session the marks of the principal whose history it starts with, or that started it."""
        if self.are_shared:
            await self.refresh(old)
            await self.refresh(new)
        (*_, name), held = _conversations_of(new), self.held(old)
        if name.startswith(_SESSION) and name not in _conversations_of(old):
            changes = [self._set(name, (mark,), call) for mark, calls in held.calls.items() for call in calls]
            await self._save(changes)

    async def clear(self, conversation: str) -> HeldMarks:
        """Remove the marks of a conversation and return them. Raises `NotFound` (`marks.unknown`)."""
        held = self.all().get(conversation)
        if held is None:
            hint = "List the conversations with `toolcrib rules marks`."
            raise NotFound("marks.unknown", f"Conversation {conversation!r} has no marks.", hint)
        await delete_marks(self.store, conversation)
        self._known.pop(conversation, None)
        return held

    async def forget(self, session: str) -> None:
        """Remove the marks of a deleted session, unless something that it started still has them."""
        if await has_started(self.store, session):
            return
        await delete_marks(self.store, f"{_SESSION}{session}")
        self._known.pop(f"{_SESSION}{session}", None)
