"""Failing servers: only their own calls fail, restarts back off, and they recover."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.upstream.upstream.harness import (
    QUICK,
    PoolHarness,
    call,
    discovery_of,
    entry,
    open_harness,
    text_of,
    upstream_spec,
)
from toolcrib.base.processes.process import Processes
from toolcrib.model.errors import ToolcribError
from toolcrib.model.servers import ServerSpec
from toolcrib.model.tools import CallResult

pytestmark = pytest.mark.anyio

HEALTHY = upstream_spec("legacy", "plain", name="healthy")


async def test_invalid_tools_are_reported_and_valid_ones_kept(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "flawed"))
    tools = {tool.ref.tool: tool for tool in source.tools()}
    assert {"good", "no schema", "odd schema", "odd type", "deep", "bulky", "wordy", "remote", "last"} <= set(tools)
    assert not tools["good"].problems and not tools["last"].problems
    assert tools["good"].extra == {"future": [1], "_meta": {"a": 1}}
    assert tools["no properties"].input_schema == {"type": "object", "properties": {}}
    assert not tools["no properties"].problems
    for name in ("no schema", "odd schema", "odd type", "deep", "bulky"):
        assert tools[name].input_schema == {"type": "object", "properties": {}}
        assert [problem.code for problem in tools[name].problems] == ["tool.upstream"]
    assert len(tools["wordy"].description.encode()) < 66_000 and tools["wordy"].problems
    assert "not fetched" in tools["remote"].problems[0].message
    assert (tools["last"].marks.read_only, tools["last"].marks.destructive) == (False, True)
    assert len(source.problems()) == 6  # four without a name, one twice, one with far too long a name


@pytest.mark.parametrize(
    ("words", "count", "reason"),
    [
        (("endless",), 100, "more than 100 pages"),
        (("repeats",), 2, "repeats a page"),
        (("many", "10500"), 10_000, "more than 10000 items"),
        (("many", "10000"), 10_000, None),
    ],
)
async def test_endless_list_is_truncated_and_the_rest_is_used(
    harness: PoolHarness, words: tuple[str, ...], count: int, reason: str | None
) -> None:
    source = await harness.connect(upstream_spec("legacy", *words))
    assert len(source.tools()) == count
    assert [reason is not None and reason in problem.message for problem in source.problems()] == [True] * bool(reason)


@pytest.mark.parametrize("step", ["server/discover", "initialize", "tools/list", "prompts/list"])
async def test_exit_while_connecting_is_reported_with_its_exit_code(harness: PoolHarness, step: str) -> None:
    harness.pool.reconcile(None, discovery_of(upstream_spec("legacy", "leaves", step, name="leaver"), HEALTHY))
    await harness.until_state("healthy", "connected")
    if step == "server/discover":  # discovery then falls back to the legacy era
        await harness.until_state("leaver", "connected")
        return
    status = (await harness.until_state("leaver", "failed")).status
    assert status.exited_with == 3
    assert "exit code 3" in status.sentence and status.action == "toolcrib mcp test leaver"
    assert text_of(await call(harness.source("healthy"), "grow")) == "1"


async def test_server_that_keeps_failing_is_not_retried_until_it_is_tested(harness: PoolHarness) -> None:
    spec = upstream_spec("legacy", "leaves", "initialize")
    harness.pool.reconcile(None, discovery_of(spec))
    await harness.until(lambda: harness.states.count(("legacy", "failed")) == 5)
    source = harness.source("legacy")
    assert source.status.retry_at is not None and "Retrying automatically" not in source.status.sentence
    with pytest.raises(ToolcribError, match=r'Failed to connect to "legacy": .* Next attempt in') as raised:
        await source.upstream.ensure()
    assert raised.value.code == "server.ended"
    assert harness.states.count(("legacy", "failed")) == 5
    assert (await harness.pool.test(entry(spec))).state == "failed"
    assert harness.states.count(("legacy", "failed")) == 6


async def test_killed_server_fails_only_its_own_calls_and_restarts(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain", name="victim"), HEALTHY)
    healthy, answers, before = harness.source("healthy"), list[CallResult](), list[int]()

    async def hang() -> None:
        answers.append(await call(source, "sleep"))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(hang)
        before.append(int(text_of(await call(source, "pid"))))
        os.kill(before[0], signal.SIGKILL)
        for number in range(10):
            assert (await call(healthy, "echo", number=number)).structured_content == {"number": number}
    for answer in answers:
        assert answer.is_error and "SIGKILL" in text_of(answer) and text_of(answer).startswith("MCP error: ")
    await harness.until(lambda: source.status.pid not in (before[0], None))
    assert int(text_of(await call(source, "pid"))) != before[0]
    assert "SIGKILL" in str(source.status.last_error)
    assert source.status.state == "connected"


@pytest.mark.parametrize("step", ["initialize", "tools/list"])
async def test_silent_server_times_out_and_delays_no_other(processes: Processes, tmp_path: Path, step: str) -> None:
    silent = [upstream_spec("legacy", "stays", "silent", step, name=f"silent{number}") for number in range(10)]
    quick = replace(QUICK, connect=1, list=1, most_failures=1)
    async with open_harness(processes, tmp_path, timing=quick) as harness:
        harness.pool.reconcile(None, discovery_of(*silent, HEALTHY))
        with anyio.fail_after(3):
            assert not (await call_when_listed(harness, "healthy")).is_error
        for spec in silent:
            await harness.until_state(spec.alias, "failed")
            assert harness.pool.status(entry(spec)).last_error
            assert harness.source(spec.alias).status.state == "failed"


@pytest.mark.parametrize("step", ["initialize", "tools/list"])
async def test_cancelled_attempt_ends_its_process_and_waiting_callers(
    processes: Processes, tmp_path: Path, step: str
) -> None:
    spec = upstream_spec("legacy", "stays", "silent", step, name="stuck")
    async with open_harness(processes, tmp_path, timing=QUICK) as harness:
        harness.pool.reconcile(None, discovery_of(spec))
        stuck = entry(spec)
        assert not harness.pool.cancel(stuck)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.pool.test, stuck)
            await harness.until_state("stuck", "connecting")
            assert harness.pool.cancel(stuck)
        await harness.until_state("stuck", "not_checked")
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(harness.pool.test, stuck)  # a later check connects again
                await harness.until_state("stuck", "connecting")
                harness.pool.cancel(stuck)


async def call_when_listed(harness: PoolHarness, name: str) -> CallResult:
    """Call a server as soon as its tools are known."""
    await harness.source(name).upstream.ensure()
    return await call(harness.source(name), "echo")


async def test_hanging_server_is_restarted(processes: Processes, tmp_path: Path) -> None:
    async with open_harness(processes, tmp_path, timing=replace(QUICK, idle=0.3)) as harness:
        source = await harness.connect(upstream_spec("legacy", "plain"))
        pid = source.status.pid
        answer = await call(source, "deafen")
        assert answer.is_error and "did not answer tools/call in time" in text_of(answer)
        await harness.until(lambda: source.status.state == "connected" and source.status.pid != pid)
        assert "stopped responding" in str(source.status.last_error)
        assert not (await call(source, "echo")).is_error


async def test_slow_call_does_not_restart_a_responsive_server(processes: Processes, tmp_path: Path) -> None:
    async with open_harness(processes, tmp_path, timing=replace(QUICK, idle=0.3)) as harness:
        source = await harness.connect(upstream_spec("legacy", "plain"))
        pid = source.status.pid
        assert (await call(source, "sleep")).is_error
        assert text_of(await call(source, "pid")) == str(pid)


async def test_burst_of_list_changes_is_read_a_few_times(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    before = harness.offers.saves
    assert text_of(await call(source, "grow", times=2_000)) == "2000"
    await harness.until(lambda: len(source.tools()) == 2_010)
    assert harness.offers.saves - before <= 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"command": "no-such-program-anywhere"}, "server.command_not_found"),
        ({"cwd": "/no/such/directory"}, "server.cwd_unusable"),
        ({"args": ("${MISSING_VARIABLE}",)}, "server.variable_missing"),
    ],
)
async def test_setup_problem_is_not_retried(harness: PoolHarness, change: dict[str, object], code: str) -> None:
    spec = replace(upstream_spec("legacy", "plain"), **change)  # pyright: ignore[reportArgumentType] parametrized
    harness.pool.reconcile(None, discovery_of(spec))
    source = await harness.until_state("legacy", "failed")
    assert "Retrying automatically" not in source.status.sentence
    assert source.status.action == "toolcrib mcp get legacy"
    with pytest.raises(ToolcribError) as raised:
        await harness.pool.ensure(entry(spec))
    assert raised.value.code == code
    assert harness.states == [("legacy", "connecting"), ("legacy", "failed")]


async def test_secrets_of_a_definition_are_masked_in_server_errors(harness: PoolHarness) -> None:
    spec = upstream_spec("legacy", "plain")
    source = await harness.connect(replace(spec, env={**spec.env, "API_TOKEN": "hunter2"}))
    answer = await call(source, "exit")
    assert "exit code 4" in text_of(answer)
    assert "token=***" in text_of(answer) and "hunter2" not in text_of(answer)
    await harness.until(lambda: source.status.stderr == ("token=***",))


async def test_call_during_a_long_back_off_fails_at_once_with_the_next_attempt(
    processes: Processes, tmp_path: Path
) -> None:
    async with open_harness(processes, tmp_path, timing=replace(QUICK, rest=30, longest_rest=30)) as harness:
        source = await harness.connect(upstream_spec("legacy", "plain"))
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call, source, "sleep")
            await call(source, "exit")
        await harness.until(lambda: source.status.retry_at is not None)
        refused = await call(source, "echo")
        assert "exit code 4" in text_of(refused) and "Next attempt in" in text_of(refused)
        assert "Retrying automatically" in source.status.sentence
        assert harness.states.count(("legacy", "connecting")) == 1
        assert source.tools()


def returning_spec(starts: Path) -> ServerSpec:
    """Return a server whose second and third start fail. Each start writes a line to the file."""
    spec = upstream_spec("legacy", "plain")
    script = 'echo start >> "$0"; case $(wc -l < "$0") in *2|*3) exit 3;; esac; exec "$@"'
    return replace(spec, command="/bin/sh", args=("-c", script, str(starts), str(spec.command), *spec.args))


async def test_call_waits_for_a_server_that_quit_and_restarts(processes: Processes, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    async with open_harness(processes, tmp_path, timing=replace(QUICK, rest=0.2)) as harness:
        source = await harness.connect(returning_spec(starts))
        assert (await call(source, "exit")).is_error
        answers = list[CallResult]()

        async def echo() -> None:
            answers.append(await call(source, "echo", number=1))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(echo)
        assert [answer.structured_content for answer in answers] == [{"number": 1}] * 3
    assert starts.read_text(encoding="utf-8").splitlines() == ["start"] * 4


async def test_call_waits_at_most_its_timeout_for_a_server_that_quit(processes: Processes, tmp_path: Path) -> None:
    async with open_harness(processes, tmp_path, timing=replace(QUICK, rest=5, longest_rest=5)) as harness:
        source = await harness.connect(replace(upstream_spec("legacy", "plain"), timeout_ms=3_000))
        await call(source, "exit")
        await harness.until(lambda: source.status.retry_at is not None)
        assert "Next attempt in" in text_of(await call(source, "echo"))
        assert harness.states.count(("legacy", "connecting")) == 1


async def test_concurrent_callers_of_a_failing_server_share_one_attempt(harness: PoolHarness) -> None:
    spec = upstream_spec("legacy", "leaves", "initialize")
    harness.pool.reconcile(None, discovery_of(spec))
    refusals = list[str]()

    async def ensure() -> None:
        with pytest.raises(ToolcribError) as raised:
            await harness.pool.ensure(entry(spec))
        refusals.append(raised.value.code)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ensure)
    assert refusals == ["server.ended"] * 20
    assert harness.states.count(("legacy", "connecting")) == 1
