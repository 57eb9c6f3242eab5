"""The crib's tools as in-process MCP servers of one session; every call goes to the host.

Must never answer a call itself, nor reveal internal errors to a model.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import TypeAdapter, ValidationError

from toolcrib.agents.sessions.claude.calls import ClaudeCalls
from toolcrib.agents.sessions.claude.mapping import ClaudeOutcome
from toolcrib.agents.sessions.runtime import Offered, SessionHost
from toolcrib.model.json import JsonObject, dumps
from toolcrib.model.protocol import META
from toolcrib.model.tools import CallResult
from toolcrib.model.version import __version__

logger = logging.getLogger(__name__)

FEW: Final = 20
"""Up to this many non-built-in tools are loaded for the model; with more, it has to search for them."""
LONGEST_CALL: Final = 100_000_000
"""Milliseconds; longer than any approval or call, which the gate limits."""
_TOOL_CALL = "claudecode/toolUseId"
_ALWAYS_LOAD = "anthropic/alwaysLoad"
_BLOCKS: Final[TypeAdapter[types.ContentBlock]] = TypeAdapter(types.ContentBlock)


class SessionSdkServer(TypedDict):
    """An entry of `ClaudeAgentOptions.mcp_servers`; fields unknown to the SDK are passed on to Claude Code."""

    type: str
    name: str
    instance: Server[Any]
    timeout: int
    disableAutoBackground: bool


def tool_name(offered: Offered) -> str:
    """Return the model's name for a tool."""
    return f"mcp__{offered.server}__{offered.name}"


def build_servers(tools: Sequence[Offered], host: SessionHost, calls: ClaudeCalls) -> dict[str, SessionSdkServer]:
    """Return one server per name, with the tools offered under it."""
    by_server: defaultdict[str, dict[str, Offered]] = defaultdict(dict)
    for offered in tools:
        by_server[offered.server][offered.name] = offered
    is_small = sum(offered.tool.kind != "builtin" for offered in tools) <= FEW
    return {
        name: {
            "type": "sdk",
            "name": name,
            "instance": _Served(offered, host, calls, is_small).server(name),
            "timeout": LONGEST_CALL,
            "disableAutoBackground": True,
        }
        for name, offered in by_server.items()
    }


class _Served:
    """The handlers of one server."""

    def __init__(self, offered: Mapping[str, Offered], host: SessionHost, calls: ClaudeCalls, is_small: bool) -> None:
        self._offered = offered
        self._host = host
        self._calls = calls
        self._listed = [tool for each in offered.values() if (tool := _definition(each, is_small)) is not None]

    def server(self, name: str) -> Server[Any]:
        """Return the server for the SDK."""
        return Server(name, version=__version__, on_list_tools=self._list, on_call_tool=self._call)

    async def _list(
        self, context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._listed)

    async def _call(
        self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        offered = self._offered.get(params.name)
        if offered is None:
            return _wire(CallResult.error(f"There is no tool {params.name!r}."))
        arguments = params.arguments or {}

        async def act(tool_call: str) -> CallResult:
            made = await self._host.call(offered, arguments, tool_call)
            self._calls.keep(tool_call, ClaudeOutcome(made.duration_ms, made.result))
            return made.for_model

        try:
            tool_call = (params.meta or {}).get(_TOOL_CALL)
            result = await self._calls.make(tool_call, tool_name(offered), arguments, act)
        except Exception:  # boundary: internal errors must not reach the model
            logger.exception("The call of %s in a session failed.", offered.tool.ref)
            result = CallResult.error("The call failed inside Toolcrib. See its log.")
        return _wire(result or CallResult.error("The call was cancelled."))


def _definition(offered: Offered, is_small: bool) -> types.Tool | None:
    """Return a tool's definition without its output schema: the gate validates results, and models do not see it."""
    definition: JsonObject = {**offered.tool.definition, "name": offered.name}
    definition.pop("outputSchema", None)
    meta: JsonObject = definition.get(META) or {}
    is_shown = offered.tool.marks.always_load or (is_small and offered.tool.kind != "builtin")
    definition[META] = {**meta, _ALWAYS_LOAD: is_shown}
    try:
        return types.Tool.model_validate(definition)
    except ValidationError as error:
        logger.warning("Could not list the tool %s in a session: %s", offered.tool.ref, error)
        return None


def _wire(result: CallResult) -> types.CallToolResult:
    """Convert a result, as far as Claude Code supports its parts."""
    if not result.is_final:
        return _wire(CallResult.error("The tool requests input beyond its arguments, which sessions do not support."))
    content = [_block(block) for block in result.content]
    structured = result.structured_content if result.has_structured and _is_text(result) else None
    return types.CallToolResult(content=content, is_error=result.is_error, structured_content=structured)


def _is_text(result: CallResult) -> bool:
    """Return whether all blocks are text: Claude Code shows structured content instead of blocks, hiding images."""
    return all(block.get("type") == "text" for block in result.content)


def _block(block: JsonObject) -> types.ContentBlock:
    if block.get("type") == "audio":
        return types.TextContent(text=f"[Audio ({block.get('mimeType', 'audio')}) cannot be played here.]")
    try:
        return _BLOCKS.validate_python(block)
    except ValidationError:  # an unknown kind of block: its JSON is better than nothing
        return types.TextContent(text=dumps(block, default=str).decode())
