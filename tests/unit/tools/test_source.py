"""Calls of Python tools: results, failures, cancellation, threads."""

import asyncio
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

import anyio
import anyio.from_thread
import pytest

from lab import eventually
from toolcrib.model.errors import Denied, InvalidRequest, NotFound
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, ReportProgress, ToolSource
from toolcrib.model.tools import CallResult
from toolcrib.tools import Context, Inject, PythonSource, ToolServer, tool

pytestmark = pytest.mark.anyio

OWNER = Principal("owner", "owner", "cli")


class Panic(BaseException):
    """An exception that is not an `Exception`."""


async def call(
    function: Callable[..., Any], arguments: JsonObject | None = None, progress: ReportProgress | None = None
) -> CallResult:
    given = arguments or {}
    async with PythonSource(ToolServer("s", tools=[function])) as source:
        port: ToolSource = source
        run = port.prepare(port.tools()[0].ref.tool, given, canonical(given))
        with anyio.fail_after(5):
            return await run(CallContext(OWNER, "call-1", progress))


def error_of(result: CallResult) -> str:
    assert result.is_error
    (block,) = result.content
    return block["text"]


async def test_async_tool_runs_with_its_own_defaults() -> None:
    @tool
    async def echo(text: str, times: int = 2) -> dict[str, object]:
        return {"text": text * times}

    assert (await call(echo, {"text": "a"})).structured_content == {"text": "aa"}
    assert (await call(echo, {"text": "a", "times": 3})).structured_content == {"text": "aaa"}


async def test_async_tool_runs_on_the_loop() -> None:
    @tool
    async def where() -> bool:
        return asyncio.get_running_loop() is loop

    loop = asyncio.get_running_loop()
    assert (await call(where)).structured_content == {"result": True}


async def test_synchronous_tool_runs_in_a_thread() -> None:
    @tool
    def where() -> bool:
        return threading.current_thread() is not main

    main = threading.current_thread()
    assert (await call(where)).structured_content == {"result": True}


async def test_coroutine_returned_by_a_synchronous_tool_is_awaited() -> None:
    async def inner() -> str:
        return "done"

    @tool
    def outer() -> Awaitable[str]:
        return inner()

    assert await call(outer) == CallResult.text("done")


async def test_arguments_are_checked_before_the_function_runs() -> None:
    @tool
    def never(n: int) -> None:
        raise AssertionError(n)

    with pytest.raises(InvalidRequest, match="n: Input should be a valid integer"):
        await call(never, {"n": "1"})


async def test_unknown_tool_is_not_found() -> None:
    with pytest.raises(NotFound) as caught:
        PythonSource(ToolServer("s")).prepare("x", {}, b"{}")
    assert caught.value.code == "tool.unknown"


async def test_server_without_tools_is_a_source_without_tools() -> None:
    source = PythonSource(ToolServer("s"))
    assert (source.name, source.kind, source.tools(), source.problems()) == ("s", "plugin", (), ())


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
        (SystemExit(3), "SystemExit: 3"),
        (StopIteration(1), "RuntimeError: "),
        (ExceptionGroup("many", [ExceptionGroup("one", [ValueError("inner")])]), "ValueError: inner"),
        (Denied("policy.denied", "Not here.", "Elsewhere."), "Not here.\nHint: Elsewhere."),
        (ExceptionGroup("one", [Denied("policy.denied", "Not here.", "Elsewhere.")]), "Not here.\nHint: Elsewhere."),
        (ValueError("\ud800"), "ValueError: ?"),
        (TimeoutError("upstream"), "TimeoutError: upstream"),
        (Panic("a Rust extension's"), "Panic: a Rust extension's"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_exception_of_a_tool_is_an_error_result(
    caplog: pytest.LogCaptureFixture, is_async: bool, raised: BaseException, expected: str
) -> None:
    # The log becomes part of the test report, which cannot carry a lone surrogate between processes.
    caplog.set_level(logging.CRITICAL, "toolcrib.tools.failures")

    @tool(name="act")
    async def act() -> None:
        raise raised

    @tool(name="act")
    def act_in_thread() -> None:
        raise raised

    assert error_of(await call(act if is_async else act_in_thread)).startswith(expected)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
async def test_exception_that_would_end_the_loop_ends_only_the_call(raised: BaseException) -> None:
    @tool
    async def act() -> None:
        raise raised

    assert error_of(await call(act)) == type(raised).__name__


async def test_tool_that_cancels_its_own_task_has_failed() -> None:
    @tool
    async def act() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep_forever()

    assert error_of(await call(act)) == "CancelledError"


async def test_tool_that_ignores_its_cancellation_is_abandoned(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.tools.source.LAST_WORDS", 0.05)
    cancelled, may_end, ended = anyio.Event(), anyio.Event(), anyio.Event()

    @tool
    async def act() -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()
            cancelled.set()
        ended.set()

    try:
        with anyio.fail_after(5), anyio.move_on_after(0.05) as limit:
            await call(act)
    finally:
        may_end.set()  # otherwise the loop could not end after a failure
    assert limit.cancelled_caught
    assert cancelled.is_set()
    assert "Tool s/act was cancelled but does not end; it was abandoned" in caplog.messages
    with anyio.fail_after(5):
        await ended.wait()


async def test_cancelled_tool_may_clean_up() -> None:
    events: list[str] = []

    @tool
    async def act() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await asyncio.sleep(0.01)
            events.append("cleaned up")

    with anyio.fail_after(5), anyio.move_on_after(0.05):
        await call(act)
    assert events == ["cleaned up"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
async def test_base_exception_in_a_thread_does_not_reach_the_loop(raised: BaseException) -> None:
    @tool
    def act() -> None:
        raise raised

    assert error_of(await call(act)) == f"RuntimeError: {type(raised).__name__} was raised"


async def test_exception_without_a_message_is_named() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise AssertionError

    @tool
    async def act() -> None:
        raise Mute

    assert error_of(await call(act)) == "Mute"


async def test_long_message_is_cut() -> None:
    @tool
    async def act() -> None:
        raise ValueError("x" * 1_000_000)

    assert len(error_of(await call(act))) < 5_000


async def test_exception_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def act() -> None:
        raise ValueError("no such city")

    await call(act)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "Tool s/act failed")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_deliberate_failure_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def act() -> None:
        raise Denied("policy.denied", "Not here.")

    await call(act)
    (record,) = caplog.records
    assert record.exc_info is None


@pytest.mark.parametrize("is_async", [True, False])
async def test_invalid_result_is_an_error_result(is_async: bool) -> None:
    @tool(name="act")
    async def act() -> object:
        return object()

    @tool(name="act")
    def act_in_thread() -> object:
        return object()

    text = error_of(await call(act if is_async else act_in_thread))
    assert text.startswith("The tool returned a value that is not JSON")
    assert "\nHint: Return text" in text


async def test_cancelled_call_stays_cancelled() -> None:
    @tool
    async def hang() -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.01) as scope:
        await call(hang)
    assert scope.cancelled_caught


async def test_cancelled_task_stays_cancelled() -> None:
    started = anyio.Event()

    @tool
    async def hang() -> None:
        started.set()
        await anyio.sleep_forever()

    task = asyncio.create_task(call(hang))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError), anyio.fail_after(5):
        await task


async def test_cancellation_inside_the_tool_is_its_own_failure() -> None:
    @tool
    async def act() -> None:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    assert error_of(await call(act)) == "CancelledError"


async def test_hanging_synchronous_tool_is_abandoned_at_once() -> None:
    release = threading.Event()

    @tool
    def hang() -> None:
        release.wait(10)

    try:
        with anyio.fail_after(5), anyio.move_on_after(0.01) as scope:
            await call(hang)
        assert scope.cancelled_caught
    finally:
        release.set()


async def test_abandoned_threads_keep_their_slots_until_they_end() -> None:
    release = threading.Event()
    running: list[int] = []

    @tool
    def hang() -> None:
        running.append(1)
        release.wait(10)

    @tool
    def quick() -> str:
        return "done"

    async with PythonSource(ToolServer("s", tools=[hang, quick])) as source:

        async def run(name: str) -> CallResult:
            return await source.prepare(name, {}, b"{}")(CallContext(OWNER, "1"))

        try:
            async with anyio.create_task_group() as group:
                for _ in range(100):
                    group.start_soon(run, "hang")
                await eventually(lambda: len(running) == 40)
                group.cancel_scope.cancel()
            with anyio.move_on_after(0.05) as blocked:
                await run("quick")
            assert blocked.cancelled_caught
        finally:
            release.set()
        with anyio.fail_after(5):
            assert await run("quick") == CallResult.text("done")


async def test_context_has_the_caller_and_reports_progress() -> None:
    reports: list[tuple[float, float | None, str | None]] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        reports.append((done, total, message))

    @tool
    async def act(*, context: Annotated[Context, Inject]) -> str:
        await context.progress(1, 2, "half")
        return f"{context.principal.name} {context.call_id}"

    @tool
    def act_in_thread(*, context: Annotated[Context, Inject]) -> None:
        anyio.from_thread.run(context.progress, 2)

    assert await call(act, progress=report) == CallResult.text("owner call-1")
    assert await call(act_in_thread, progress=report) == CallResult()
    assert reports == [(1, 2, "half"), (2, None, None)]


async def test_progress_without_a_listener_is_dropped() -> None:
    @tool
    async def act(*, context: Annotated[Context, Inject]) -> None:
        await context.progress(1)

    assert await call(act) == CallResult()


async def test_many_calls_run_concurrently() -> None:
    waiting = 0
    all_called = anyio.Event()

    @tool
    async def meet(n: int) -> int:
        nonlocal waiting
        waiting += 1
        if waiting == 100:
            all_called.set()
        await all_called.wait()
        return n

    results: dict[int, CallResult] = {}
    async with PythonSource(ToolServer("s", tools=[meet])) as source:

        async def run(n: int) -> None:
            given = {"n": n}
            results[n] = await source.prepare("meet", given, canonical(given))(CallContext(OWNER, str(n)))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for n in range(100):
                    group.start_soon(run, n)
    assert {n: result.structured_content["result"] for n, result in results.items()} == {n: n for n in range(100)}


async def test_decorator_between_tool_and_function_is_applied() -> None:
    def shout(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return function(*args, **kwargs).upper()

        return wrapper

    @tool
    @shout
    def say(text: str) -> str:
        return text

    assert await call(say, {"text": "hi"}) == CallResult.text("HI")
