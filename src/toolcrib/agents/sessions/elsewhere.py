"""Sessions that another node runs: their verbs are sent there, on behalf of the same caller.

Reading needs no other node, since all events are in the database.
"""

from datetime import UTC, datetime
from urllib.parse import quote

from toolcrib.gate.audit.actor import current_actor
from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.sessions import SessionEvent
from toolcrib.nodes.forwarding import NodeClient


class RemoteSession:
    """One session on another node."""

    def __init__(self, client: NodeClient, node: str, id: str) -> None:
        self._client = client
        self._node = node
        self._id = id

    async def send(self, content: str) -> SessionEvent:
        """Queue a prompt; return its event."""
        sent = await self._ask("POST", "/messages", {"content": content})
        data: JsonObject = {"messageId": sent["messageId"], "content": content, "queued": sent["queued"]}
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return SessionEvent(int(sent["seq"]), at, self._id, "user_message", data)

    async def interrupt(self) -> bool:
        """Interrupt the running turn; return False if there is none."""
        return (await self._ask("POST", "/interrupt"))["interrupted"] is True

    async def change(self, changes: JsonObject) -> None:
        """Change the mode, model or title."""
        await self._ask("PATCH", "", changes)

    async def fork(self, title: str | None) -> str:
        """Create a session with the same history there; return its id."""
        return str((await self._ask("POST", "/fork", {} if title is None else {"title": title}))["id"])

    async def delete(self) -> None:
        """Delete the session and end its readers."""
        await self._ask("DELETE", "")

    async def _ask(self, method: str, verb: str, body: JsonObject | None = None) -> JsonObject:
        path = f"/api/sessions/{quote(self._id, safe='')}{verb}"
        answer = await self._client.ask(self._node, method, path, body, caller=_caller())
        return answer if is_object(answer) else {}


class RemoteSessions:
    """Finds the node that runs a session."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client

    async def on(self, node: str, id: str) -> RemoteSession | None:
        """Return the session on this node, or None if the node cannot run it: then any other may."""
        return RemoteSession(self._client, node, id) if await self._client.runs(node) else None


def _caller() -> JsonObject:
    """Return the owner with the source of the current request."""
    actor = current_actor()
    return {"source": actor.principal.source if actor is not None and actor.principal.is_owner else "api"}
