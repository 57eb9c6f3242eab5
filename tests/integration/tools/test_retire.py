"""Retiring a source: calls in flight complete first, then what its providers opened is closed."""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
import pytest

from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext
from toolcrib.tools import Inject, PythonSource, ToolServer, tool

pytestmark = pytest.mark.anyio


class Gatekeeper:
    """Lets a call continue on request, and records whether it was closed."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.entered = anyio.Event()
        self.closed = False


@tool
async def pass_through(*, keeper: Annotated[Gatekeeper, Inject]) -> bool:
    """Wait, then return whether the provider was still open."""
    keeper.entered.set()
    await keeper.go_on.wait()
    return not keeper.closed


def source_with(keeper: Gatekeeper) -> PythonSource:
    async def open_keeper() -> AsyncIterator[Gatekeeper]:
        yield keeper
        keeper.closed = True

    return PythonSource(ToolServer("gate", tools=[pass_through], providers={Gatekeeper: open_keeper}))


async def test_retired_source_closes_after_its_calls_complete() -> None:
    keeper = Gatekeeper()
    source = source_with(keeper)
    results: list[object] = []

    async def call() -> None:
        result = await source.prepare("pass_through", {}, b"{}")(CallContext(Principal("owner", "owner", "cli"), "1"))
        results.append(result.structured_content)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await keeper.entered.wait()
            tasks.start_soon(source.retire, 5)
            await anyio.wait_all_tasks_blocked()
            assert not keeper.closed
            keeper.go_on.set()
    assert (results, keeper.closed) == ([{"result": True}], True)


async def test_retired_source_closes_after_its_timeout() -> None:
    keeper = Gatekeeper()
    source = source_with(keeper)

    async def call() -> None:
        await source.prepare("pass_through", {}, b"{}")(CallContext(Principal("owner", "owner", "cli"), "1"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await keeper.entered.wait()
            await source.retire(0.01)
            assert keeper.closed
            tasks.cancel_scope.cancel()
