"""Builds what a session's runtime starts with: the agent's prompt, the offered tools, and its permitted own tools.

Must never offer a tool that the gate does not list.
"""

from collections.abc import Awaitable, Callable

from toolcrib.agents.sessions.runtime import Brief, Offered
from toolcrib.agents.zoo.compile import Compiled
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.gate.catalog.naming import claude_parts
from toolcrib.gate.gate import Gate
from toolcrib.gate.programs import code_tools
from toolcrib.gate.results import reading
from toolcrib.model.agents import ListingMode
from toolcrib.model.apps import is_for_models
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session

HINT = (
    "The tools of MCP servers are issued to you by Toolcrib, which decides on every call and keeps a "
    "record. A call may wait for a person's approval. If one is refused, the result says why and what may be tried: do "
    "not work around it with another tool. What you may not use is not shown to you."
)


class Briefing:
    """Builds the briefs of sessions."""

    def __init__(self, gate: Gate, zoo: Zoo, placed: Callable[[Principal], Awaitable[Principal]]) -> None:
        self._gate = gate
        self._zoo = zoo
        self._placed = placed

    async def of(self, session: Session) -> Brief:
        """Return the current brief of a session. Raises `agent.unknown` if its agent was deleted."""
        principal = await self._placed(session.principal)
        if session.agent is None:
            return self._build(session, principal)
        stored, compiled = await self._zoo.compiled(session.agent, session.cwd)
        return self._build(session, principal, compiled, stored.agent.listing)

    def now(self, session: Session) -> Brief:
        """Like `of`, but synchronous: blocks briefly, and covers only servers of directories that are already known."""
        if session.agent is None:
            return self._build(session, session.principal)
        stored, compiled = self._zoo.compiled_now(session.agent, session.cwd)
        return self._build(session, session.principal, compiled, stored.agent.listing)

    def _build(
        self,
        session: Session,
        principal: Principal,
        compiled: Compiled | None = None,
        listing: ListingMode | None = None,
    ) -> Brief:
        listing = listing or "all"
        parts = (compiled.prompt if compiled is not None else "", HINT, code_tools.instructions_of(listing))
        return Brief(
            session=session.id,
            cwd=session.cwd,
            mode=session.mode,
            prompt="\n\n".join(filter(None, parts)),
            tools=self.offered(principal, listing),
            own_tools=self.own_tools(principal),
            model=session.model,
            resume=session.runtime,
            fork=session.is_fork_due,
            limits=session.limits,
            listing=listing,
        )

    def offered(self, principal: Principal, listing: ListingMode) -> tuple[Offered, ...]:
        """Return the tools that this principal sees, or those that find and call them, with the names for models."""
        offered = [Offered(tool.ref.server, tool.ref.tool, tool) for tool in code_tools.tools_of(listing)]
        for tool in filter(is_for_models, self._gate.listed(principal) if listing == "all" else ()):
            server, name = claude_parts(tool.ref, self._gate.name("claude", tool.ref))
            offered.append(Offered(server, name, tool))
        if offered and self._gate.results.is_read_by(principal):
            offered.append(Offered(reading.TOOL.ref.server, reading.READ, reading.TOOL))
        return tuple(offered)

    def own_tools(self, principal: Principal) -> tuple[str, ...]:
        """Return the runtime's own tools that this principal may use."""
        return tuple(tool.ref.tool for tool in self._gate.own_tools(principal))
