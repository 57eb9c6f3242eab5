"""Skills of all servers: who sees them, and reads of their files.

A skill is decided like a tool of its server named `skills/NAME`: the same permissions, rules, modes and approvals
apply, and an approval is bound to the digests of its files. Reads then follow the path of every content request.

Must never pass on a file of a skill that the principal may not use.
"""

import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol

from toolcrib.gate.approvals.consent import Consent
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.principals import Door
from toolcrib.gate.programs.planned_call import refuse_edit
from toolcrib.gate.refusals import approval_reason, invisible_error, refusal_error
from toolcrib.gate.view import PrincipalView
from toolcrib.model.approvals import ApprovalRequest
from toolcrib.model.errors import Denied, ToolcribError
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.observing import Trace
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.skills import is_inside, skill_name
from toolcrib.model.sources import CallContext, Client, ContentMethod, HoldingSource, ReportProgress, SkillSource
from toolcrib.model.tools import ContentItem, Marks, Tool, ToolRef


class ContentRequest(Protocol):
    """Sends a content request, as `Gate.request` does."""

    def __call__(
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
    ) -> Awaitable[JsonObject]:
        """Return the server's answer."""
        ...


class Skills:
    """The skills of all servers, for the gate."""

    def __init__(
        self,
        view: Callable[[Principal], PrincipalView],
        request: ContentRequest,
        audit: Audit,
        consent: Consent | None,
    ) -> None:
        self._view = view
        self._request = request
        self._records = audit.call_records
        self._consent = consent
        self._call_ids = (f"{audit.run}-skill-{number}" for number in itertools.count(1))

    async def visible(self, principal: Principal) -> list[ContentItem]:
        """Return the skills this principal sees, by server and URI."""
        view = self._view(principal)
        return [item for item in await self._all(view) if view.decide_on(_as_tool(view, item)).visible]

    async def of_file(self, principal: Principal, server: str, uri: str) -> ContentItem | None:
        """Return the innermost skill of a server that a resource belongs to, whether the principal sees it or not."""
        view = self._view(principal)
        source = view.snapshot.sources.get(server)
        skills = await source.skills() if isinstance(source, SkillSource) else ()
        return max((item for item in skills if is_inside(uri, item.key)), key=lambda item: len(item.key), default=None)

    def is_withheld(self, principal: Principal, server: str, uri: str) -> bool:
        """Return whether a skill is held back that the principal would see otherwise."""
        view = self._view(principal)
        source = view.snapshot.sources.get(server)
        return isinstance(source, HoldingSource) and source.holds(uri) and view.would_see(_ref(server, uri))

    async def read(
        self,
        principal: Principal,
        item: ContentItem,
        params: JsonObject,
        *,
        door: Door,
        progress: ReportProgress | None = None,
        client: Client | None = None,
        trace: Trace | None = None,
    ) -> JsonObject:
        """Read a file of a skill by the server's own URI, after an approval if one is needed.

        Raises `NotFound` for a skill that does not exist for the principal, `Denied` for one it may not use now, and
        otherwise what `Gate.request` raises.
        """
        view = self._view(principal)
        tool = _as_tool(view, item)
        decision = view.decide_on(tool)
        call_id = next(self._call_ids)
        if decision.verdict != "allow":
            try:
                context = CallContext(principal, call_id, progress, client, trace)
                await self._admit(tool, decision, context, door)
            except ToolcribError as error:
                arguments: JsonObject = {"uri": params.get("uri")}
                made = (call_id, door, principal, tool.ref, tool, arguments, canonical(arguments), decision)
                await self._records.create(*made, rules=view.rules_version).refused(error.code)
                raise
        return await self._request(
            principal, item.server, "resources/read", params, door=door, progress=progress, client=client, trace=trace
        )

    async def _admit(self, tool: Tool, decision: Decision, context: CallContext, door: Door) -> None:
        """Obtain the approval of a skill. Raises if it is not allowed."""
        principal = context.principal
        if not decision.visible:
            raise invisible_error(decision, principal)
        if decision.verdict != "ask" or self._consent is None:
            raise refusal_error(decision)
        arguments = canonical({"uri": tool.extra["uri"]})
        reason = approval_reason(decision, tool)
        question = ApprovalRequest(tool.ref, tool.definition_hash, arguments, principal, door, reason, context.call_id)
        answer = await self._consent.obtain(question, context, refuse_edit)
        if not answer.approved:
            raise Denied("approval.denied", answer.refusal)
        now = self._view(principal)
        known = tool.ref.server, tool.extra["uri"]  # skills of one server may share a name
        after = next((one for one in await self._all(now) if (one.server, one.key) == known), None)
        if after is None or _as_tool(now, after).definition_hash != tool.definition_hash:
            raise Denied("tool.changed", f"{tool.ref} was changed while its approval was pending.")
        decided = now.decide_on(tool)
        if decided.verdict not in ("allow", "ask"):
            raise refusal_error(decided) if decided.visible else invisible_error(decided, principal)

    async def _all(self, view: PrincipalView) -> list[ContentItem]:
        found: list[ContentItem] = []
        for server in sorted(view.snapshot.sources):
            source = view.snapshot.sources[server]
            if isinstance(source, SkillSource):
                found += sorted(await source.skills(), key=lambda item: item.key)
        return found


def _ref(server: str, uri: str) -> ToolRef:
    return ToolRef(server, f"skills/{skill_name(uri)}")


def _as_tool(view: PrincipalView, item: ContentItem) -> Tool:
    """Return the tool that stands for a skill in decisions. Its definition is the entry of the skill."""
    part = view.snapshot.parts[item.server]
    description = str(item.definition["frontmatter"]["description"])
    marks = Marks(read_only=True)
    ref = _ref(item.server, item.key)
    return Tool(ref, description, {}, part.source.kind, marks=marks, extra=item.definition, names=part.names)
