"""The crib's tools as MCP servers inside this process, built for one session: every call of them is the desk's.

Above: `runner`. Below: the desk, `calls`, and the official SDK's server. It must never answer a call itself, nor tell
a model what went wrong inside the crib.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import mcp.types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import TypeAdapter, ValidationError

from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import META
from toolcrib.model.tools import CallResult
from toolcrib.sessions.claude.calls import Calls
from toolcrib.sessions.claude.mapping import Outcome
from toolcrib.sessions.runner import Desk, Offered
from toolcrib.version import __version__

logger = logging.getLogger(__name__)

FEW: Final = 20
"""So many tools beside the built-in ones are shown to the model at once; of more, it looks for those it needs."""
LONGEST_CALL: Final = 100_000_000
"""Milliseconds; longer than any approval and any tool, which the gate bounds both."""
_TOOL_CALL = "claudecode/toolUseId"
_ALWAYS_LOAD = "anthropic/alwaysLoad"
_BLOCKS: Final[TypeAdapter[types.ContentBlock]] = TypeAdapter(types.ContentBlock)


class SdkServer(TypedDict):
    """An entry of `ClaudeAgentOptions.mcp_servers`; what the SDK does not know of it reaches Claude Code."""

    type: str
    name: str
    instance: Server[Any]
    timeout: int
    disableAutoBackground: bool


def tool_name(offered: Offered) -> str:
    """What the model calls it."""
    return f"mcp__{offered.server}__{offered.name}"


def build_servers(tools: Sequence[Offered], desk: Desk, calls: Calls) -> dict[str, SdkServer]:
    """One server per name, with the tools offered under it."""
    by_server: defaultdict[str, dict[str, Offered]] = defaultdict(dict)
    for offered in tools:
        by_server[offered.server][offered.name] = offered
    is_small = sum(offered.tool.kind != "builtin" for offered in tools) <= FEW
    return {
        name: {
            "type": "sdk",
            "name": name,
            "instance": _Served(offered, desk, calls, is_small).server(name),
            "timeout": LONGEST_CALL,
            "disableAutoBackground": True,
        }
        for name, offered in by_server.items()
    }


class _Served:
    """The handlers of one server."""

    def __init__(self, offered: Mapping[str, Offered], desk: Desk, calls: Calls, is_small: bool) -> None:
        self._offered = offered
        self._desk = desk
        self._calls = calls
        self._listed = [tool for each in offered.values() if (tool := _definition(each, is_small)) is not None]

    def server(self, name: str) -> Server[Any]:
        """The server as the SDK takes it."""
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
            made = await self._desk.call(offered, arguments, tool_call)
            self._calls.keep(tool_call, Outcome(made.duration_ms, made.result))
            return made.result

        try:
            tool_call = (params.meta or {}).get(_TOOL_CALL)
            result = await self._calls.make(tool_call, tool_name(offered), arguments, act)
        except Exception:  # boundary: the words of a failure in here are not for models
            logger.exception("The call of %s in a session failed.", offered.tool.ref)
            result = CallResult.error("The call failed inside Toolcrib; its log says why.")
        return _wire(result or CallResult.error("The call was given up."))


def _definition(offered: Offered, is_small: bool) -> types.Tool | None:
    """A tool as it is listed. Its output schema is not: the gate has judged the result, and models are not shown it."""
    definition: JsonObject = {**offered.tool.definition, "name": offered.name}
    definition.pop("outputSchema", None)
    meta: JsonObject = definition.get(META) or {}
    is_shown = offered.tool.marks.always_load or (is_small and offered.tool.kind != "builtin")
    definition[META] = {**meta, _ALWAYS_LOAD: is_shown}
    try:
        return types.Tool.model_validate(definition)
    except ValidationError as error:
        logger.warning("The tool %s cannot be listed in a session: %s", offered.tool.ref, error)
        return None


def _wire(result: CallResult) -> types.CallToolResult:
    """A result with all its parts, as far as Claude Code can take them up."""
    if not result.is_final:
        return _wire(CallResult.error("The tool asks for more than its arguments, which cannot be given in a session."))
    content = [_block(block) for block in result.content]
    structured = result.structured_content if result.has_structured and _is_text(result) else None
    return types.CallToolResult(content=content, is_error=result.is_error, structured_content=structured)


def _is_text(result: CallResult) -> bool:
    """Claude Code shows a model the structured content instead of the blocks, so it must not stand for images."""
    return all(block.get("type") == "text" for block in result.content)


def _block(block: JsonObject) -> types.ContentBlock:
    if block.get("type") == "audio":
        return types.TextContent(text=f"[A sound ({block.get('mimeType', 'audio')}) that cannot be heard here.]")
    try:
        return _BLOCKS.validate_python(block)
    except ValidationError:  # of another server's making: better in its own words than not at all
        return types.TextContent(text=orjson.dumps(block, default=str).decode())
