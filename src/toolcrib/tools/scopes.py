"""Values of providers: created once per scope, even under concurrency, and closed in reverse order.

Each value has its own task, which opens and closes it, as task groups and cancel scopes inside a provider require. A
cancelled caller therefore does not affect other users of the value. The scope owns these tasks; closing it ends them.

Must never keep a value that could not be created: the next call tries again.
"""

import asyncio
import inspect
import math
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import anyio

from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.tools.failures import explain
from toolcrib.tools.inject import Context, Graph, Recipe, ScopeName
from toolcrib.tools.signature import Key
from toolcrib.tools.threads import Threads

OPEN_SECONDS = 60.0
"""Timeout for creating a value."""
CLOSE_SECONDS = 10.0
"""Timeout for closing a whole scope."""
CLOSE_ONE_SECONDS = 3.0
"""Timeout for closing one value, after which it is cancelled."""
_LAST_WORDS = 1.0
"""Timeout for a cancelled value to end."""


class _Held:
    """One value, held open until `leave` is set. `ready` is set when it can be used or has failed."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.value: Any = None
        self.failure: BaseException | None = None
        self.reason: BaseException | None = None
        self.ready, self.leave, self.gone = anyio.Event(), anyio.Event(), anyio.Event()
        self.limit = anyio.CancelScope()
        self.task: asyncio.Task[None] | None = None


class Scope:
    """The values of one crib, session or call. `covers` lists the provider scopes whose values live here."""

    def __init__(
        self,
        covers: Collection[ScopeName],
        graph: Graph,
        threads: Threads,
        *,
        outer: "Scope | None" = None,
        context: Context | None = None,
    ) -> None:
        self._covers = covers
        self._graph = graph
        self._threads = threads
        self._outer = outer
        self._context = context
        self._held: dict[Key, _Held] = {}
        self._open: list[_Held] = []
        self._closed = False

    async def get(self, key: Key) -> Any:
        """Return the value of a key, from this scope or the wider one it belongs to."""
        if key is Context:
            return self._context
        recipe = self._graph[key]
        scope = self
        while recipe.provider.scope not in scope._covers and scope._outer is not None:
            scope = scope._outer
        return await scope._value(recipe)

    async def close(self, reason: BaseException | None = None, deadline: float = math.inf) -> ToolcribError | None:
        """Close all values, the last one first, within the timeout even if the caller is cancelled.

        `reason` is raised at the `yield` of each generator. Returns the first failure.
        """
        self._closed = True
        if not self._held:
            return None
        deadline = min(deadline, anyio.current_time() + CLOSE_SECONDS)
        failure: ToolcribError | None = None
        with anyio.CancelScope(shield=True):
            for held in [held for held in self._held.values() if held not in self._open]:
                held.limit.cancel()
                await _wait_closed(held, deadline)
            for held in reversed(self._open):
                held.reason = reason
                held.limit.deadline = min(deadline, anyio.current_time() + CLOSE_ONE_SECONDS)
                held.leave.set()
                await _wait_closed(held, held.limit.deadline)
                if held.failure is not None and failure is None:
                    failure = _failure(held.recipe, "failed to close", held.failure)
        return failure

    async def _value(self, recipe: Recipe) -> Any:
        if self._closed:
            raise Unavailable("crib.closed", f"{recipe} is closed.")
        held = self._held.get(recipe.key)
        if held is None:
            held = self._held[recipe.key] = _Held(recipe)
            held.task = asyncio.create_task(self._hold(held), name=str(recipe))
        if not held.ready.is_set():
            await held.ready.wait()
        if held.failure is not None:
            raise _failure(recipe, "failed", held.failure)
        return held.value

    async def _hold(self, held: _Held) -> None:
        """Open a value, hold it until `leave` is set, and close it."""
        try:
            with held.limit:
                held.limit.deadline = anyio.current_time() + OPEN_SECONDS
                needs = {name: await self.get(key) for name, key in held.recipe.needs.items()}
                async with _open_value(held.recipe.provider.factory, needs, self._threads) as value:
                    held.limit.deadline = math.inf
                    held.value = value
                    self._open.append(held)
                    held.ready.set()
                    await held.leave.wait()
                    if held.reason is not None:
                        raise held.reason
        except (Exception, SystemExit) as error:  # noqa: BLE001 boundary: a failing provider fails the call that needs it
            if error is not held.reason:
                held.failure = error
        finally:
            if held.limit.cancelled_caught and held.failure is None:
                held.failure = TimeoutError("not done in time")
            if not held.ready.is_set():
                self._held.pop(held.recipe.key)
                held.failure = held.failure or RuntimeError("it was cancelled")
            held.ready.set()
            held.gone.set()


async def _wait_closed(held: _Held, deadline: float) -> None:
    """Wait until a value is closed; one that ignores its cancellation is abandoned."""
    with anyio.CancelScope(deadline=deadline + _LAST_WORDS):
        await held.gone.wait()


def _failure(recipe: Recipe, what: str, error: BaseException) -> ToolcribError:
    if isinstance(error, ToolcribError) and error.code == "tool.failed":  # the failure of a value that this one needs
        return error
    hint = error.hint if isinstance(error, ToolcribError) else None
    failed = Unavailable("tool.failed", f"{recipe} {what}: {explain(error)}", hint)
    failed.__cause__ = error
    return failed


@asynccontextmanager
async def _open_value(factory: Any, needs: Mapping[str, Any], threads: Threads) -> AsyncGenerator[Any]:
    """Run a factory of any kind and yield its value."""
    if inspect.isasyncgenfunction(factory):
        async with asynccontextmanager(factory)(**needs) as value:
            yield value
    elif inspect.isgeneratorfunction(factory):
        async with _opened_in_thread(contextmanager(factory)(**needs), threads) as value:
            yield value
    elif inspect.iscoroutinefunction(factory):
        yield await factory(**needs)
    else:
        value = await threads.run(factory, **needs)
        yield await value if inspect.isawaitable(value) else value


@asynccontextmanager
async def _opened_in_thread(manager: AbstractContextManager[Any], threads: Threads) -> AsyncGenerator[Any]:
    value = await threads.run(manager.__enter__)
    try:
        yield value
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            if not await threads.run(manager.__exit__, type(error), error, error.__traceback__):
                raise
    else:
        await threads.run(manager.__exit__, None, None, None)
