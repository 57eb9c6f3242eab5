"""The road of a call: resolve ▸ validate ▸ decide ▸ ask a person ▸ record the intent ▸ run ▸ record the outcome.

In this order: nothing runs before its intent is durable, nothing is answered before its outcome is. Listing asks the
same decisions, so what can be called is always among what is listed. Prompts and resources belong to their server: who
sees the server may read them, and reading leaves the same two records.

Above: every door (MCP endpoint, REST, library). Below: `view` and `consent` here, the catalog, the audit. It must never
call a source in any other way, and never let a failure of its own parts end in a call.
"""

import asyncio
import itertools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import orjson

from toolcrib.audit import Audit, CallRecord
from toolcrib.catalog.catalog import Catalog
from toolcrib.catalog.naming import Form
from toolcrib.errors import Denied, InvalidRequest, NotFound, ToolcribError, Unavailable
from toolcrib.gate.clocks import Clocks
from toolcrib.gate.consent import HANDLE, Consent
from toolcrib.gate.thinking import unhurried
from toolcrib.gate.view import Listing, NoView, View
from toolcrib.model.approvals import Approval, Question
from toolcrib.model.json import JsonObject, canonical
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
from toolcrib.policy.decide import Grants
from toolcrib.policy.explain import Explanation, explain
from toolcrib.policy.limits import Limits
from toolcrib.policy.rules import Rules
from toolcrib.principals import Door

_VIEWS_KEPT = 256
"""How many askers' views are kept; the least recently used one is made anew when needed."""
_READS = frozenset({"resources/read", "prompts/get"})
"""What is asked of a server beside tools and leaves records; the rest gives nothing that a model could act on."""

_UNSETTLED = "whether it may be called could not be settled; the log says why."

logger = logging.getLogger(__name__)


class Called(NamedTuple):
    """The answer to a call: the result, the number of its intent in the audit, how long it took."""

    result: CallResult
    audit_id: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class InSession:
    """What is particular to a call that an agent makes in its session.

    `tool_call` is the number it has there, `patience` for how many seconds a person is waited for. `beyond_budget`
    counts the call, and says why it must not be made where the agent has used up what it may. Where the agent's runtime
    runs the tool itself, `prepare` stands in for the tool's source: what it gives waits for that run to end.
    """

    tool_call: str
    patience: float
    beyond_budget: Callable[[], str | None] = lambda: None
    prepare: Callable[[str, JsonObject, bytes], RunCall] | None = None


class _Waits(Exception):
    """A person has yet to answer, and the client will come back."""

    def __init__(self, approval: Approval) -> None:
        super().__init__(approval.id)
        self.approval = approval


@dataclass(slots=True)
class _Call:
    """A call on its way. `record` is that of the call as it was asked for and, once a person said so, as approved."""

    ref: ToolRef
    door: Door
    context: CallContext
    record: CallRecord
    session: InSession | None = None
    handle: str | None = None

    @property
    def principal(self) -> Principal:
        return self.context.principal


class Gate:
    """Lists and calls tools for principals, and reads what else their servers offer."""

    def __init__(
        self,
        catalog: Catalog,
        audit: Audit,
        *,
        default_timeout: float,
        rules: Callable[[], Rules] = Rules,
        grants: Callable[[Principal], Grants] = lambda _: Grants(),
        limits: Callable[[], Limits] = Limits,
        consent: Consent | None = None,
    ) -> None:
        """Without `consent` there is nobody who could be asked, and what would have to be is refused."""
        self._catalog = catalog
        self._audit = audit
        self._default_timeout = default_timeout
        self._rules = rules
        self._grants = grants
        self._limits = limits
        self._consent = consent
        self._clocks = Clocks()
        self._views: OrderedDict[Principal, View] = OrderedDict()
        self._latest: tuple[Principal | None, View | None] = None, None
        run = secrets.token_hex(6)
        self._call_ids = (f"{run}-{number}" for number in itertools.count(1))

    def listing(self, principal: Principal) -> Listing:
        """The tools this asker sees now."""
        return self._view(principal).listing

    def own_tools(self, principal: Principal) -> tuple[Tool, ...]:
        """The tools of its own that the runtime of a session may have."""
        return self._view(principal).own_tools

    def servers(self, principal: Principal) -> frozenset[str]:
        """The servers this asker sees now. Equal versions of equal askers give the same object, also below."""
        return self._view(principal).servers

    def prompts(self, principal: Principal) -> tuple[ContentItem, ...]:
        """The prompts this asker sees now."""
        return self._view(principal).prompts

    def resources(self, principal: Principal) -> tuple[ContentItem, ...]:
        """The resources this asker sees now."""
        return self._view(principal).resources

    def templates(self, principal: Principal) -> tuple[ContentItem, ...]:
        """The templates of resources this asker sees now."""
        return self._view(principal).templates

    def name(self, form: Form, ref: ToolRef) -> str:
        """The name a tool or prompt is shown under."""
        return self._catalog.names.name(form, ref)

    def named(self, form: Form, name: str) -> ToolRef | None:
        """The tool or prompt that a shown name means; whether the asker may see it is for others here to say."""
        return self._catalog.names.ref(form, name)

    def decision(self, principal: Principal, ref: ToolRef) -> Decision:
        """What would happen if this asker called the tool now, and why."""
        return self._view(principal).decision(ref)

    def explain(
        self, principal: Principal, ref: ToolRef, arguments: JsonObject | None = None, server_note: str | None = None
    ) -> Explanation:
        """Why a call of the tool would be allowed, asked for or refused, and what would change that.

        `server_note` says what is wrong with the tool's server, if something is. Only names that the asker may know
        are suggested.
        """
        view = self._view(principal)
        known = view.snapshot.tools if principal.is_owner else (tool.ref for tool in view.listing.tools)
        source = view.snapshot.sources.get(ref.server)
        lack = source.lacks(ref.tool) if isinstance(source, ConditionalSource) else None
        return explain(view.question(ref, arguments), known, lack or server_note)

    def seen(self, principal: Principal, ref: ToolRef) -> tuple[Tool | None, Decision]:
        """A tool as this asker sees it, None where they do not, with the decision on it."""
        view = self._view(principal)
        decision = view.decision(ref)
        return (view.snapshot.tools[ref] if decision.visible else None), decision

    def find(self, principal: Principal, ref: ToolRef) -> Tool:
        """One tool this asker sees. For others than the owner a hidden tool does not exist."""
        tool, decision = self.seen(principal, ref)
        if tool is None:
            raise _invisible(decision, principal)
        return tool

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
    ) -> Called:
        """Call a tool for this asker; `client` is what an MCP client behind it can do for the server meanwhile.

        With `handle` nobody waits for a person: `HANDLE` gives the number of the question, which says when it is given
        itself how that ended.

        A failure of the tool, and arguments that do not fit, come back as an error result the model can read. Raised
        are: `NotFound` for a tool that does not exist for the asker, `Denied` where it does but may not be called now,
        `Unavailable` (`audit.unavailable`) where the call could not be recorded.
        """
        try:
            encoded = canonical(arguments)
        except TypeError as error:
            raise InvalidRequest("tool.arguments_invalid", f"The arguments are not JSON: {error}.") from error
        view = self._view(principal)
        decision = view.decision_on(ref, arguments)
        tool = view.snapshot.tools.get(ref)
        call_id = next(self._call_ids)
        record = self._audit.call(
            call_id, door, principal, ref, tool, arguments, encoded, decision, rules=view.rules_version
        )
        call = _Call(ref, door, CallContext(principal, call_id, progress, client), record, session, handle)
        try:
            tool, run = _ready(call, view, decision, arguments, encoded)
            if decision.verdict != "allow" or call.handle not in (None, HANDLE):  # what may be another call by now
                tool, run = await self._agreed(call, tool, run, decision, encoded)
            self._count(call)
        except InvalidRequest as error:
            return await _answer_unrun(call.record, CallResult.error(_sentence(error)))
        except _Waits as waits:
            return Called(_waiting(waits.approval), await call.record.refused("approval.required"), 0.0)
        except ToolcribError as error:
            await call.record.refused(error.code)
            raise
        except asyncio.CancelledError:
            call.record.abandoned(0.0)
            raise
        except Exception as error:  # boundary: where a part fails that has a say, the call is refused, on record
            logger.exception("Whether %s may be called could not be settled.", ref)
            await call.record.refused("policy.denied")
            raise Denied("policy.denied", f"{ref} was refused: {_UNSETTLED}") from error
        return await self._run(tool, run, call.record, call.context)

    async def _agreed(
        self, call: "_Call", tool: Tool, run: RunCall, decision: Decision, encoded: bytes
    ) -> tuple[Tool, RunCall]:
        """The call, if it may be made that is not simply allowed: as a person agreed to it."""
        if decision.verdict in ("ask", "allow") and self._consent is not None:
            return await self._approved(call, tool, decision, encoded, self._consent)
        if decision.verdict != "allow":
            raise _refused(decision)
        return tool, run

    def _count(self, call: "_Call") -> None:
        """Count the call, unless its limit is reached."""
        limits = self._limits()
        refusal = limits.check(call.principal, call.ref)
        if refusal is not None:
            raise Denied("limit.reached", refusal)
        limits.count(call.principal, call.ref)

    async def _approved(
        self, call: "_Call", asked: Tool, decision: Decision, encoded: bytes, consent: Consent
    ) -> tuple[Tool, RunCall]:
        """The call as a person approved it. Much may have changed while they thought, so all is looked at again."""
        ref, principal = call.ref, call.principal
        reason = decision.decided_by.reason
        session = call.session
        number = session.tool_call if session is not None else call.context.call_id
        question = Question(ref, asked.definition_hash, encoded, principal, call.door, reason, number)

        def check(arguments: JsonObject, encoded: bytes) -> None:
            _prepare(self._view(principal), call)(ref.tool, arguments, encoded)

        patience = session.patience if session is not None else None
        if call.handle is None:
            answer = await consent.obtain(question, call.context, check, patience)
        else:
            answer = await consent.fetch(question, check, call.handle)
        if isinstance(answer, Approval):
            call.record = self._audit.call(
                call.context.call_id, call.door, principal, ref, asked, orjson.loads(encoded), encoded, decision,
                rules=self._view(principal).rules_version, approval=answer.id,
            )  # fmt: skip
            raise _Waits(answer)
        view = self._view(principal)
        tool = view.snapshot.tools.get(ref)
        arguments: JsonObject = orjson.loads(answer.arguments)
        decision = view.decision_on(ref, arguments)
        call.record = self._audit.call(
            call.context.call_id, call.door, principal, ref, tool, arguments, answer.arguments, decision,
            rules=view.rules_version, approval=answer.approval,
        )  # fmt: skip
        if not answer.approved:
            raise Denied("approval.denied", answer.refusal)
        if tool is None or tool.definition_hash != asked.definition_hash:
            raise Denied("tool.changed", f"{ref} was defined anew while its approval was waited for.")
        if decision.verdict not in ("allow", "ask"):
            raise _refused(decision) if decision.visible else _invisible(decision, principal)
        return tool, _prepare(view, call)(ref.tool, arguments, answer.arguments)

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
    ) -> JsonObject:
        """Ask a server for a prompt, a resource or what belongs to them, by its own names; gives its whole answer.

        Raises `NotFound` for a server that does not exist for the asker or offers no such thing, `ProtocolError` with
        what the server answers instead of a result, `Unavailable` where it cannot be reached or nothing recorded.
        """
        view = self._view(principal)
        source = view.snapshot.sources.get(server)
        decision = view.whole_server(server)
        call_id = next(self._call_ids)
        ref = ToolRef(server, method)
        record = self._audit.call(
            call_id, door, principal, ref, None, params, canonical(params), decision, rules=view.rules_version
        )
        if not isinstance(source, ContentSource) or server not in view.servers:
            await record.refused("server.unknown")
            raise NotFound("server.unknown", f'Server "{server}" not found.')
        context = CallContext(principal, call_id, progress, client)
        ask = partial(source.request, method, params)
        if method not in _READS:
            return await self._bounded(ref, ask, context)
        await record.intent()
        started = time.perf_counter_ns()
        try:
            result = await self._bounded(ref, ask, context)
        except asyncio.CancelledError:
            record.abandoned(_since(started))
            raise
        except BaseException:  # boundary: a refused or broken read leaves its outcome before it ends
            await record.outcome(is_error=True, duration_ms=_since(started))
            raise
        await record.outcome(is_error=False, duration_ms=_since(started))
        return result

    async def _bounded(
        self, ref: ToolRef, ask: Callable[[CallContext], Awaitable[JsonObject]], context: CallContext
    ) -> JsonObject:
        try:
            with self._clocks.start(self._default_timeout) as clock:
                return await ask(unhurried(context, clock))
        except TimeoutError:
            message = f"{ref} did not answer within {self._default_timeout:g} s and was stopped."
            raise Unavailable("server.timeout", message) from None

    async def _run(self, tool: Tool, run: RunCall, record: CallRecord, context: CallContext) -> Called:
        audit_id = await record.intent()
        started = time.perf_counter_ns()
        timeout = tool.timeout or self._default_timeout
        try:
            # Sources see to it that a cancelled call ends, so cancelling the task will do; a scope costs much more.
            with self._clocks.start(timeout) as clock:
                result = await run(unhurried(context, clock))
        except TimeoutError:
            result = CallResult.error(f"{tool.ref} did not answer within {timeout:g} s and was stopped.")
        except BaseException:  # boundary: a cancelled or broken call leaves its outcome before it ends
            record.abandoned(_since(started))
            raise
        duration = _since(started)
        await record.outcome(is_error=result.is_error, duration_ms=duration)
        return Called(result, audit_id, duration)

    def _view(self, principal: Principal) -> View:
        snapshot = self._catalog.at(principal.cwd)
        try:
            rules = self._rules()
            version = (snapshot.version, rules.version)
            asker, view = self._latest
            if asker is principal and view is not None and view.version == version:
                return view
            view = self._views.get(principal)
            if view is None or view.version != version:
                view = self._views[principal] = View(snapshot, rules, principal, self._grants(principal), view)
        except Exception:  # boundary: who cannot be told what they may see sees nothing, until it can be told again
            logger.exception("What %s may see could not be told.", principal.name)
            return NoView(snapshot, principal)
        if len(self._views) > _VIEWS_KEPT:
            self._views.popitem(last=False)
        self._views.move_to_end(principal)
        self._latest = principal, view
        return view


def _ready(call: _Call, view: View, decision: Decision, arguments: JsonObject, encoded: bytes) -> tuple[Tool, RunCall]:
    """A call that exists for its asker, is within its agent's budget, and whose arguments fit."""
    tool = view.snapshot.tools.get(call.ref)
    if tool is None or not decision.visible:
        raise _invisible(decision, call.principal)
    if call.session is not None and (refusal := call.session.beyond_budget()) is not None:
        raise Denied("limit.reached", refusal)
    return tool, _prepare(view, call)(call.ref.tool, arguments, encoded)


def _prepare(view: View, call: _Call) -> Callable[[str, JsonObject, bytes], RunCall]:
    if call.session is not None and call.session.prepare is not None:
        return call.session.prepare
    return view.snapshot.sources[call.ref.server].prepare


async def _answer_unrun(record: CallRecord, result: CallResult) -> Called:
    """Answer without having run anything; both records are written all the same."""
    audit_id = await record.intent()
    await record.outcome(is_error=True, duration_ms=0.0)
    return Called(result, audit_id, 0.0)


def _waiting(approval: Approval) -> CallResult:
    """What a client is told that will come back."""
    until = approval.expires_at.isoformat(timespec="seconds")
    text = (
        f"This call waits for a person until {until}. They answer with `toolcrib approvals approve {approval.id}` or "
        f'`deny`. Afterwards make the same call again with `_meta: {{"toolcrib/approval": "{approval.id}"}}`.'
    )
    shape: JsonObject = {"approvalId": approval.id, "status": "waiting", "expiresAt": until}
    return CallResult(({"type": "text", "text": text},), is_error=True, structured_content=shape, has_structured=True)


def _since(started: int) -> float:
    """Milliseconds to three digits, from nanoseconds: to round a number takes longer than many tools do."""
    return (time.perf_counter_ns() - started) // 1_000 / 1_000


def _sentence(error: ToolcribError) -> str:
    return f"{error.message} {error.hint}" if error.hint else error.message


def _invisible(decision: Decision, principal: Principal) -> ToolcribError:
    if decision.verdict == "hidden" and principal.is_owner:
        return Denied("policy.denied", f"{decision.ref} is not available here: {decision.decided_by.reason}")
    return NotFound("tool.unknown", f"There is no tool {str(decision.ref)!r}.")


def _refused(decision: Decision) -> Denied:
    reason = decision.decided_by.reason
    if decision.verdict == "ask":
        return Denied("approval.required", f"{decision.ref} needs a person's approval: {reason}")
    return Denied("policy.denied", f"{decision.ref} was refused: {reason}")
