"""Python tools as a source of the catalog: validates arguments, injects values, runs the function.

A call without injected parameters needs no scope. A failure of a tool or provider becomes an error result of that call;
cancellation propagates. The gate enforces the timeout.

Must never let a failing tool affect more than its own call.
"""

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Self

import anyio

from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import CallContext, RunCall
from toolcrib.model.tools import CallResult, ServerKind, Tool
from toolcrib.tools.define import ToolDefinition, ToolServer
from toolcrib.tools.failures import failure
from toolcrib.tools.inject import Context, Graph, Provider, ScopeName
from toolcrib.tools.scopes import CLOSE_SECONDS, Scope
from toolcrib.tools.signature import Key
from toolcrib.tools.threads import Threads

logger = logging.getLogger(__name__)

LAST_WORDS = 1.0
"""Seconds to wait for a cancelled call."""

_Values = dict[str, Any]
_ToolCall = Callable[[ToolDefinition, _Values, CallContext], Awaitable[CallResult]]


class PythonSource:
    """A `ToolServer` that can be called. Close it (`async with`, or `aclose`) to close the values of its providers.

    `shared` are providers of the host, which those of the server may shadow; `services` are available to `requires`.
    Raises `ConfigError` (`tool.definition`) if the providers are invalid.
    """

    def __init__(
        self, server: ToolServer, shared: Mapping[Key, Provider] | None = None, services: Collection[str] = ()
    ) -> None:
        self.server = server
        missing = {
            name: tuple(service for service in definition.requires if service not in services)
            for name, definition in server.definitions.items()
        }
        self.unmet: Mapping[str, tuple[str, ...]] = MappingProxyType({name: m for name, m in missing.items() if m})
        """Tools that are not offered: name → missing services."""
        offered = [definition for name, definition in server.definitions.items() if name not in self.unmet]
        self._graph = Graph({**(shared or {}), **server.provided})
        for definition in offered:
            self._graph.check(str(definition), definition.injected)
        self._tools = tuple(definition.tool(server.name, server.kind, server.timeout) for definition in offered)
        self._callables = {definition.name: (definition, self._caller_of(definition)) for definition in offered}
        self._threads = Threads()
        self._crib = self._scope("crib")
        self._sessions: dict[str, Scope] = {}
        self._calls = 0
        self._idle = anyio.Event()

    @property
    def name(self) -> str:
        """The server's name."""
        return self.server.name

    @property
    def kind(self) -> ServerKind:
        """Built-in or plugin."""
        return self.server.kind

    def tools(self) -> Sequence[Tool]:
        """Return the tools whose required services are available."""
        return self._tools

    def problems(self) -> Sequence[Problem]:
        """Return no problems: an invalid server is rejected earlier."""
        return ()

    def lacks(self, tool: str) -> str | None:
        """Return the unmet requirements of a tool; None if it is offered or unknown."""
        missing = [self.server.conditions.get(service, f"`{service}`") for service in self.unmet.get(tool, ())]
        return f"It needs {' and '.join(missing)}." if missing else None

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Validate and bind the arguments."""
        found = self._callables.get(tool)
        if found is None:
            raise NotFound("tool.unknown", f"Server `{self.name}` has no tool `{tool}`.")
        definition, call_tool = found
        return partial(self._run, definition, call_tool, definition.check(canonical))

    async def end_session(self, session: str) -> None:
        """Close the values of this session."""
        scope = self._sessions.pop(session, None)
        if scope is not None:
            await _close(scope)

    async def retire(self, grace: float) -> None:
        """Close when the running calls have finished, or after `grace` seconds."""
        self._idle = anyio.Event()
        if self._calls:
            with anyio.move_on_after(grace):
                await self._idle.wait()
        await self.aclose()

    async def aclose(self) -> None:
        """Close all values of providers, sessions first, within a timeout."""
        deadline = anyio.current_time() + CLOSE_SECONDS
        while self._sessions:
            await _close(self._sessions.popitem()[1], deadline=deadline)
        await _close(self._crib, deadline=deadline)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _caller_of(self, definition: ToolDefinition) -> _ToolCall:
        """Return how calls of this tool run; computed once."""
        call_tool = self._on_loop if inspect.iscoroutinefunction(definition.function) else self._in_thread
        if not definition.injected:
            return call_tool
        if all(key is Context for key in definition.injected.values()):
            return partial(self._with_context, call_tool)
        return partial(self._with_values, call_tool)

    async def _run(
        self, definition: ToolDefinition, call_tool: _ToolCall, values: _Values, call: CallContext
    ) -> CallResult:
        """Run a call in its own task, which is abandoned if it does not end on cancellation."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[CallResult] = loop.create_future()
        self._calls += 1
        running = loop.create_task(self._settle(outcome, definition, call_tool, values, call))
        running.add_done_callback(self._on_call_ended)
        try:
            return await outcome
        except asyncio.CancelledError:
            await self._stop(running, definition)
            raise

    async def _settle(
        self,
        outcome: "asyncio.Future[CallResult]",
        definition: ToolDefinition,
        call_tool: _ToolCall,
        values: _Values,
        call: CallContext,
    ) -> None:
        try:
            result = await call_tool(definition, values, call)
        except BaseException as error:  # noqa: BLE001 boundary: a tool may raise anything, even what is no `Exception`
            if isinstance(error, asyncio.CancelledError) and outcome.cancelled():
                return  # cancelled by the caller; otherwise something it awaited was cancelled
            result = self._failure(definition, error)
        if not outcome.done():
            outcome.set_result(result)

    async def _stop(self, running: asyncio.Task[None], definition: ToolDefinition) -> None:
        running.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running], timeout=LAST_WORDS)
        if not running.done():
            logger.error("Tool %s/%s was cancelled but does not end; it was abandoned", self.name, definition.name)

    def _on_call_ended(self, _: asyncio.Task[None]) -> None:
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    def _failure(self, definition: ToolDefinition, error: BaseException) -> CallResult:
        return failure(f"{self.name}/{definition.name}", error)

    async def _on_loop(self, definition: ToolDefinition, values: _Values, call: CallContext) -> CallResult:
        return definition.to_result(await definition.function(**values))

    async def _in_thread(self, definition: ToolDefinition, values: _Values, call: CallContext) -> CallResult:
        done = await self._threads.run(_call, definition, values)
        return done if isinstance(done, CallResult) else definition.to_result(await done)

    async def _with_context(
        self, call_tool: _ToolCall, definition: ToolDefinition, values: _Values, call: CallContext
    ) -> CallResult:
        context = Context.of(call)
        return await call_tool(definition, {**values, **dict.fromkeys(definition.injected, context)}, call)

    async def _with_values(
        self, call_tool: _ToolCall, definition: ToolDefinition, values: _Values, call: CallContext
    ) -> CallResult:
        scope = self._call_scope(call)
        try:
            filled = {name: await scope.get(key) for name, key in definition.injected.items()}
            result = await call_tool(definition, {**values, **filled}, call)
        except BaseException as error:
            await _close(scope, error if isinstance(error, Exception) else asyncio.CancelledError())
            raise
        failed = await scope.close()
        if failed is not None:
            raise failed
        return result

    def _call_scope(self, call: CallContext) -> Scope:
        session = call.principal.session
        if session is None or not self._graph.uses_sessions:
            return self._scope("call", "session", outer=self._crib, context=Context.of(call))
        if session not in self._sessions:
            self._sessions[session] = self._scope("session", outer=self._crib)
        return self._scope("call", outer=self._sessions[session], context=Context.of(call))

    def _scope(self, *covers: ScopeName, outer: Scope | None = None, context: Context | None = None) -> Scope:
        return Scope(covers, self._graph, self._threads, outer=outer, context=context)


def _call(definition: ToolDefinition, values: _Values) -> CallResult | Awaitable[object]:
    """Call a plain function in its thread; its result is converted there too, since it may be large."""
    value = definition.function(**values)
    return value if inspect.isawaitable(value) else definition.to_result(value)


async def _close(scope: Scope, reason: BaseException | None = None, deadline: float = math.inf) -> None:
    failed = await scope.close(reason, deadline)
    if failed is not None:
        logger.error("%s", failed, exc_info=failed)
