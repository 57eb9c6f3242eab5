"""The tool of the server `toolcrib` that lists servers and their state.

The owner sees all configured servers; other callers see only servers with a tool they may use.

Must never connect to a server.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from toolcrib.gate.gate import Gate
from toolcrib.model.json import JsonObject
from toolcrib.servers.server_status import ServerStatus
from toolcrib.tools import Context, Inject, tool
from toolcrib.upstream.operations import UpstreamOperations


@dataclass(frozen=True, slots=True)
class ServerDirectory:
    """The servers of a crib."""

    upstreams: UpstreamOperations
    gate: Gate


@tool(read_only=True, title="List servers")
async def list_servers(
    *, context: Annotated[Context, Inject], directory: Annotated[ServerDirectory, Inject]
) -> dict[str, object]:
    """List all servers. Use it when a tool is missing, to see whether its server is connected.

    Returns name, type, state, number of tools and the next action for each.
    """
    principal = context.principal
    is_owner = principal.is_owner and principal.agent is None and principal.session is None
    seen = directory.gate.servers(principal)
    statuses = await directory.upstreams.list(Path(principal.cwd) if principal.cwd else None)
    shown = [_upstream(each) for each in statuses if is_owner or each.entry.alias in seen]
    tools = [tool for tool in directory.gate.listing(principal).tools if tool.kind != "upstream"]
    kinds = {tool.ref.server: tool.kind for tool in tools}
    counts = Counter(tool.ref.server for tool in tools)
    inside = [{"name": name, "type": kind, "state": "connected", "tools": counts[name]} for name, kind in kinds.items()]
    return {"servers": [*inside, *shown]}


def _upstream(status: ServerStatus) -> JsonObject:
    names = ("name", "alias", "type", "state", "tools", "sentence", "action")
    shape = status.to_json()
    return {name: shape[name] for name in names if name in shape}
