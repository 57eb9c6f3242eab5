"""A typed client of a crib's REST interface.

Answers are the JSON of the public shapes, passed on whole, so that a newer crib's fields are not lost on the way.
Failures come back as the errors they were: problem+json becomes the class that the table of codes names.

Here are servers, tools, agents and the audit; what is about permissions, sessions, schedules and plugins
stands apart, in modules of their own.

Above: `cli` and end-to-end tests. Below: `wire`.
"""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from toolcrib.client.connections import ConnectionsClient
from toolcrib.client.permissions import PermissionsClient
from toolcrib.client.plugins import PluginsClient
from toolcrib.client.schedules import SchedulesClient
from toolcrib.client.sessions import SessionsClient
from toolcrib.client.wire import Wire, path_to
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Source
from toolcrib.model.tools import ToolRef

__all__ = ["Client"]


class Client:
    """One asker at one crib. Every request says where it comes from: its source and its working directory."""

    def __init__(self, url: str, token: str, *, source: Source | None = None, cwd: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._wire = Wire(self.url, token, source, cwd)
        self._ask = self._wire.ask
        self.connections = ConnectionsClient(self._wire)
        self.permissions = PermissionsClient(self._wire)
        self.sessions = SessionsClient(self._wire)
        self.schedules = SchedulesClient(self._wire)
        self.plugins = PluginsClient(self._wire)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wire.aclose()

    async def health(self) -> JsonObject:
        """What the crib says of itself to anybody."""
        return await self._ask("GET", "/healthz")

    async def tools(
        self,
        *,
        server: str | None = None,
        agent: str | None = None,
        source: str | None = None,
        query: str | None = None,
        form: str | None = None,
    ) -> list[JsonObject]:
        """The tools as that principal sees them; with `query` the fitting ones, best first."""
        return await self._ask(
            "GET", "/api/tools", {"server": server, "agent": agent, "source": source, "q": query, "form": form}
        )

    async def tool_problems(self) -> list[JsonObject]:
        """What is wrong with servers that could not offer all their tools."""
        return await self._ask("GET", "/api/tools/problems")

    async def tool(self, ref: ToolRef) -> JsonObject:
        """One tool."""
        return await self._ask("GET", _tool_path(ref))

    async def call(self, ref: ToolRef, arguments: JsonObject) -> JsonObject:
        """Call a tool through the gate. The wait has no bound of its own: the gate's and the tool's count."""
        return await self._ask("POST", f"{_tool_path(ref)}/call", body={"arguments": arguments}, patient=True)

    async def servers(self, *, cwd: str | None = None) -> list[JsonObject]:
        """Every server that is defined somewhere, as seen from a directory."""
        return await self._ask("GET", "/api/servers", {"cwd": cwd})

    async def server_problems(self) -> list[JsonObject]:
        """What is wrong with whole files."""
        return await self._ask("GET", "/api/servers/-/problems")

    async def server(self, name: str, *, cwd: str | None = None) -> JsonObject:
        """One server in full."""
        return await self._ask("GET", _server_path(name), {"cwd": cwd})

    async def add_server(self, body: JsonObject) -> JsonObject:
        """Add a server."""
        return await self._ask("POST", "/api/servers", body=body)

    async def remove_server(self, name: str, *, in_client: bool = False, dry_run: bool = False) -> JsonObject:
        """Take a server off the list."""
        return await self._ask("DELETE", _server_path(name), {"inClient": in_client, "dryRun": dry_run})

    async def switch_server(
        self, name: str, enabled: bool, *, in_client: bool = False, dry_run: bool = False
    ) -> JsonObject:
        """Turn a server on or off."""
        path = f"{_server_path(name)}/{'enable' if enabled else 'disable'}"
        return await self._ask("POST", path, {"inClient": in_client, "dryRun": dry_run})

    async def test_server(self, name: str) -> JsonObject:
        """Connect to a server now. The wait has no bound of its own: the server's time-out counts."""
        return await self._ask("POST", f"{_server_path(name)}/test", patient=True)

    async def test_servers(self) -> list[JsonObject]:
        """Connect to every server that may be."""
        return await self._ask("POST", "/api/servers/test", patient=True)

    async def reload_server(self, name: str) -> JsonObject:
        """Open the link of a server anew."""
        return await self._ask("POST", f"{_server_path(name)}/reload", patient=True)

    async def reload_servers(self) -> list[JsonObject]:
        """Read all files again."""
        return await self._ask("POST", "/api/servers/reload", patient=True)

    async def sign_in(self, name: str, *, again: bool = False) -> JsonObject:
        """Begin a sign-in at a server."""
        return await self._ask("POST", f"{_server_path(name)}/auth", body={"again": again}, patient=True)

    async def answer_sign_in(self, name: str, final_url: str) -> JsonObject:
        """Hand in the address that a browser ended at."""
        return await self._ask("POST", f"{_server_path(name)}/auth", body={"answer": final_url}, patient=True)

    async def await_sign_in(self, name: str, seconds: int) -> JsonObject:
        """Where a sign-in stands when it ended or the time is over."""
        return await self._ask("GET", f"{_server_path(name)}/auth", {"wait": seconds})

    async def sign_out(self, name: str) -> JsonObject:
        """Forget the sign-in at a server."""
        return await self._ask("POST", f"{_server_path(name)}/unauth")

    async def trust_server(self, name: str, digest: str | None = None) -> JsonObject:
        """Agree to a server as it was shown."""
        return await self._ask("POST", f"{_server_path(name)}/trust", {"digest": digest})

    async def untrust_server(self, name: str) -> JsonObject:
        """Take the agreement back."""
        return await self._ask("POST", f"{_server_path(name)}/untrust")

    async def trust_path(self, path: str, digests: Sequence[str] | None = None) -> list[JsonObject]:
        """Agree to the servers of a project or a file as they were shown; without digests, only see them."""
        asked = {"dryRun": True} if digests is None else {"digests": list(digests)}
        return await self._ask("POST", "/api/servers/trust", body={"path": path, **asked})

    async def untrust_path(self, path: str) -> list[JsonObject]:
        """Take back everything that was agreed to of a project or a file."""
        return await self._ask("POST", "/api/servers/untrust", body={"path": path})

    async def import_servers(self, names: Sequence[str], *, dry_run: bool) -> JsonObject:
        """Take servers of other tools over."""
        return await self._ask("POST", "/api/servers/import", body={"names": list(names), "dryRun": dry_run})

    async def export_servers(self, client: str, names: Sequence[str]) -> JsonObject:
        """Servers as a file of that client."""
        return await self._ask("GET", "/api/servers/-/export", {"client": client, "name": list(names)})

    async def write_export(self, client: str, names: Sequence[str], *, scope: str, dry_run: bool) -> JsonObject:
        """Write servers into that client's own file."""
        body = {"client": client, "names": list(names), "scope": scope, "dryRun": dry_run}
        return await self._ask("POST", "/api/servers/export", body=body)

    async def undo_change(self) -> JsonObject:
        """Take back the last change of a file."""
        return await self._ask("POST", "/api/servers/undo", body={})

    async def recognise_servers(self, text: str) -> JsonObject:
        """The servers in a pasted text."""
        return await self._ask("POST", "/api/servers/recognise", body={"text": text})

    async def agents(self) -> list[JsonObject]:
        """All agents of the zoo."""
        return await self._ask("GET", "/api/agents")

    async def agent(self, agent_id: str) -> JsonObject:
        """One agent in full."""
        return await self._ask("GET", _agent_path(agent_id))

    async def create_agent(self, body: JsonObject, *, template: str | None = None) -> JsonObject:
        """Make an agent, from nothing or like another."""
        return await self._ask("POST", "/api/agents", {"template": template}, body=body)

    async def change_agent(self, agent_id: str, body: JsonObject) -> JsonObject:
        """Change the named fields of an agent."""
        return await self._ask("PUT", _agent_path(agent_id), body=body)

    async def change_skill(self, agent_id: str, skill: str, body: JsonObject) -> JsonObject:
        """Change the named fields of one skill."""
        return await self._ask("PATCH", path_to(f"{_agent_path(agent_id)}/skills", skill), body=body)

    async def delete_agent(self, agent_id: str) -> JsonObject:
        """Delete an agent and its brain."""
        return await self._ask("DELETE", _agent_path(agent_id))

    async def clone_agent(self, agent_id: str, body: JsonObject) -> JsonObject:
        """Make another agent like this one."""
        return await self._ask("POST", f"{_agent_path(agent_id)}/clone", body=body)

    async def inject_agent(self, agent_id: str, form: str | None = None) -> JsonObject:
        """What a chat needs to become an agent."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/inject", {"format": form})

    async def export_agent(self, agent_id: str, form: str | None = None) -> JsonObject:
        """An agent as files of another tool."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/export", {"format": form})

    async def import_agents(self, body: JsonObject) -> JsonObject:
        """Take agents and skills from files of other tools."""
        return await self._ask("POST", "/api/agents/-/import", body=body)

    async def agent_revisions(self, agent_id: str) -> list[JsonObject]:
        """The changes of an agent, newest first."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/revisions")

    async def agent_revision(self, agent_id: str, version: int) -> JsonObject:
        """One change of an agent, with what it changed."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/revisions/{version}")

    async def restore_agent(self, agent_id: str, version: int) -> JsonObject:
        """Make an agent again what it was."""
        return await self._ask("POST", f"{_agent_path(agent_id)}/revisions/{version}/restore")

    async def settings(self) -> list[JsonObject]:
        """The settings the crib runs with."""
        return await self._ask("GET", "/api/settings")

    async def audit(self, **filters: str | int | None) -> list[JsonObject]:
        """Audit records that pass the filters."""
        return await self._ask("GET", "/api/audit", filters)

    async def verify_audit(self) -> JsonObject:
        """Check the whole chain of records, however long that takes."""
        return await self._ask("GET", "/api/audit/verify", patient=True)

    async def audit_segments(self) -> list[JsonObject]:
        """The files that old audit records were sealed in."""
        return await self._ask("GET", "/api/audit/segments")

    async def seal_audit(self, older_than_days: float) -> list[JsonObject]:
        """Move old audit records into sealed files, however long that takes."""
        return await self._ask("POST", "/api/audit/seal", body={"olderThanDays": older_than_days}, patient=True)

    async def erase_audit(self, older_than_days: float) -> list[JsonObject]:
        """Remove sealed files that are that old."""
        return await self._ask("POST", "/api/audit/erase", body={"olderThanDays": older_than_days}, patient=True)

    async def login(self) -> str:
        """A fresh link that opens the console once."""
        answer = await self._ask("POST", "/api/login", body={})
        return str(answer["url"])

    def events(self, after: int | None = None) -> AsyncIterator[Event]:
        """Events of the host after this number, from now on if None, until the crib ends the stream."""
        return self._wire.events("/api/events", {"after": after})

    def export_audit(self, after: int | None = None, upto: int | None = None) -> AsyncIterator[bytes]:
        """The chain of records as lines of JSON, from the oldest on, piece by piece."""
        return self._wire.lines("/api/audit/export", {"after": after, "upto": upto})


def _tool_path(ref: ToolRef) -> str:
    return path_to("/api/tools", *ref)


def _server_path(name: str) -> str:
    return path_to("/api/servers", name)


def _agent_path(agent_id: str) -> str:
    return path_to("/api/agents", agent_id)
