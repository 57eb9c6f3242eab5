"""The gate: the only way a tool is ever called, from any door, and the only view of what an asker may see.

A call goes resolve ▸ validate ▸ decide ▸ record the intent ▸ run ▸ record the outcome, in this order: nothing runs
before its intent is durable, nothing is answered before its outcome is. Listing asks the same decisions, so what can
be called is always among what is listed. Prompts and resources belong to their server: who sees the server may read
them, and reading leaves the same two records.

Above: every door (MCP endpoint, REST, library). Below: the catalog's snapshots, `policy.decide`, the audit. It must
never call a source in any other way, and never let a failure of its own parts end in a call.
"""

import asyncio
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial

from toolcrib.audit import Audit, CallRecord
from toolcrib.catalog.catalog import Catalog
from toolcrib.catalog.naming import Form
from toolcrib.catalog.snapshot import Snapshot
from toolcrib.errors import Denied, InvalidRequest, NotFound, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, Client, ContentMethod, ContentSource, ReportProgress, RunCall
from toolcrib.model.tools import CallResult, ContentItem, Tool, ToolRef
from toolcrib.policy.decide import Grants, Rules, decide
from toolcrib.principals import Door

_VIEWS_KEPT = 256
"""How many askers' views are kept; the least recently used one is made anew when needed."""
_READS = frozenset({"resources/read", "prompts/get"})
"""What is asked of a server beside tools and leaves records; the rest gives nothing that a model could act on."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools one asker sees, in order of their identity. Equal versions of equal askers are the same object."""

    version: tuple[int, int]
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Called:
    """The answer to a call: the result, the number of its intent in the audit, how long it took."""

    result: CallResult
    audit_id: int
    duration_ms: float


class _View:
    """The decisions for one asker on one snapshot and one version of the rules, made when first asked for."""

    def __init__(self, snapshot: Snapshot, rules: Rules, principal: Principal, grants: Grants) -> None:
        self.version = (snapshot.version, rules.version)
        self.snapshot = snapshot
        self._asked = (principal, grants, rules)
        self._decisions: dict[ToolRef, Decision] = {}

    def decision(self, ref: ToolRef) -> Decision:
        kept = self._decisions.get(ref)
        if kept is None:
            tool = self.snapshot.tools.get(ref)
            kept = decide(ref, tool, *self._asked)
            if tool is not None:  # unknown names come from outside and are without end
                self._decisions[ref] = kept
        return kept

    @cached_property
    def listing(self) -> Listing:
        tools = self.snapshot.tools
        return Listing(self.version, tuple(tool for ref, tool in tools.items() if self.decision(ref).visible))

    @cached_property
    def servers(self) -> frozenset[str]:
        """The servers of which this asker sees a tool, or would see one if they had any."""
        seen = {tool.ref.server for tool in self.listing.tools}
        bare = self.snapshot.sources.keys() - {ref.server for ref in self.snapshot.tools}
        return frozenset(seen | {server for server in bare if self.whole_server(server).visible})

    def whole_server(self, server: str) -> Decision:
        """The decision on a server as such: that on a tool of it which has no name."""
        ref = ToolRef(server, "")
        source = self.snapshot.sources.get(server)
        return decide(ref, Tool(ref, "", {}, source.kind) if source is not None else None, *self._asked)

    def seen(self, items: Iterable[ContentItem]) -> tuple[ContentItem, ...]:
        return tuple(item for item in items if item.server in self.servers)

    @cached_property
    def prompts(self) -> tuple[ContentItem, ...]:
        return self.seen(self.snapshot.prompts.values())

    @cached_property
    def resources(self) -> tuple[ContentItem, ...]:
        return self.seen(self.snapshot.resources)

    @cached_property
    def templates(self) -> tuple[ContentItem, ...]:
        return self.seen(self.snapshot.templates)


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
    ) -> None:
        self._catalog = catalog
        self._audit = audit
        self._default_timeout = default_timeout
        self._rules = rules
        self._grants = grants
        self._views: OrderedDict[Principal, _View] = OrderedDict()
        run = secrets.token_hex(6)
        self._call_ids = (f"{run}-{number}" for number in itertools.count(1))

    def listing(self, principal: Principal) -> Listing:
        """The tools this asker sees now."""
        return self._view(principal).listing

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

    def find(self, principal: Principal, ref: ToolRef) -> Tool:
        """One tool this asker sees. For others than the owner a hidden tool does not exist."""
        view = self._view(principal)
        decision = view.decision(ref)
        if not decision.visible:
            raise _invisible(decision, principal)
        return view.snapshot.tools[ref]

    async def call(
        self,
        principal: Principal,
        ref: ToolRef,
        arguments: JsonObject,
        *,
        door: Door,
        progress: ReportProgress | None = None,
        client: Client | None = None,
    ) -> Called:
        """Call a tool for this asker; `client` is what an MCP client behind it can do for the server meanwhile.

        A failure of the tool, and arguments that do not fit, come back as an error result the model can read. Raised
        are: `NotFound` for a tool that does not exist for the asker, `Denied` where it does but may not be called now,
        `Unavailable` (`audit.unavailable`) where the call could not be recorded.
        """
        try:
            encoded = canonical(arguments)
        except TypeError as error:
            raise InvalidRequest("tool.arguments_invalid", f"The arguments are not JSON: {error}.") from error
        view = self._view(principal)
        decision = view.decision(ref)
        tool = view.snapshot.tools.get(ref)
        call_id = next(self._call_ids)
        record = self._audit.call(call_id, door, principal, ref, tool, arguments, encoded, decision)
        if tool is None or not decision.visible:
            await record.refused()
            raise _invisible(decision, principal)
        try:
            run = view.snapshot.sources[ref.server].prepare(ref.tool, arguments, encoded)
        except InvalidRequest as error:
            return await _answer_unrun(record, CallResult.error(_sentence(error)))
        except NotFound:
            await record.refused()
            raise
        if decision.verdict != "allow":
            await record.refused()
            raise _refused(decision)
        return await self._run(tool, run, record, CallContext(principal, call_id, progress, client))

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
        record = self._audit.call(call_id, door, principal, ref, None, params, canonical(params), decision)
        if not isinstance(source, ContentSource) or server not in view.servers:
            await record.refused()
            raise NotFound("server.unknown", f'Server "{server}" not found.')
        ask = partial(source.request, method, params, CallContext(principal, call_id, progress, client))
        if method not in _READS:
            return await self._bounded(ref, ask)
        await record.intent()
        started = time.perf_counter()
        try:
            result = await self._bounded(ref, ask)
        except asyncio.CancelledError:
            record.abandoned(_since(started))
            raise
        except BaseException:  # boundary: a refused or broken read leaves its outcome before it ends
            await record.outcome(is_error=True, duration_ms=_since(started))
            raise
        await record.outcome(is_error=False, duration_ms=_since(started))
        return result

    async def _bounded(self, ref: ToolRef, ask: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        try:
            async with asyncio.timeout(self._default_timeout):
                return await ask()
        except TimeoutError:
            message = f"{ref} did not answer within {self._default_timeout:g} s and was stopped."
            raise Unavailable("server.timeout", message) from None

    async def _run(self, tool: Tool, run: RunCall, record: CallRecord, context: CallContext) -> Called:
        audit_id = await record.intent()
        started = time.perf_counter()
        timeout = tool.timeout or self._default_timeout
        try:
            # Sources see to it that a cancelled call ends, so a plain time-out will do; a scope costs much more.
            async with asyncio.timeout(timeout):
                result = await run(context)
        except TimeoutError:
            result = CallResult.error(f"{tool.ref} did not answer within {timeout:g} s and was stopped.")
        except BaseException:  # boundary: a cancelled or broken call leaves its outcome before it ends
            record.abandoned(_since(started))
            raise
        duration = _since(started)
        await record.outcome(is_error=result.is_error, duration_ms=duration)
        return Called(result, audit_id, duration)

    def _view(self, principal: Principal) -> _View:
        snapshot, rules = self._catalog.at(principal.cwd), self._rules()
        view = self._views.get(principal)
        if view is None or view.version != (snapshot.version, rules.version):
            view = self._views[principal] = _View(snapshot, rules, principal, self._grants(principal))
            if len(self._views) > _VIEWS_KEPT:
                self._views.popitem(last=False)
        self._views.move_to_end(principal)
        return view


async def _answer_unrun(record: CallRecord, result: CallResult) -> Called:
    """Answer without having run anything; both records are written all the same."""
    audit_id = await record.intent()
    await record.outcome(is_error=True, duration_ms=0.0)
    return Called(result, audit_id, 0.0)


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


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
