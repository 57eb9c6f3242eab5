"""Lifetimes of provided values: made once per scope, closed in reverse order, never cached after a failure."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from deadlines import stretched
from toolcrib.model.errors import Unavailable
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext
from toolcrib.model.tools import CallResult
from toolcrib.tools import Context, Inject, Provider, PythonSource, ToolServer, tool
from toolcrib.tools.inject import ScopeName

pytestmark = pytest.mark.anyio


@dataclass
class Value:
    number: int


@dataclass
class Pool:
    name: str = "pool"


@tool
async def use(*, value: Annotated[Value, Inject]) -> int:
    return value.number


@tool
async def fail(*, value: Annotated[Value, Inject]) -> None:
    raise LookupError(f"not {value.number}")


@tool
async def hang(*, value: Annotated[Value, Inject]) -> None:
    await anyio.sleep_forever()


@tool
def use_in_thread(*, value: Annotated[Value, Inject]) -> int:
    return value.number


class Log:
    """Counts opened values and records events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.opened = 0

    def open(self) -> Value:
        self.opened += 1
        self.events.append(f"open {self.opened}")
        return Value(self.opened)

    async def generator(self) -> AsyncIterator[Value]:
        value = self.open()
        try:
            yield value
        except BaseException as error:
            self.events.append(f"{type(error).__name__} {value.number}")
            raise
        finally:
            await anyio.lowlevel.checkpoint()
            self.events.append(f"close {value.number}")

    def plain_generator(self) -> Iterator[Value]:
        value = self.open()
        try:
            yield value
        except BaseException as error:
            self.events.append(f"{type(error).__name__} {value.number}")
            raise
        finally:
            self.events.append(f"close {value.number}")

    async def function(self) -> Value:
        return self.open()


def source_of(
    provider: Provider | Callable[..., Any], others: Mapping[Any, Provider | Callable[..., Any]] | None = None
) -> PythonSource:
    tools = [use, fail, hang, use_in_thread]
    return PythonSource(ToolServer("s", tools=tools, providers={Value: provider, **(others or {})}))


async def call(source: PythonSource, name: str = "use", session: str | None = None) -> CallResult:
    principal = Principal("session", "a", "agent", session=session)
    with anyio.fail_after(5):
        return await source.prepare(name, {}, b"{}")(CallContext(principal, "call-1"))


async def number(source: PythonSource, session: str | None = None) -> int:
    result = await call(source, session=session)
    assert not result.is_error, result
    return result.structured_content["result"]


def error_of(result: CallResult) -> str:
    assert result.is_error
    return result.content[0]["text"]


@pytest.mark.parametrize("kind", ["open", "function", "generator", "plain_generator"])
async def test_every_kind_of_factory_makes_a_value_once_per_crib(kind: str) -> None:
    log = Log()
    async with source_of(getattr(log, kind)) as source:
        assert [await number(source), await number(source), await number(source, "s1")] == [1, 1, 1]
        assert log.events == ["open 1"]
    assert log.events == (["open 1", "close 1"] if "generator" in kind else ["open 1"])


async def test_class_can_be_a_factory() -> None:
    @dataclass
    class Made(Value):
        number: int = 7

    async with source_of(Made) as source:
        assert await number(source) == 7


async def test_call_scope_makes_and_closes_a_value_per_call() -> None:
    log = Log()
    async with source_of(Provider(log.generator, scope="call")) as source:
        assert [await number(source), await number(source, "s1")] == [1, 2]
        assert log.events == ["open 1", "close 1", "open 2", "close 2"]


async def test_session_scope_lives_until_the_session_ends() -> None:
    log = Log()
    async with source_of(Provider(log.generator, scope="session")) as source:
        assert [await number(source, s) for s in ("a", "b", "a")] == [1, 2, 1]
        await source.end_session("a")
        await source.end_session("unknown")
        assert log.events == ["open 1", "open 2", "close 1"]
        assert await number(source, "a") == 3
    assert sorted(log.events[4:]) == ["close 2", "close 3"]


async def test_session_scope_without_a_session_lives_for_the_call() -> None:
    log = Log()
    async with source_of(Provider(log.generator, scope="session")) as source:
        assert [await number(source), await number(source)] == [1, 2]
        assert log.events == ["open 1", "close 1", "open 2", "close 2"]


@pytest.mark.parametrize("scope", ["crib", "session"])
async def test_concurrent_calls_share_one_value(scope: ScopeName) -> None:
    log = Log()
    go = anyio.Event()

    async def slow() -> Value:
        value = log.open()
        await go.wait()
        return value

    async with source_of(Provider(slow, scope=scope)) as source:
        results: list[int] = []

        async def run() -> None:
            results.append(await number(source, "s1"))

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            go.set()
        assert results == [1] * 50


async def test_cancelled_caller_does_not_cancel_the_value_for_others() -> None:
    log = Log()
    go = anyio.Event()

    async def slow() -> Value:
        value = log.open()
        await go.wait()
        return value

    async with source_of(slow) as source:
        with anyio.move_on_after(0.01) as gave_up:
            await call(source)
        assert gave_up.cancelled_caught
        go.set()
        assert await number(source) == 1


async def test_failed_value_is_an_error_result_and_is_not_cached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[int] = []

    async def flaky() -> Value:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("no route")
        return Value(5)

    async with source_of(flaky) as source:
        text = error_of(await call(source))
        assert text.startswith("Provider `test_failed_value")
        assert "flaky` of Value failed: OSError: no route" in text
        assert "OSError" in caplog.text
        assert await number(source) == 5


@pytest.mark.parametrize("raised", [SystemExit(1), StopIteration(), KeyError("x"), asyncio.CancelledError()])
async def test_any_exception_of_a_factory_fails_only_its_call(raised: BaseException) -> None:
    async def broken() -> Value:
        raise raised

    def broken_in_thread() -> Value:
        raise raised

    async def empty() -> AsyncIterator[Value]:
        if raised:
            return
        yield Value(1)

    for factory in (broken, broken_in_thread, empty):
        async with source_of(factory) as source:
            assert "of Value failed: " in error_of(await call(source))


async def test_providers_use_each_other_and_close_in_reverse_order() -> None:
    events: list[str] = []

    async def open_pool() -> AsyncIterator[Pool]:
        events.append("open pool")
        yield Pool()
        events.append("close pool")

    async def open_value(pool: Annotated[Pool, Inject]) -> AsyncIterator[Value]:
        events.append(f"open value on {pool.name}")
        yield Value(1)
        events.append("close value")

    async with source_of(open_value, {Pool: open_pool}) as source:
        assert await number(source) == 1
    assert events == ["open pool", "open value on pool", "close value", "close pool"]


async def test_values_of_narrower_scopes_close_before_those_they_use() -> None:
    events: list[str] = []

    async def open_pool() -> AsyncIterator[Pool]:
        yield Pool()
        events.append("close pool")

    def open_value(pool: Annotated[Pool, Inject], context: Annotated[Context, Inject]) -> Iterator[Value]:
        events.append(f"open for {context.session}")
        yield Value(1)
        events.append("close value")

    async with source_of(Provider(open_value, scope="call"), {Pool: Provider(open_pool, scope="session")}) as source:
        assert await number(source, "s1") == 1
        assert await number(source, "s1") == 1
    assert events == ["open for s1", "close value", "open for s1", "close value", "close pool"]


async def test_users_of_a_call_scope_share_one_value_per_call() -> None:
    log = Log()

    @dataclass
    class Both:
        value: Annotated[Value, Inject]

    @tool
    async def same(*, value: Annotated[Value, Inject], both: Annotated[Both, Inject]) -> bool:
        return value is both.value

    providers: dict[Any, Provider] = {
        Value: Provider(log.function, scope="call"),
        Both: Provider(Both, scope="call"),
    }
    async with PythonSource(ToolServer("s", tools=[same], providers=providers)) as source:
        assert (await call(source, "same")).structured_content == {"result": True}


async def test_failing_dependency_is_named_as_the_cause() -> None:
    def open_pool() -> Pool:
        raise PermissionError("closed to you")

    def open_value(pool: Annotated[Pool, Inject]) -> Value:
        raise AssertionError(pool)

    async with source_of(open_value, {Pool: open_pool}) as source:
        text = error_of(await call(source))
        assert "open_pool` of Pool failed: PermissionError: closed to you" in text


@pytest.mark.parametrize("kind", ["generator", "plain_generator"])
async def test_failure_of_a_call_is_raised_at_the_yield_of_its_values(kind: str) -> None:
    log = Log()
    async with source_of(Provider(getattr(log, kind), scope="call")) as source:
        assert error_of(await call(source, "fail")) == "LookupError: not 1"
    assert log.events == ["open 1", "LookupError 1", "close 1"]


@pytest.mark.parametrize("kind", ["generator", "plain_generator"])
async def test_cancelled_call_closes_its_values_and_stays_cancelled(kind: str) -> None:
    log = Log()
    async with source_of(Provider(getattr(log, kind), scope="call")) as source:
        with anyio.move_on_after(stretched(0.2)) as scope:
            await call(source, "hang")
        assert scope.cancelled_caught
        assert log.events == ["open 1", "CancelledError 1", "close 1"]


async def test_call_fails_even_if_a_value_suppresses_its_exception() -> None:
    async def forgiving() -> AsyncIterator[Value]:
        with suppress(LookupError):
            yield Value(1)

    async with source_of(Provider(forgiving, scope="call")) as source:
        assert error_of(await call(source, "fail")) == "LookupError: not 1"


async def test_value_that_fails_to_close_fails_its_call() -> None:
    async def transaction() -> AsyncIterator[Value]:
        yield Value(1)
        raise OSError("commit failed")

    async with source_of(Provider(transaction, scope="call")) as source:
        assert "failed to close: OSError: commit failed" in error_of(await call(source))


async def test_value_that_fails_to_close_with_the_crib_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    events: list[str] = []

    async def open_pool() -> AsyncIterator[Pool]:
        yield Pool()
        events.append("close pool")

    async def open_value(pool: Annotated[Pool, Inject]) -> AsyncIterator[Value]:
        yield Value(1)
        raise OSError("gone")

    async with source_of(open_value, {Pool: open_pool}) as source:
        await call(source)
    assert events == ["close pool"]
    assert "failed to close: OSError: gone" in caplog.text


async def test_value_may_hold_a_task_group_and_a_time_limit() -> None:
    async def background() -> AsyncIterator[Value]:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                yield Value(1)
                group.cancel_scope.cancel()

    for scope in ("crib", "session", "call"):
        async with source_of(Provider(background, scope=scope)) as source:
            async with anyio.create_task_group() as group:
                group.start_soon(call, source)
            assert await number(source, "s1") == 1


async def test_hanging_close_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.tools.scopes.CLOSE_ONE_SECONDS", 0.01)
    release = threading.Event()

    async def stuck() -> AsyncIterator[Value]:
        yield Value(1)
        await anyio.sleep_forever()

    def stuck_in_thread(value: Annotated[Pool, Inject]) -> Iterator[Value]:
        yield Value(1)
        release.wait(10)

    try:
        with anyio.fail_after(5):
            async with source_of(stuck) as source:
                await call(source)
            async with source_of(stuck_in_thread, {Pool: Pool}) as source:
                await call(source)
    finally:
        release.set()


async def test_hanging_factory_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.tools.scopes.OPEN_SECONDS", 0.01)

    async def stuck() -> Value:
        await anyio.sleep_forever()
        return Value(1)

    async with source_of(stuck) as source:
        assert "TimeoutError" in error_of(await call(source))


async def test_closing_the_source_ends_factories_in_progress() -> None:
    began = anyio.Event()
    ended: list[str] = []

    async def slow() -> AsyncIterator[Value]:
        began.set()
        try:
            await anyio.sleep_forever()
            yield Value(1)
        finally:
            ended.append("slow")

    with anyio.fail_after(5):
        async with source_of(slow) as source, anyio.create_task_group() as group:
            group.start_soon(call, source)
            await began.wait()
            await source.aclose()
    assert ended == ["slow"]


async def test_closed_source_provides_no_values() -> None:
    source = source_of(lambda: Value(1))
    assert await number(source) == 1
    await source.aclose()
    assert "is closed" in error_of(await call(source))


async def test_injected_parameter_may_have_any_name() -> None:
    def make(function: Annotated[Pool, Inject], self: Annotated[Pool, Inject]) -> Value:
        return Value(len({function.name, self.name}))

    async with source_of(make, {Pool: Pool}) as source:
        assert await number(source) == 1


async def test_source_can_be_closed_by_a_cancelled_task() -> None:
    log = Log()
    with anyio.CancelScope() as scope:
        async with source_of(log.generator) as source:
            await call(source)
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert log.events == ["open 1", "close 1"]


async def test_synchronous_tool_gets_injected_values() -> None:
    async with source_of(lambda: Value(3)) as source:
        assert (await call(source, "use_in_thread")).structured_content == {"result": 3}


async def test_deliberate_failure_of_a_factory_keeps_its_hint() -> None:
    async def broken() -> Value:
        raise Unavailable("database.unavailable", "The database is away.", "Wait.")

    async with source_of(broken) as source:
        text = error_of(await call(source))
        assert "The database is away." in text
        assert text.endswith("Hint: Wait.")
