"""Tools of the server `toolcrib` for sessions: count, list active ones, show one.

The owner sees all sessions; other callers see their own and those of their directory, so that agents of one project
never see another project's.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from typing_extensions import TypedDict

from toolcrib.agents.sessions.sessions import Sessions
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session
from toolcrib.tools import Context, Inject, tool


@dataclass(frozen=True, slots=True)
class SessionDirectory:
    """The sessions of a crib. `cwd` is the default directory for callers without one."""

    sessions: Sessions
    count: Callable[[str], Awaitable[int]]
    cwd: str

    def place(self, principal: Principal) -> str:
        """Return the directory of the caller."""
        return principal.cwd or self.cwd

    def sees(self, principal: Principal, session: Session) -> bool:
        """Return whether a session is visible to the caller."""
        is_owner = principal.is_owner and principal.agent is None and principal.session is None
        return is_owner or principal.session == session.id or self.place(principal) == session.cwd


Directory = Annotated[SessionDirectory, Inject]


class SessionsCounted(TypedDict):
    """The answer to `get_session_count`."""

    count: int
    cwd: str


@tool(read_only=True, always_load=True, title="Count sessions")
async def get_session_count(*, context: Annotated[Context, Inject], directory: Directory) -> SessionsCounted:
    """Count the agent sessions of the working directory. Returns the count and the directory."""
    cwd = directory.place(context.principal)
    return {"count": await directory.count(cwd), "cwd": cwd}


@tool(read_only=True, title="List active sessions")
async def list_active_sessions(*, context: Annotated[Context, Inject], directory: Directory) -> dict[str, object]:
    """List the agent sessions with a process or queued work. Use it to see which agents are active here.

    Returns sessions with id, state, title, agent, mode, directory and usage of each.
    """
    found = [each for each in directory.sessions.active() if directory.sees(context.principal, each)]
    return {"sessions": [_session_json(each) for each in found], "count": len(found)}


@tool(read_only=True, title="Show a session")
async def get_session_details(
    session_id: Annotated[str, "A session's id or a unique prefix of it. Default: the calling session."] = "",
    *,
    context: Annotated[Context, Inject],
    directory: Directory,
) -> dict[str, object]:
    """Show an agent session: state and reason, mode, model, limits, cost, tokens.

    Use it to check a session that was started, or your own budget. Returns all fields.
    """
    wanted = session_id or context.session
    if not wanted:
        raise NotFound("session.unknown", "The call was not made in a session.", "Give the id of a session.")
    session = await directory.sessions.get(await directory.sessions.resolve(wanted))
    if not directory.sees(context.principal, session):
        raise NotFound("session.unknown", f"There is no session {wanted!r}.")
    is_active = any(each.id == session.id for each in directory.sessions.active())
    return {**session.to_json(), "isActive": is_active}


def _session_json(session: Session) -> JsonObject:
    names = ("id", "state", "title", "agentId", "mode", "source", "cwd", "costUsd", "inputTokens", "outputTokens")
    shape = session.to_json()
    return {name: shape[name] for name in (*names, "updatedAt") if name in shape}
