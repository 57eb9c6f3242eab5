"""The pool connects configured servers, restarts changed ones, ends removed ones and leaves the rest running."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.upstream.stdio.harness import until_dead
from integration.upstream.upstream.harness import (
    PoolHarness,
    StoredOffers,
    call,
    discovery_of,
    entry,
    open_harness,
    sdk_spec,
    text_of,
    upstream_spec,
)
from lab import eventually
from toolcrib.base.processes.process import Processes
from toolcrib.model.errors import ToolcribError
from toolcrib.model.servers import ToolFilter
from toolcrib.model.tools import CallResult

pytestmark = pytest.mark.anyio

ONE = upstream_spec("legacy", "plain", name="one")
TWO = upstream_spec("legacy", "plain", "two", name="two")
PROJECT = Path("/somewhere/project")


async def pid_of(harness: PoolHarness, name: str, project: Path | None = None) -> int:
    """Return the process id that a server reports."""
    return int(text_of(await call(harness.source(name, project), "pid")))


async def test_only_changed_servers_restart_and_only_removed_ones_end(harness: PoolHarness) -> None:
    await harness.connect(ONE, TWO)
    kept, changed = await pid_of(harness, "one"), await pid_of(harness, "two")
    await harness.connect(ONE, replace(TWO, args=(*TWO.args, "more")))
    assert await pid_of(harness, "one") == kept
    assert await pid_of(harness, "two") != changed
    harness.pool.reconcile(None, discovery_of(ONE))
    await until_dead(changed)
    assert harness.pool.find("two") is None
    assert await pid_of(harness, "one") == kept


async def test_changed_filter_or_timeout_keeps_the_process(harness: PoolHarness) -> None:
    source = await harness.connect(ONE)
    pid = await pid_of(harness, "one")
    harness.pool.reconcile(
        None, discovery_of(replace(ONE, tools=ToolFilter(allow=("p*", "echo"), deny=("echo",)), timeout_ms=7_000))
    )
    narrowed = harness.source("one")
    assert narrowed is not source
    assert [(tool.ref.tool, tool.timeout) for tool in narrowed.tools()] == [("pid", 7.0)]
    assert await pid_of(harness, "one") == pid
    with pytest.raises(ToolcribError):
        narrowed.prepare("echo", {}, b"")


async def test_projects_with_the_same_definition_share_one_process_and_source(harness: PoolHarness) -> None:
    await harness.connect(ONE)
    harness.pool.reconcile(PROJECT, discovery_of(ONE, replace(TWO, alias="other")))
    assert harness.source("one", PROJECT) is harness.source("one")
    await harness.until_state("other", "connected", PROJECT)
    assert await pid_of(harness, "one", PROJECT) == await pid_of(harness, "one")
    other = await pid_of(harness, "other", PROJECT)
    assert harness.pool.find("other") is None
    harness.pool.drop(PROJECT)
    await until_dead(other)
    assert await pid_of(harness, "one")


async def test_known_server_lists_stored_tools_and_connects_on_first_use(processes: Processes, tmp_path: Path) -> None:
    offers = StoredOffers()
    async with open_harness(processes, tmp_path, offers=offers) as harness:
        before = (await harness.connect(ONE)).tools()
    async with open_harness(processes, tmp_path, offers=offers) as harness:
        harness.pool.reconcile(None, discovery_of(ONE, TWO))
        source = harness.source("one")
        assert tuple(source.tools()) == tuple(before)
        assert source.status.state == "not_checked" and "first use" in source.status.sentence
        await harness.until_state("two", "connected")
        assert source.status.state == "not_checked"
        pids = set[str]()

        async def call_pid() -> None:
            pids.add(text_of(await call(source, "pid")))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call_pid)
        assert len(pids) == 1
        await harness.until_state("one", "connected")
        assert harness.states.count(("one", "connecting")) == 1


async def test_unreadable_stored_offer_is_ignored(processes: Processes, tmp_path: Path) -> None:
    offers = StoredOffers(
        {entry(ONE).digest: b"{broken", entry(TWO).digest: b'{"era":"legacy","version":"1","tools":3}'}
    )
    async with open_harness(processes, tmp_path, offers=offers) as harness:
        await harness.connect(ONE)
        harness.pool.reconcile(None, discovery_of(ONE, TWO))
        assert not harness.source("two").tools()
        assert (await harness.pool.test(entry(TWO))).state == "connected"
        assert harness.source("two").tools()


async def test_lazy_pool_connects_a_server_on_first_use(processes: Processes, tmp_path: Path) -> None:
    async with open_harness(processes, tmp_path, eager=False) as harness:
        harness.pool.reconcile(None, discovery_of(ONE, TWO))
        offer = await harness.pool.ensure(entry(ONE))
        assert {"echo", "pid"} <= {tool["name"] for tool in offer.tools}
        assert not [name for name, _ in harness.states if name == "two"]


async def test_testing_a_connecting_server_waits_for_its_lists(harness: PoolHarness, tmp_path: Path) -> None:
    listed = tmp_path / "asked"
    spec = upstream_spec("slow_first_list", str(listed))
    harness.pool.reconcile(None, discovery_of(spec))
    await eventually(listed.exists)
    assert (await harness.pool.test(entry(spec))).state == "connected"


async def test_testing_keeps_a_connected_server_and_reloading_restarts_it(harness: PoolHarness) -> None:
    source = await harness.connect(ONE)
    pid = await pid_of(harness, "one")
    status = await harness.pool.test(entry(ONE))
    assert (status.state, status.pid) == ("connected", pid)
    await harness.pool.reload(entry(ONE))
    assert source.status.state == "connected"
    assert await pid_of(harness, "one") != pid
    await harness.pool.reload()
    assert source.status.state == "connected"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"enabled": False}, "server.disabled"),
        ({"trusted": False}, "server.untrusted"),
        ({"spec": None}, "server.invalid"),
    ],
)
async def test_disabled_untrusted_or_invalid_server_is_never_connected(
    harness: PoolHarness, change: dict[str, object], code: str
) -> None:
    server = replace(entry(ONE), **change)  # pyright: ignore[reportArgumentType] parametrized
    harness.pool.reconcile(None, replace(discovery_of(), servers=(server,)))
    assert harness.pool.sources() == ()
    for operation in (harness.pool.test, harness.pool.ensure, harness.pool.reload, harness.pool.signed_in):
        with pytest.raises(ToolcribError) as raised:
            await operation(server)
        assert raised.value.code == code
    assert harness.states == []


async def test_many_servers_start_concurrently_and_end_together(processes: Processes, tmp_path: Path) -> None:
    specs = [upstream_spec("legacy", "plain", str(number), name=f"server{number}") for number in range(30)]
    async with open_harness(processes, tmp_path) as harness:
        await harness.connect(*specs)
        assert sum(len(source.tools()) for source in harness.pool.sources()) == 30 * 10
        started = anyio.current_time()
    assert anyio.current_time() - started < 5


async def test_calls_of_a_removed_server_end_at_once(harness: PoolHarness) -> None:
    source = await harness.connect(ONE)
    answers = list[CallResult]()

    async def hang() -> None:
        answers.append(await call(source, "sleep"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hang)
        await call(source, "pid")
        harness.pool.reconcile(None, discovery_of())
    assert answers[0].is_error and "was stopped" in text_of(answers[0])
    assert "was stopped" in text_of(await call(source, "pid"))


async def test_server_of_both_eras_is_connected_in_the_modern_one_again(processes: Processes, tmp_path: Path) -> None:
    offers = StoredOffers()
    for _ in range(2):
        async with open_harness(processes, tmp_path, offers=offers, eager=False) as harness:
            harness.pool.reconcile(None, discovery_of(sdk_spec()))
            status = await harness.pool.test(entry(sdk_spec()))
            assert (status.state, status.era, status.version) == ("connected", "modern", "2026-07-28")
