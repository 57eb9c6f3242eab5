"""Upstream tools for programs of others: `tools, errors = await discover_and_load(cwd)`.

Everything that may be used in a directory is connected, and its tools are given as objects that can be called. Every
call goes through the gate of a crib: of the one that holds the home if one runs, else of one that lives as long as the
tools are kept (`async with tools`, or `await tools.aclose()`).

Above: programs of others. Below: `host` for a crib of our own, `client` for one that runs. It must never call a server
past a gate.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import anyio

from toolcrib.client import Client
from toolcrib.errors import Unavailable
from toolcrib.home import find_holder, owner_token, prepare_home
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.settings import Environment, Settings, load_settings

CallTool = Callable[[ToolRef, JsonObject], Awaitable[CallResult]]


@dataclass(frozen=True, slots=True)
class BridgedTool:
    """One tool of a server, under a name that is unique among all: `await tool(city="Ulm")`."""

    name: str
    ref: ToolRef
    description: str
    input_schema: JsonObject
    title: str | None = None
    _call: CallTool = field(repr=False, kw_only=True)

    async def __call__(self, **arguments: Any) -> CallResult:
        """Call it; see `call`."""
        return await self.call(arguments)

    async def call(self, arguments: JsonObject) -> CallResult:
        """Call it through the gate. What the server reports as an error is a result that says so."""
        return await self._call(self.ref, arguments)


class BridgedTools(Sequence[BridgedTool]):
    """The tools, and the crib behind them; close it when they are not needed any more."""

    def __init__(self, tools: Sequence[BridgedTool], close: Callable[[], Awaitable[None]]) -> None:
        self._tools = tuple(tools)
        self._close = close

    async def aclose(self) -> None:
        """Let go of the crib; the tools cannot be called after that."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def named(self, name: str) -> BridgedTool | None:
        """The tool of this name."""
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
    """Connect every server that may be used in a directory; gives their tools, and per server why it has none.

    Only what is trusted and switched on is started. Servers of the built-in kind and Python tools are not among them.
    """
    known = environment or Environment.current()
    chosen = settings or load_settings(known, {}).settings
    directory = str(await anyio.Path(cwd).absolute())
    try:
        return await _embedded(chosen, known, directory)
    except Unavailable as error:
        if error.code != "crib.running":
            raise
    return await _joined(chosen, directory)


async def _embedded(settings: Settings, environment: Environment, cwd: str) -> tuple[BridgedTools, dict[str, str]]:
    """With a crib of our own, in a task of its own: whoever asked may close the tools from anywhere."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Crib] = loop.create_future()
    over = asyncio.Event()

    async def hold() -> None:
        try:
            async with Crib(settings, environment=environment) as crib:
                ready.set_result(crib)
                await over.wait()
        except BaseException as error:  # boundary: told to whoever waits for the crib, else to who closes it
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
        standings = await crib.links.check_all(Path(principal.cwd or cwd))
        upstream = {standing.entry.alias for standing in standings}

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
    return BridgedTools(tools, close), _errors([standing.to_json() for standing in standings])


async def _joined(settings: Settings, cwd: str) -> tuple[BridgedTools, dict[str, str]]:
    """With the crib that holds the home."""
    home = prepare_home(settings.home)
    holder = find_holder(home)
    if holder is None:
        raise Unavailable("home.busy", f"Somebody holds {home.root} and does not say where it can be reached.")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(holder.url, owner_token(home), source="api", cwd=cwd))
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
    """Why servers that somebody could want have no tools here; those that are switched off have none on purpose."""
    quiet = ("connected", "disabled", "shadowed")
    return {str(server["alias"]): str(server["sentence"]) for server in servers if server["state"] not in quiet}
