"""Upstream tools for other programs: `tools, errors = await discover_and_load(cwd)`.

Connects all servers available in a directory and returns their tools as callable objects. Every call goes through the
gate: of the crib that holds the home, or of an embedded one that lives until the tools are closed (`async with tools`,
or `await tools.aclose()`).

Must never call a server without the gate.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import anyio

from toolcrib.base.home import find_holder, owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings, load_settings
from toolcrib.host import Crib
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.web.api_client.api_client import ApiClient

CallTool = Callable[[ToolRef, JsonObject], Awaitable[CallResult]]


@dataclass(frozen=True, slots=True)
class BridgedTool:
    """One tool of a server, with a name unique among all: `await tool(city="Ulm")`."""

    name: str
    ref: ToolRef
    description: str
    input_schema: JsonObject
    title: str | None = None
    _call: CallTool = field(repr=False, kw_only=True)

    async def __call__(self, **arguments: Any) -> CallResult:
        """Call the tool; see `call`."""
        return await self.call(arguments)

    async def call(self, arguments: JsonObject) -> CallResult:
        """Call the tool through the gate and return the result, which may be an error result."""
        return await self._call(self.ref, arguments)


class BridgedTools(Sequence[BridgedTool]):
    """The tools and the crib behind them; close it when they are no longer needed."""

    def __init__(self, tools: Sequence[BridgedTool], close: Callable[[], Awaitable[None]]) -> None:
        self._tools = tuple(tools)
        self._close = close

    async def aclose(self) -> None:
        """Close the crib; the tools cannot be called afterwards."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def named(self, name: str) -> BridgedTool | None:
        """Return the tool with this name, or None."""
        return next((tool for tool in self._tools if tool.name == name), None)

    @overload
    def __getitem__(self, index: int) -> BridgedTool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BridgedTool]: ...
    def __getitem__(self, index: int | slice) -> BridgedTool | Sequence[BridgedTool]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)


async def discover_and_load(
    cwd: str | Path, *, settings: Settings | None = None, environment: Environment | None = None
) -> tuple[BridgedTools, dict[str, str]]:
    """Connect all servers available in a directory; return their tools, and the reason per server without tools.

    Only trusted and enabled servers are started. Built-in servers and Python tools are not included.
    """
    known = environment or Environment.current()
    chosen = settings or load_settings(known, {}).settings
    directory = str(await anyio.Path(cwd).absolute())
    try:
        return await _load_embedded(chosen, known, directory)
    except Unavailable as error:
        if error.code != "crib.running":
            raise
    return await _load_joined(chosen, directory)


async def _load_embedded(settings: Settings, environment: Environment, cwd: str) -> tuple[BridgedTools, dict[str, str]]:
    """Use an embedded crib, which runs in its own task so that the tools can be closed from any task."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Crib] = loop.create_future()
    over = asyncio.Event()

    async def hold() -> None:
        try:
            async with Crib(settings, environment=environment) as crib:
                ready.set_result(crib)
                await over.wait()
        except BaseException as error:  # boundary: raised to the waiting caller, else by `close`
            if ready.done():
                raise
            ready.set_exception(error)

    task = loop.create_task(hold())

    async def close() -> None:
        over.set()
        await task

    crib = await asyncio.shield(ready)
    try:
        principal = await crib.placed(crib.owner(cwd=cwd))
        statuses = await crib.upstreams.check_all(Path(principal.cwd or cwd))
        upstream = {status.entry.alias for status in statuses}

        async def call(ref: ToolRef, arguments: JsonObject) -> CallResult:
            return await crib.call(ref, arguments, principal=principal)

        tools = [
            BridgedTool(
                crib.gate.name("bridge", tool.ref),
                tool.ref,
                tool.description,
                tool.input_schema,
                tool.title,
                _call=call,
            )
            for tool in crib.gate.listing(principal).tools
            if tool.ref.server in upstream
        ]
    except BaseException:
        await close()
        raise
    return BridgedTools(tools, close), _errors([status.to_json() for status in statuses])


async def _load_joined(settings: Settings, cwd: str) -> tuple[BridgedTools, dict[str, str]]:
    """Use the crib that holds the home."""
    home = prepare_home(settings.home)
    holder = find_holder(home)
    if holder is None:
        raise Unavailable("home.busy", f"{home.root} is in use by a process whose address is unknown.")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ApiClient(holder.url, owner_token(home), source="api", cwd=cwd))
        servers = await client.test_servers()
        upstream = {server["alias"] for server in servers}

        async def call(ref: ToolRef, arguments: JsonObject) -> CallResult:
            return CallResult.of_wire(await client.call(ref, arguments))

        tools = [
            BridgedTool(
                shape["exposedName"],
                ToolRef(shape["server"], shape["name"]),
                shape["description"],
                shape["inputSchema"],
                shape.get("title"),
                _call=call,
            )
            for shape in await client.tools(form="bridge")
            if shape["server"] in upstream
        ]
        return BridgedTools(tools, stack.pop_all().aclose), _errors(servers)


def _errors(servers: Sequence[JsonObject]) -> dict[str, str]:
    """Return why servers have no tools, except those that are disabled or shadowed."""
    quiet = ("connected", "disabled", "shadowed")
    return {str(server["alias"]): str(server["sentence"]) for server in servers if server["state"] not in quiet}
