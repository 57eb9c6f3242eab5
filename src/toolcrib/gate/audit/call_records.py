"""Writes the records of calls.

A call writes two records with the same `call`: its intent before it starts and its outcome before it is answered. A
refused call writes an outcome only. Members common to both are encoded once. Must never contain a secret that the
redactor can detect, nor let a value that is not JSON keep a call from being recorded.
"""

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple, Self, TypeAlias

from toolcrib.base.masking.values import Redactor, bounded_name
from toolcrib.gate.audit.chain import Chain, Entry, columns_of, current_moment, stored
from toolcrib.gate.audit.unfinished import OwedOutcomes
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject, dumps, encoded_members
from toolcrib.model.marks import Mark
from toolcrib.model.observing import CallEnd, CallEnding, CallObserver
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, Tool, ToolRef
from toolcrib.store.batch import ConstraintError, Fence
from toolcrib.store.engine import Store

Phase = Literal["intent", "outcome"]
_MOST_FORMS = 4096
_NOT_MADE: JsonObject = {"isError": True, "abandoned": True, "durationMs": 0.0}
"""The ending of a call whose intent could not be recorded, but may be in the database."""

_Of: TypeAlias = tuple[str, Principal, ToolRef, Tool | None, Decision, str | None]


class _Form(NamedTuple):
    """The shared members of records with the same tool, principal, decision and interface.

    Members before and after those of the arguments, and the columns apart from `at` and `phase`.
    """

    of: _Of
    before: bytes
    after: bytes
    columns: tuple[str | None, ...]

    @classmethod
    def make(cls, *of: *_Of) -> Self:
        """Encode a form. Values that are not JSON are replaced, and a long unknown name is truncated."""
        door, principal, ref, tool, decision, rules_version = of
        before, first = encoded_members({
            "door": door,
            "principal": principal.to_json(),
            "server": ref.server if tool else bounded_name(ref.server),
            "tool": ref.tool if tool else bounded_name(ref.tool),
            "definitionHash": tool.definition_hash if tool else None,
        })  # fmt: skip
        decided: JsonObject = {"decision": decision.verdict, "rules": decision.rules}
        if rules_version is not None:
            decided["rulesVersion"] = rules_version
        if decision.marks:
            decided["marks"] = decision.marks.audit_ids()
        after, second = encoded_members(decided)
        return cls(of, before, after, stored(columns_of(first | second))[2:])


class CallRecords:
    """Creates the records of calls in the chain of an open audit log."""

    chain: Chain

    def __init__(self, store: Store, redactor: Redactor, observer: CallObserver | None, owed: OwedOutcomes) -> None:
        self.observer = observer
        self._owed = owed
        self.fence: Fence | None = None
        """The run of this crib on a shared database."""
        self.held_epoch: Callable[[str], int | None] = lambda _: None
        """Returns the epoch that this crib holds of a session that it runs."""
        self._store = store
        self._redactor = redactor
        self._forms: dict[int, _Form] = {}

    def create(
        self,
        call: str,
        door: str,
        principal: Principal,
        ref: ToolRef,
        tool: Tool | None,
        arguments: JsonObject,
        canonical: bytes,
        decision: Decision,
        *,
        rules: str | None = None,
        approval: str | None = None,
        program: str | None = None,
    ) -> "CallRecord":
        """Return the records of one call. `tool` is None if there is no tool of that name.

        `rules` is the version of the rules that decided it, `program` the id of the program that makes it.
        """
        form = self._form(door, principal, ref, tool, decision, rules)
        digest = sha256(canonical).hexdigest().encode()
        shown = self._redactor.shown(arguments, canonical)
        members = b'"call":%b,%b,"argumentsDigest":"%b","arguments":%b,%b' % (
            dumps(call), form.before, digest, shown, form.after,
        )  # fmt: skip
        if approval is not None:
            members += b"," + encoded_members({"approvalId": approval})[0]
        if program is not None:
            members += b"," + encoded_members({"programId": program})[0]
        return CallRecord(
            self._store, self.chain, members, form, call, shown, self.observer, self._fence_of(principal), self._owed
        )

    def _fence_of(self, principal: Principal) -> Fence | None:
        """Return the fence of a principal's calls: a session's calls end when another crib runs the session."""
        epoch = None if principal.session is None or self.fence is None else self.held_epoch(principal.session)
        if self.fence is None or epoch is None:
            return self.fence
        return self.fence._replace(session=principal.session, epoch=epoch)

    def _form(self, *of: *_Of) -> "_Form":
        """Return the shared members of such calls, cached while the same decision object is passed."""
        decision = of[4]
        kept = self._forms.get(id(decision))
        if kept is None or kept.of != of:
            kept = _Form.make(*of)
            if of[3] is not None:  # unknown names are not cached: they are unbounded and may be long
                if len(self._forms) >= _MOST_FORMS:
                    self._forms.clear()
                self._forms[id(decision)] = kept
        return kept


class CallRecord:
    """The records of one call. The observer is notified once they are complete, or could not be completed."""

    __slots__ = (
        "_arguments", "_call", "_chain", "_fence", "_form", "_members", "_number", "_observer", "_owed", "_store",
    )  # fmt: skip

    def __init__(
        self,
        store: Store,
        chain: Chain,
        members: bytes,
        form: _Form,
        call: str,
        arguments: bytes,
        observer: CallObserver | None,
        fence: Fence | None,
        owed: OwedOutcomes,
    ) -> None:
        self._owed = owed
        self._store = store
        self._chain = chain
        self._fence = fence
        self._members = members
        self._form = form
        self._call = call
        self._arguments = arguments
        self._observer = observer
        self._number: int | None = None

    async def intent(self) -> int:
        """Record that the call is about to be made. Returns the number of the record once it is durable.

        Raises `Unavailable` (`audit.unavailable`) if it could not be recorded: then the call must not be made.
        """
        entry = self._entry("intent")
        number = self._store.append_now(self._chain, entry)
        try:
            self._number = number if number is not None else await self._append(entry, _NOT_MADE)
        except Unavailable as error:
            self._report("refused", code="audit.unavailable")
            raise Unavailable("audit.unavailable", f"The call was not made. {error.message}") from error
        except asyncio.CancelledError:
            self.abandoned(0.0)
            raise
        return self._number

    async def outcome(
        self,
        *,
        is_error: bool,
        duration_ms: float,
        digest: str | None = None,
        result: CallResult | JsonObject | None = None,
        refused: str | None = None,
        marks: Sequence[Mark] = (),
    ) -> int:
        """Record how the call ended. Returns the number of the record once it is durable.

        `digest` is that of the whole result, if the caller received a part of it. Only the observer gets `result`, and
        the error code `refused` of a call that did not run. `marks` are those that the call set.
        """
        outcome: JsonObject = {"isError": is_error, "durationMs": duration_ms}
        if marks:
            outcome["setMarks"] = list(marks)
        if digest is not None:
            outcome["resultDigest"] = digest
        entry = self._entry("outcome", outcome)
        number = self._store.append_now(self._chain, entry)
        try:
            if number is None:
                number = await self._append(entry, outcome)
        except Unavailable as error:
            self._report("error", duration_ms, code="audit.unavailable")
            message = f"The call was made, but its outcome could not be recorded. {error.message}"
            raise Unavailable("audit.unavailable", message) from error
        except asyncio.CancelledError:
            self._report("abandoned", duration_ms)
            raise
        ending: CallEnding = "refused" if refused is not None else "error" if is_error else "ok"
        self._report(ending, duration_ms, code=refused, result=result)
        return number

    async def refused(self, code: str) -> int:
        """Record that the call was not made, with the error code, since not every refusal comes from a rule."""
        entry = self._entry("outcome", {"isError": True, "refused": code, "durationMs": 0.0})
        try:
            self._number = await self._append(entry, _NOT_MADE)
        except Unavailable as error:
            raise Unavailable("audit.unavailable", f"The call was not made. {error.message}") from error
        finally:
            self._report("refused", code=code)
        return self._number

    def abandoned(self, duration_ms: float) -> None:
        """Record a cancelled or failed call without waiting, since there may be no time left."""
        ending: JsonObject = {"isError": True, "abandoned": True, "durationMs": duration_ms}
        self._start(self._entry("outcome", ending), ending).add_done_callback(_ignore_error)
        self._report("abandoned", duration_ms)

    async def _append(self, entry: Entry, ending: JsonObject) -> int:
        try:
            return await self._start(entry, ending)
        except ConstraintError as error:
            raise Unavailable("audit.unavailable", "Another node has taken over the work of this one.") from error

    def _start(self, entry: Entry, ending: JsonObject) -> "asyncio.Future[int]":
        """Append a record. If that fails, the call gets an outcome with this ending once the database is back."""

        def owe(error: Exception) -> None:
            if isinstance(error, Unavailable):
                self._owed.add(self._call, ending)

        return self._store.append(self._chain, entry, self._fence, owe)

    def _report(
        self,
        ending: CallEnding,
        duration_ms: float = 0.0,
        *,
        code: str | None = None,
        result: CallResult | JsonObject | None = None,
    ) -> None:
        if self._observer is not None:
            door, principal, ref, tool, decision, _ = self._form.of
            verdict, number = decision.verdict, self._number
            self._observer.ended(
                CallEnd(
                    self._call, door, principal, ref, tool, verdict, ending, code, number, duration_ms,
                    self._arguments, result,
                )
            )  # fmt: skip

    def _entry(self, phase: Phase, ending: JsonObject | None = None) -> Entry:
        at = current_moment()
        members = b'"at":"%b","phase":"%b",%b' % (at.encode(), phase.encode(), self._members)
        if ending is not None:
            members += b"," + dumps(ending)[1:-1]
        return members, (at, phase, *self._form.columns)


def _ignore_error(appended: "asyncio.Future[int]") -> None:
    """Mark an error as handled: the outcome is owed."""
    appended.exception()
