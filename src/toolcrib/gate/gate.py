"""The path of a call: resolve ▸ validate ▸ decide ▸ approve ▸ record the intent ▸ run ▸ record the outcome.

The order is fixed: nothing runs before its intent is durable, and no answer is returned before its outcome is. Listings
use the same decisions, so a tool that can be called is always listed. Prompts and resources follow their server: a
principal that sees the server may read them, and each read writes the same two records.

Must never call a source in any other way, and never let an internal failure end in a call.
"""

import asyncio
import importlib
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio

from toolcrib.base.deadlines import Deadlines, pause_while_asking
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.stop_switch import StopSwitch, stopped
from toolcrib.gate.admission import Admission, ApprovalPending, GateCall, InSession
from toolcrib.gate.approvals.consent import HANDLE, Consent, waiting_result
from toolcrib.gate.audit.actor import run_as_actor
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.call_records import CallRecord
from toolcrib.gate.catalog.catalog import Catalog
from toolcrib.gate.catalog.naming import Form
from toolcrib.gate.changed_policy import decide_again, see_again
from toolcrib.gate.marks import ConversationMarks
from toolcrib.gate.policy.decide import Grants
from toolcrib.gate.policy.limits import Limits
from toolcrib.gate.policy.permissions import RuleBook
from toolcrib.gate.principals import Door
from toolcrib.gate.programs.interpreter import ProgramInterpreter
from toolcrib.gate.programs.planned_call import ProgramCall
from toolcrib.gate.refusals import absent_error, error_sentence
from toolcrib.gate.results.fitting import ResultBudget
from toolcrib.gate.results.kept import KeptResults
from toolcrib.gate.shortened_tools import ShortenedTools
from toolcrib.gate.skills import Skills
from toolcrib.gate.touched_paths import HomeGuard
from toolcrib.gate.view import Listing, PrincipalView, PrincipalViews, encode_arguments, fill_defaults
from toolcrib.model.errors import Denied, InvalidRequest, NotFound, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.marks import Mark
from toolcrib.model.observing import Trace
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.sources import (
    CallContext,
    Client,
    ConditionalSource,
    ContentMethod,
    ContentSource,
    ReportProgress,
    RunCall,
)
from toolcrib.model.tools import CallResult, ContentItem, Tool, ToolRef
from toolcrib.nodes.policy_epoch import PolicyEpoch

if TYPE_CHECKING:
    from toolcrib.gate.policy import explain
    from toolcrib.gate.policy.explain import Explanation
    from toolcrib.gate.search.search import ToolSearch
else:
    explain = lazy_module("toolcrib.gate.policy.explain")

_READS = frozenset({"resources/read", "prompts/get", "skills/get", "tasks/get"})
"""Content methods that are audited. The others return nothing a model could act on."""

_LAST_WORDS = 2.0
"""Seconds in which an abandoned call stores its marks."""
_UNSETTLED = "the decision failed. See the log."

logger = logging.getLogger(__name__)

Spend = Callable[[str], Awaitable[bool]]
Absence = Callable[[Principal, ToolRef], Awaitable[ToolcribError | None]]


class CallOutcome(NamedTuple):
    """The answer to a call: the result, the audit number of its intent, and its duration.

    `edited` holds the arguments that ran, as canonical JSON, if a person changed them before approving the call. If
    `is_shortened` is set, the whole result is kept for the caller to read on.
    """

    result: CallResult
    audit_id: int
    duration_ms: float
    edited: bytes | None = None
    is_shortened: bool = False


class Gate:
    """Lists and calls tools for principals, and reads the prompts and resources of their servers."""

    def __init__(
        self,
        catalog: Catalog,
        audit: Audit,
        *,
        default_timeout: float,
        rules: RuleBook,
        grants: Callable[[Principal], Grants],
        limits: Limits,
        consent: Consent,
        home: HomeGuard,
        stop_switch: StopSwitch,
        absence: Absence,
        marks: ConversationMarks,
        spend: Spend,
        shortened: ShortenedTools,
        policy: PolicyEpoch | None = None,
        search_model: Path | None = None,
    ) -> None:
        """`home` detects calls that touch the crib's home. While `stop_switch` is set, every call is refused.

        `absence` returns why a tool that the principal may see is missing, such as a disabled server. `marks` follows
        what conversations have read, and `spend` counts a call against the limited rule that allowed it. `shortened`
        has the tools that clients list in a shorter form. `policy`
        notices permissions that other nodes changed; None if there are no other nodes. With
        `search_model`, the search also ranks by meaning.
        """
        self._policy = policy
        self._stop_switch = stop_switch
        self._catalog = catalog
        self._names = catalog.names
        self._records = audit.call_records
        self._observer = audit.call_records.observer
        self._default_timeout = default_timeout
        self._limits = limits
        self.consent = consent
        self._home = home
        self._absence = absence
        self.marks = marks
        self._unmarking = marks.unmarking
        self._spend = spend
        self.shortened = shortened
        self._deadlines = Deadlines()
        self._search_model = search_model
        self.results = KeptResults()
        self.interpreter = ProgramInterpreter()
        self.views = PrincipalViews(catalog, rules, grants, home, marks.held)
        self._view = self.views.of
        self._admission = Admission(self._view, audit.call_records, consent)
        self.skills = Skills(self._view, self.request, audit, consent)
        self._in_flight: dict[str, ToolRef] = {}
        self._is_stopping = False
        self._call_ids = (f"{audit.run}-{number}" for number in itertools.count(1))

    @property
    def in_flight(self) -> tuple[ToolRef, ...]:
        """Return the calls and reads in flight."""
        return tuple(self._in_flight.values())

    @cached_property
    def search(self) -> "ToolSearch":
        """The search in listings. Its words and synonyms are loaded with the first use, not with the crib."""
        return importlib.import_module("toolcrib.gate.search.search").open_search(self._search_model)

    def stop(self) -> None:
        """Refuse every new call. Calls in flight continue."""
        self._is_stopping = True

    def listing(self, principal: Principal) -> Listing:
        """Return the tools this principal currently sees."""
        return self._view(principal).listing

    def listed(self, principal: Principal) -> Sequence[Tool]:
        """Return the same tools as MCP clients and sessions list them: some with shortened descriptions."""
        return self.shortened.listed(self.listing(principal).tools)

    def own_tools(self, principal: Principal) -> tuple[Tool, ...]:
        """Return the runtime's own tools that the session may use."""
        return self._view(principal).own_tools

    def servers(self, principal: Principal) -> frozenset[str]:
        """Return the servers this principal currently sees. Cached per version, as are the lists below."""
        return self._view(principal).servers

    def may_know(self, principal: Principal, server: str, tool: str | None = None) -> bool:
        """Return whether a principal may learn of a server or tool, even if its offering is not known yet."""
        if principal.is_owner:
            return True
        view = self._view(principal)
        return view.may_know(server) if tool is None else view.would_see(ToolRef(server, tool))

    def prompts(self, principal: Principal) -> tuple[ContentItem, ...]:
        """Return the prompts this principal currently sees."""
        return self._view(principal).prompts

    def resources(self, principal: Principal) -> tuple[ContentItem, ...]:
        """Return the resources this principal currently sees."""
        return self._view(principal).resources

    def templates(self, principal: Principal) -> tuple[ContentItem, ...]:
        """Return the resource templates this principal currently sees."""
        return self._view(principal).templates

    def name(self, form: Form, ref: ToolRef) -> str:
        """Return the exposed name of a tool or prompt."""
        return self._names.name(form, ref)

    def server(self, principal: Principal, name: str) -> str:
        """Return the canonical name of a server, from any name that its definition has in the principal's project."""
        return self._catalog.at(principal.cwd).server(name)

    def ref_of_name(self, form: Form, name: str) -> ToolRef | None:
        """Return the tool or prompt with this exposed name. Does not check whether a principal may see it."""
        return self._names.refs[form].get(name)

    def decision(self, principal: Principal, ref: ToolRef) -> Decision:
        """Return the decision on a call of the tool by this principal, with reasons."""
        view = self._view(principal)
        return view.decision(view.canonical(ref))

    def explain(
        self, principal: Principal, ref: ToolRef, arguments: JsonObject | None = None, server_note: str | None = None
    ) -> "Explanation":
        """Explain why a call would be allowed, asked for or refused, and what would change that.

        `server_note` describes a problem with the tool's server. Suggestions only contain names the principal may know.
        """
        view = self._view(principal)
        ref = view.canonical(ref)
        known = view.snapshot.tools if principal.is_owner else (tool.ref for tool in view.listing.tools)
        source = view.snapshot.sources.get(ref.server)
        lack = source.lacks(ref.tool) if isinstance(source, ConditionalSource) else None
        return explain.explain(view.question(ref, arguments), known, lack or server_note)

    def find_visible(self, principal: Principal, ref: ToolRef) -> tuple[Tool | None, Decision]:
        """Return the tool, or None if this principal does not see it, and the decision on it."""
        view = self._view(principal)
        ref = view.canonical(ref)
        decision = view.decision(ref)
        return (view.snapshot.tools[ref] if decision.visible else None), decision

    def find(self, principal: Principal, ref: ToolRef) -> Tool:
        """Return a tool this principal sees. Raises `NotFound` for a hidden tool, or `Denied` for the owner."""
        tool, decision = self.find_visible(principal, ref)
        if tool is None:
            raise absent_error(self._view(principal), decision, principal)
        return tool

    def end_calls(self, failure: Callable[[], Exception]) -> None:
        """End every running call. Each caller receives the error that `failure` returns."""
        self._deadlines.end_all(failure)

    def _refuse_if_stopped(self) -> None:
        if self._stop_switch.state is not None:
            raise stopped(self._stop_switch.state)

    @property
    def _epoch(self) -> int:
        """The epoch of the permissions in force, for a decision that is made now."""
        return self._policy.loaded if self._policy is not None else 0

    async def look_again(self) -> bool:
        """Load the permissions that other nodes changed, before something is refused. Returns whether there are any."""
        return self._policy is not None and await self._policy.refresh()

    async def _view_with(self, principal: Principal, server: str) -> PrincipalView:
        """Return the view of a principal, loaded again if the server is missing in it."""
        view = self._view(principal)
        if view.snapshot.server(server) not in view.servers and await self.look_again():
            view = self._view(principal)
        return view

    async def why_absent(self, principal: Principal, ref: ToolRef, error: ToolcribError) -> ToolcribError:
        """Return the reason why a tool is missing, if the principal may know it, otherwise `error`."""
        if not isinstance(error, NotFound) or not self._view(principal).would_see(ref):
            return error
        return await self._absence(principal, ref) or error

    async def call(
        self,
        principal: Principal,
        ref: ToolRef,
        arguments: JsonObject,
        *,
        door: Door,
        progress: ReportProgress | None = None,
        client: Client | None = None,
        session: InSession | None = None,
        handle: str | None = None,
        budget: ResultBudget | None = None,
        program: ProgramCall | None = None,
        trace: Trace | None = None,
    ) -> CallOutcome:
        """Call a tool for this principal. `client` is what the MCP client behind it can do for the server meanwhile.

        With `handle`, the call does not wait for an approval: `HANDLE` opens one and returns its id, and the id returns
        its outcome. `budget` shortens a larger result, `program` makes the call and has the approval of its set, and
        `trace` is the caller's trace context.

        Tool failures and invalid arguments are returned as error results that the model can read. Raises `NotFound` for
        a tool that does not exist for the principal, `Denied` for a visible tool that may not be called now, and
        `Unavailable` (`audit.unavailable`) if the call could not be recorded.
        """
        if self._is_stopping:
            raise Unavailable("crib.stopping", "The crib is stopping and accepts no new calls.")
        epoch, encoded, view = self._epoch, encode_arguments(arguments), self._view(principal)
        ref = view.canonical(ref)
        decision = view.decision_on(ref, arguments, encoded)
        if decision.verdict != "allow" or decision.spends or (decision.needs_arguments and self.marks.are_shared):
            view, decision = await self._settle(principal, ref, arguments, encoded, decision)
        tool = view.snapshot.tools.get(ref)
        if tool is not None and (decision.needs_arguments or decision.verdict == "ask" or handle is not None):
            arguments, encoded = fill_defaults(tool, arguments, encoded)
        call_id = next(self._call_ids)
        made = (call_id, door, principal, ref, tool, arguments, encoded, decision)
        record = self._records.create(*made, rules=view.rules_version, program=program and program.id)
        trace = self._start(call_id, trace, tool)
        call = GateCall(ref, door, CallContext(principal, call_id, progress, client, trace), record, session)
        call.prepare, call.handle = session and session.prepare, handle
        call.budget, call.program, call.arguments = budget, program, encoded
        call.is_approved, call.epoch = decision.spends is not None, epoch
        try:
            tool, run = await self._admit(call, view, decision, arguments, encoded)
        except InvalidRequest as error:
            return await _answer_without_running(call.record, error)
        except ApprovalPending as waits:
            return CallOutcome(waiting_result(waits.approval), await call.record.refused("approval.required"), 0.0)
        except ToolcribError as error:
            await call.record.refused(error.code)
            raise
        except asyncio.CancelledError:
            call.record.abandoned(0.0)
            raise
        except Exception as error:  # boundary: if a deciding part fails, the call is refused and recorded
            logger.exception("Could not decide on a call of %s.", ref)
            await call.record.refused("policy.denied")
            raise Denied("policy.denied", f"{ref} was refused: {_UNSETTLED}") from error
        return await self._run(tool, run, call)

    async def _admit(
        self, call: GateCall, view: PrincipalView, decision: Decision, arguments: JsonObject, encoded: bytes
    ) -> tuple[Tool, RunCall]:
        """Return the tool and its run, after all checks and the approval. Raises if the call is not allowed."""
        self._refuse_if_stopped()
        try:
            tool, run = await _check_call(call, view, decision, arguments, encoded)
        except NotFound as error:
            raise await self.why_absent(call.context.principal, call.ref, error) from None
        if decision.verdict != "allow" or call.handle not in (None, HANDLE):  # the id may belong to another call
            tool, run = await self._admission.obtain(call, tool, run, decision, encoded)
        if self._limits.limits:
            await self._count(call, tool)
        return tool, run

    async def _settle(
        self, principal: Principal, ref: ToolRef, arguments: JsonObject, encoded: bytes, decision: Decision
    ) -> tuple[PrincipalView, Decision]:
        """Return the decision with changes and marks of other processes, after counting it against a limited rule."""
        if decision.verdict != "allow" and await self.look_again():
            decision = self._view(principal).decision_on(ref, arguments, encoded)
        if self.marks.are_shared:
            await self.marks.refresh(principal)
            decision = self._view(principal).decision_on(ref, arguments, encoded)
        while decision.spends is not None and not await self._spend(decision.spends):
            decision = self._view(principal).decision_on(ref, arguments, encoded)
        return self._view(principal), decision

    async def refuse(self, principal: Principal, ref: ToolRef, arguments: JsonObject, *, door: Door) -> None:
        """Record a call that was refused elsewhere because the caller has no such tool."""
        view = self._view(principal)
        ref = view.canonical(ref)
        tool, decision = view.snapshot.tools.get(ref), view.decision(ref)
        call_id, encoded = next(self._call_ids), canonical(arguments)
        record = self._records.create(
            call_id, door, principal, ref, tool, arguments, encoded, decision, rules=view.rules_version
        )
        await record.refused("tool.unknown")

    async def _count(self, call: GateCall, tool: Tool) -> None:
        """Count the call. Raises `Denied` if its limit is reached."""
        refusal = await self._limits.take(call.context.principal, call.ref, tool.names)
        if refusal is not None:
            raise Denied("limit.reached", refusal)

    async def request(
        self,
        principal: Principal,
        server: str,
        method: ContentMethod,
        params: JsonObject,
        *,
        door: Door,
        progress: ReportProgress | None = None,
        client: Client | None = None,
        trace: Trace | None = None,
    ) -> JsonObject:
        """Send a content request to a server, using the server's own names, and return its full answer.

        Raises `NotFound` for a server that does not exist for the principal or offers no content, `ProtocolError` for
        an error answer of the server, and `Unavailable` if it cannot be reached or the request cannot be recorded.
        """
        epoch, view = self._epoch, await self._view_with(principal, server)
        server = view.snapshot.server(server)
        source = view.snapshot.sources.get(server)
        decision = view.whole_server(server)
        call_id = next(self._call_ids)
        ref = ToolRef(server, method)
        record = self._records.create(
            call_id, door, principal, ref, None, params, canonical(params), decision, rules=view.rules_version
        )
        if not isinstance(source, ContentSource) or server not in view.servers:
            await record.refused("server.unknown")
            raise NotFound("server.unknown", f'Server "{server}" not found.')
        if self._home.is_named(ref, params, principal):
            await record.refused("policy.denied")
            reason = "the crib's home is closed to agents, in every mode."
            raise Denied("policy.denied", f"The request to {server} was refused: {reason}")
        try:
            self._refuse_if_stopped()
        except Denied as error:
            await record.refused(error.code)
            raise
        ask = partial(source.request, method, params)
        if method not in _READS:
            return await self._with_deadline(ref, ask, CallContext(principal, call_id, progress, client, trace))
        context = CallContext(principal, call_id, progress, client, self._start(call_id, trace, source))
        mark = partial(self._mark, principal, Tool(ref, "", {}, source.kind), await record.intent())
        started = time.perf_counter_ns()
        try:
            if self._policy is not None and self._policy.is_outdated(epoch):
                await see_again(self._policy, self._view, principal, server)
            self._refuse_if_stopped()
            result = await self._with_deadline(ref, ask, context)
        except asyncio.CancelledError:
            record.abandoned(_since(started))
            with anyio.move_on_after(_LAST_WORDS, shield=True):
                await mark()
            raise
        except BaseException:  # boundary: a failed read marks, as its error has text of the server, and is recorded
            await record.outcome(is_error=True, duration_ms=_since(started), marks=await mark())
            raise
        await record.outcome(is_error=False, duration_ms=_since(started), result=result, marks=await mark())
        return result

    def _start(self, call_id: str, trace: Trace | None, target: Tool | ContentSource | None) -> Trace | None:
        """Notify the observer of a call to this tool or source. Returns the trace to send to the server."""
        if self._observer is None:
            return trace
        return self._observer.started(call_id, trace, to_upstream=target is not None and target.kind == "upstream")

    async def _with_deadline(
        self, ref: ToolRef, ask: Callable[[CallContext], Awaitable[JsonObject]], context: CallContext
    ) -> JsonObject:
        self._in_flight[context.call_id] = ref
        try:
            with self._deadlines.start(self._default_timeout) as deadline:
                return await ask(pause_while_asking(context, deadline))
        except TimeoutError:
            message = f"{ref} did not answer within {self._default_timeout:g} s and was stopped."
            raise Unavailable("server.timeout", message) from None
        finally:
            del self._in_flight[context.call_id]

    async def _run(self, tool: Tool, run: RunCall, call: GateCall) -> CallOutcome:
        record, context = call.record, call.context
        if tool.kind == "builtin":  # these change the crib itself; the changes are recorded under their caller
            run = run_as_actor(run, call.context.principal, call.door)
        audit_id = await record.intent()
        if self._policy is not None and self._policy.is_outdated(call.epoch):
            await decide_again(self._policy, self._view, tool, call)
        if call.prepare is not None:  # the runtime delivers the result
            await self._mark(context.principal, tool, audit_id)
        started = time.perf_counter_ns()
        timeout = tool.timeout or self._default_timeout
        self._in_flight[context.call_id] = tool.ref
        try:
            self._refuse_if_stopped()  # the owner may have set the stop switch while the intent was recorded
            # Sources end cancelled calls themselves, so cancelling the task is enough; a cancel scope costs much more.
            with self._deadlines.start(timeout) as deadline:
                result = await run(pause_while_asking(context, deadline))
        except TimeoutError:
            result = CallResult.error(f"{tool.ref} did not answer within {timeout:g} s and was stopped.")
        except BaseException:  # boundary: a cancelled or failed call records its outcome first
            record.abandoned(_since(started))
            with anyio.move_on_after(_LAST_WORDS, shield=True):  # its progress and questions had text of the server
                await self._mark(context.principal, tool, audit_id)
            raise
        finally:
            del self._in_flight[context.call_id]
        duration = _since(started)
        marks: tuple[Mark, ...] = ()
        if self._unmarking.get(tool.ref) is not tool:
            marks = await self._mark(context.principal, tool, audit_id, result)
        digest = None
        if call.budget is not None:
            result, digest = call.budget.fit(self.results, context.principal, tool, result)
            if digest is not None:
                await self.results.share()
        await record.outcome(is_error=result.is_error, duration_ms=duration, digest=digest, result=result, marks=marks)
        return CallOutcome(result, audit_id, duration, call.edited, digest is not None)

    async def _mark(
        self, principal: Principal, tool: Tool, audit_id: int, result: CallResult | None = None
    ) -> tuple[Mark, ...]:
        """Mark the conversation, before the result is delivered. Returns the marks that the call sets."""
        if marks := self.marks.due(principal, tool, result):
            await self.marks.set(principal, tool.ref, marks, audit_id)
        return marks


async def _check_call(
    call: GateCall, view: PrincipalView, decision: Decision, arguments: JsonObject, encoded: bytes
) -> tuple[Tool, RunCall]:
    """Return the tool and its run, after checking visibility, the agent's budget and the arguments."""
    tool = view.snapshot.tools.get(call.ref)
    if tool is None or not decision.visible:
        raise absent_error(view, decision, call.context.principal)
    if call.session is not None and call.session.beyond_budget is not None:
        refusal = await call.session.beyond_budget()
        if refusal is not None:
            raise Denied("limit.reached", refusal)
    prepare = call.prepare or view.snapshot.sources[call.ref.server].prepare
    return tool, prepare(call.ref.tool, arguments, encoded)


async def _answer_without_running(record: CallRecord, error: InvalidRequest) -> CallOutcome:
    """Return an error result without running anything. Both records are still written."""
    audit_id = await record.intent()
    await record.outcome(is_error=True, duration_ms=0.0, refused=error.code)
    return CallOutcome(CallResult.error(error_sentence(error)), audit_id, 0.0)


def _since(started: int) -> float:
    """Return elapsed milliseconds with three decimals, without `round`, which takes longer than many tools."""
    return (time.perf_counter_ns() - started) // 1_000 / 1_000
