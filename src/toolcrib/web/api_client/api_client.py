"""A typed client of a crib's REST API.

Responses are returned as plain JSON, so that the fields of a newer crib are not lost. A problem response raises the
error class of its code.

Servers, tools, agents and the audit log are here. Permissions, sessions, schedules and plugins have their own modules.
"""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Source
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.connections import ConnectionsClient
from toolcrib.web.api_client.permissions import PermissionsClient
from toolcrib.web.api_client.plugins import PluginsClient
from toolcrib.web.api_client.registry import RegistryClient
from toolcrib.web.api_client.schedules import SchedulesClient
from toolcrib.web.api_client.secrets import SecretsClient
from toolcrib.web.api_client.sessions import SessionsClient
from toolcrib.web.api_client.wire import Param, Wire, path_to

__all__ = ["ApiClient"]


class ApiClient:
    """A client for one crib. Every request carries its source and working directory."""

    def __init__(self, url: str, token: str, *, source: Source | None = None, cwd: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._wire = Wire(self.url, token, source, cwd)
        self._ask = self._wire.ask
        self.connections = ConnectionsClient(self._wire)
        self.permissions = PermissionsClient(self._wire)
        self.sessions = SessionsClient(self._wire)
        self.schedules = SchedulesClient(self._wire)
        self.plugins = PluginsClient(self._wire)
        self.registry = RegistryClient(self._wire)
        self.secrets = SecretsClient(self._wire)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wire.aclose()

    async def health(self) -> JsonObject:
        """Return the crib's public health status."""
        return await self._ask("GET", "/healthz")

    async def status(self) -> JsonObject:
        """Return whether the crib is running or stopped."""
        return await self._ask("GET", "/api/status")

    async def nodes(self) -> list[JsonObject]:
        """Return the nodes that share the crib's database."""
        return await self._ask("GET", "/api/nodes")

    async def drain_node(self, name: str) -> JsonObject:
        """Ask a node to give its work away and stop."""
        return await self._ask("POST", f"{path_to('/api/nodes', name)}/drain")

    async def backups(self) -> list[JsonObject]:
        """Return the backups in the home, newest first."""
        return await self._ask("GET", "/api/backups")

    async def create_backup(self, to: str | None = None) -> JsonObject:
        """Back up the database. Waits without a timeout."""
        return await self._ask("POST", "/api/backups", body={"to": to}, patient=True)

    async def stop_all(self, reason: str | None = None) -> JsonObject:
        """End everything that runs, until the owner resumes."""
        return await self._ask("POST", "/api/stop-all", body={"reason": reason})

    async def resume_all(self) -> JsonObject:
        """Resume after `stop_all`."""
        return await self._ask("POST", "/api/resume-all")

    async def tools(
        self,
        *,
        server: str | None = None,
        agent: str | None = None,
        source: str | None = None,
        query: str | None = None,
        form: str | None = None,
    ) -> list[JsonObject]:
        """Return the tools that this principal sees; with `query`, those that match, best first."""
        asked = {"server": server, "agent": agent, "source": source, "q": query, "form": form}
        return await self._ask("GET", "/api/tools", asked)

    async def search_tools(self, query: str, limit: int) -> JsonObject:
        """Return at most `limit` matching tools, best first, or a hint if there are none."""
        return await self._ask("GET", "/api/tools/search", {"q": query, "limit": limit})

    async def tool_costs(self, *, agent: str | None = None, source: str | None = None) -> JsonObject:
        """Return the estimated tokens and the calls of the tools that this principal sees."""
        return await self._ask("GET", "/api/tools/cost", {"agent": agent, "source": source})

    async def hide_unused_tools(self, body: JsonObject) -> JsonObject:
        """Hide tools that were not called from an agent or a source, or show them again."""
        return await self._ask("POST", "/api/tools/cost/hide", body=body)

    async def shorten_tools(self, body: JsonObject) -> JsonObject:
        """List tools with shorter descriptions, or whole again."""
        return await self._ask("POST", "/api/tools/cost/shorten", body=body)

    async def tool_problems(self) -> list[JsonObject]:
        """Return problems of servers that could not offer all their tools."""
        return await self._ask("GET", "/api/tools/problems")

    async def tool(self, ref: ToolRef) -> JsonObject:
        """Return one tool."""
        return await self._ask("GET", _tool_path(ref))

    async def call(self, ref: ToolRef, arguments: JsonObject) -> JsonObject:
        """Call a tool through the gate. Waits without a timeout, because the gate and the tool have their own."""
        return await self._ask("POST", f"{_tool_path(ref)}/call", body={"arguments": arguments}, patient=True)

    async def servers(self, *, cwd: str | None = None) -> list[JsonObject]:
        """Return every configured server, as seen from a directory."""
        return await self._ask("GET", "/api/servers", {"cwd": cwd})

    async def server_problems(self) -> list[JsonObject]:
        """Return problems of whole config files."""
        return await self._ask("GET", "/api/servers/-/problems")

    async def server(self, name: str, *, cwd: str | None = None) -> JsonObject:
        """Return one server in full."""
        return await self._ask("GET", _server_path(name), {"cwd": cwd})

    async def record_server(self, name: str, calls: list[JsonObject]) -> JsonObject:
        """Record what a server offers and the results of calls. Waits without a timeout."""
        return await self._ask("POST", f"{_server_path(name)}/record", body={"calls": calls}, patient=True)

    async def add_server(self, body: JsonObject) -> JsonObject:
        """Add a server."""
        return await self._ask("POST", "/api/servers", body=body)

    async def remove_server(self, name: str, *, in_client: bool = False, dry_run: bool = False) -> JsonObject:
        """Remove a server."""
        return await self._ask("DELETE", _server_path(name), {"inClient": in_client, "dryRun": dry_run})

    async def switch_server(
        self, name: str, enabled: bool, *, in_client: bool = False, dry_run: bool = False
    ) -> JsonObject:
        """Enable or disable a server."""
        path = f"{_server_path(name)}/{'enable' if enabled else 'disable'}"
        return await self._ask("POST", path, {"inClient": in_client, "dryRun": dry_run})

    async def sandbox_server(self, name: str, choice: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Change the sandbox of a server."""
        return await self._ask("POST", f"{_server_path(name)}/sandbox", {"dryRun": dry_run}, body=choice)

    async def test_server(self, name: str) -> JsonObject:
        """Connect a server. Waits without a timeout, because the server has its own."""
        return await self._ask("POST", f"{_server_path(name)}/test", patient=True)

    async def cancel_test(self, name: str) -> JsonObject:
        """Cancel an attempt to connect a server."""
        return await self._ask("POST", f"{_server_path(name)}/cancel")

    async def test_servers(self) -> list[JsonObject]:
        """Connect every allowed server."""
        return await self._ask("POST", "/api/servers/test", patient=True)

    async def reload_server(self, name: str) -> JsonObject:
        """Reconnect a server."""
        return await self._ask("POST", f"{_server_path(name)}/reload", patient=True)

    async def reload_servers(self) -> list[JsonObject]:
        """Read all config files again."""
        return await self._ask("POST", "/api/servers/reload", patient=True)

    async def sign_in(self, name: str, *, again: bool = False) -> JsonObject:
        """Start a sign-in at a server."""
        return await self._ask("POST", f"{_server_path(name)}/auth", body={"again": again}, patient=True)

    async def answer_sign_in(self, name: str, final_url: str) -> JsonObject:
        """Complete a sign-in with the URL that the browser ended at."""
        return await self._ask("POST", f"{_server_path(name)}/auth", body={"answer": final_url}, patient=True)

    async def await_sign_in(self, name: str, seconds: int) -> JsonObject:
        """Return the state of a sign-in once it has ended or the time is over."""
        return await self._ask("GET", f"{_server_path(name)}/auth", {"wait": seconds})

    async def sign_out(self, name: str) -> JsonObject:
        """Sign out of a server."""
        return await self._ask("POST", f"{_server_path(name)}/unauth")

    async def trust_server(self, name: str, digest: str | None = None, *, allow_secrets: bool = False) -> JsonObject:
        """Trust a server as it was shown; `allow_secrets` also accepts the grave items."""
        asked: dict[str, Param] = {"digest": digest, "allowSecrets": "true" if allow_secrets else None}
        return await self._ask("POST", f"{_server_path(name)}/trust", asked)

    async def untrust_server(self, name: str) -> JsonObject:
        """Revoke trust in a server."""
        return await self._ask("POST", f"{_server_path(name)}/untrust")

    async def trust_path(
        self, path: str, digests: Sequence[str] | None = None, *, allow_secrets: bool = False
    ) -> list[JsonObject]:
        """Trust the servers of a project or file as they were shown; without digests, only return them."""
        asked = {"dryRun": True} if digests is None else {"digests": list(digests), "allowSecrets": allow_secrets}
        return await self._ask("POST", "/api/servers/trust", body={"path": path, **asked})

    async def untrust_path(self, path: str) -> list[JsonObject]:
        """Revoke trust in all servers of a project or file."""
        return await self._ask("POST", "/api/servers/untrust", body={"path": path})

    async def import_servers(
        self, names: Sequence[str], *, dry_run: bool, digests: Sequence[str] | None = None
    ) -> JsonObject:
        """Import servers of other apps."""
        body: JsonObject = {"names": list(names), "dryRun": dry_run}
        shown: JsonObject = {"digests": list(digests)} if digests is not None else {}
        return await self._ask("POST", "/api/servers/import", body=body | shown)

    async def export_servers(self, client: str, names: Sequence[str]) -> JsonObject:
        """Return servers as a file of that app."""
        return await self._ask("GET", "/api/servers/-/export", {"client": client, "name": list(names)})

    async def write_export(self, client: str, names: Sequence[str], *, scope: str, dry_run: bool) -> JsonObject:
        """Write servers into that app's own file."""
        body = {"client": client, "names": list(names), "scope": scope, "dryRun": dry_run}
        return await self._ask("POST", "/api/servers/export", body=body)

    async def undo_change(self) -> JsonObject:
        """Undo the last change of a file."""
        return await self._ask("POST", "/api/servers/undo", body={})

    async def recognise_servers(self, text: str) -> JsonObject:
        """Return the servers recognized in pasted text."""
        return await self._ask("POST", "/api/servers/recognise", body={"text": text})

    async def agents(self) -> list[JsonObject]:
        """Return all agents."""
        return await self._ask("GET", "/api/agents")

    async def agent(self, agent_id: str) -> JsonObject:
        """Return one agent in full."""
        return await self._ask("GET", _agent_path(agent_id))

    async def create_agent(self, body: JsonObject, *, template: str | None = None) -> JsonObject:
        """Create an agent, optionally from a template."""
        return await self._ask("POST", "/api/agents", {"template": template}, body=body)

    async def change_agent(self, agent_id: str, body: JsonObject) -> JsonObject:
        """Change the given fields of an agent."""
        return await self._ask("PUT", _agent_path(agent_id), body=body)

    async def change_skill(self, agent_id: str, skill: str, body: JsonObject) -> JsonObject:
        """Change the given fields of one skill."""
        return await self._ask("PATCH", path_to(f"{_agent_path(agent_id)}/skills", skill), body=body)

    async def delete_agent(self, agent_id: str) -> JsonObject:
        """Delete an agent and its brain."""
        return await self._ask("DELETE", _agent_path(agent_id))

    async def clone_agent(self, agent_id: str, body: JsonObject) -> JsonObject:
        """Clone an agent."""
        return await self._ask("POST", f"{_agent_path(agent_id)}/clone", body=body)

    async def inject_agent(self, agent_id: str, form: str | None = None) -> JsonObject:
        """Return what a chat needs to become this agent."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/inject", {"format": form})

    async def export_agent(self, agent_id: str, form: str | None = None) -> JsonObject:
        """Return an agent as files of another app."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/export", {"format": form})

    async def import_agents(self, body: JsonObject) -> JsonObject:
        """Import agents and skills from files of other apps."""
        return await self._ask("POST", "/api/agents/-/import", body=body)

    async def agent_revisions(self, agent_id: str) -> list[JsonObject]:
        """Return the revisions of an agent, newest first."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/revisions")

    async def agent_revision(self, agent_id: str, version: int) -> JsonObject:
        """Return one revision of an agent with its diff."""
        return await self._ask("GET", f"{_agent_path(agent_id)}/revisions/{version}")

    async def restore_agent(self, agent_id: str, version: int) -> JsonObject:
        """Restore an agent to an earlier revision."""
        return await self._ask("POST", f"{_agent_path(agent_id)}/revisions/{version}/restore")

    async def settings(self) -> list[JsonObject]:
        """Return the crib's settings."""
        return await self._ask("GET", "/api/settings")

    async def audit(self, **filters: str | int | None) -> list[JsonObject]:
        """Return the audit records that match the filters."""
        return await self._ask("GET", "/api/audit", filters)

    async def verify_audit(self, anchors: Sequence[JsonObject] = (), sources: Sequence[str] = ()) -> JsonObject:
        """Verify the audit chain, and that it has what these anchors name. Waits without a timeout."""
        if not anchors and not sources:
            return await self._ask("GET", "/api/audit/verify", patient=True)
        body = {"anchors": list(anchors), "sources": list(sources)}
        return await self._ask("POST", "/api/audit/verify", body=body, patient=True)

    async def anchor_audit(self, to: str | None = None) -> JsonObject:
        """Return an anchor of the audit chain's end, and write it to `to` if given."""
        return await self._ask("POST", "/api/audit/anchor", body={"to": to}, patient=True)

    async def audit_segments(self) -> list[JsonObject]:
        """Return the files of sealed audit records."""
        return await self._ask("GET", "/api/audit/segments")

    async def seal_audit(self, older_than_days: float) -> list[JsonObject]:
        """Move old audit records into sealed files. Waits without a timeout."""
        return await self._ask("POST", "/api/audit/seal", body={"olderThanDays": older_than_days}, patient=True)

    async def erase_audit(self, older_than_days: float) -> list[JsonObject]:
        """Erase sealed files that are that old."""
        return await self._ask("POST", "/api/audit/erase", body={"olderThanDays": older_than_days}, patient=True)

    async def login(self) -> str:
        """Return a new link that opens the console once."""
        answer = await self._ask("POST", "/api/login", body={})
        return str(answer["url"])

    def events(self, after: int | None = None) -> AsyncIterator[Event]:
        """Yield the crib's events after this number, or from now on if None, until the crib ends the stream."""
        return self._wire.events("/api/events", {"after": after})

    def export_audit(self, after: int | None = None, upto: int | None = None) -> AsyncIterator[bytes]:
        """Yield the audit chain as lines of JSON in pieces, oldest first."""
        return self._wire.lines("/api/audit/export", {"after": after, "upto": upto})


def _tool_path(ref: ToolRef) -> str:
    return path_to("/api/tools", *ref)


def _server_path(name: str) -> str:
    return path_to("/api/servers", name)


def _agent_path(agent_id: str) -> str:
    return path_to("/api/agents", agent_id)
