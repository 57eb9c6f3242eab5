"""Records a server: what it offers, and the results of chosen calls, which go through the gate."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolcrib.agents.sessions.recording.recording import Mask, masked_members
from toolcrib.host.crib import Crib
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.upstream.server_double import server_recording


class ToolCallRequest(NamedTuple):
    """A call to record."""

    tool: str
    arguments: JsonObject


async def record_server(
    crib: Crib, principal: Principal, name: str, calls: Sequence[ToolCallRequest], mask: Mask
) -> JsonObject:
    """Connect a server, make these calls, and return the recording. Secrets are masked.

    Raises what connecting and calling raise: an error result is recorded, a refused call ends the recording.
    """
    asking = await crib.placed(principal)
    place = Path(asking.cwd) if asking.cwd is not None else None
    server = await crib.servers.find(name, place)
    await crib.upstreams.test(server.alias, place)
    source = crib.pool.find(server.alias, place)
    if source is None or source.offer is None:
        raise Unavailable("server.not_checked", f'Server "{name}" is not connected, so it cannot be recorded.')
    exchanges: list[JsonObject] = []
    for call in calls:
        await crib.ready(asking, server.alias, call.tool)
        made = await crib.gate.call(asking, ToolRef(server.alias, call.tool), call.arguments, door="api")
        params: JsonObject = {"name": call.tool, "arguments": call.arguments}
        exchanges.append({"method": "tools/call", "params": params, "result": made.result.to_json()})
    return masked_members(server_recording(server.name, source.offer, exchanges), mask)
