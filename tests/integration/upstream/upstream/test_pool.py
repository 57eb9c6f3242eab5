"""The pool: what is wanted is connected, what changed is so anew, what nobody wants ends; the rest is untouched."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.upstream.stdio.harness import until_dead
from integration.upstream.upstream.harness import (
    Memory,
    Yard,
    call,
    entry,
    found,
    open_yard,
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

ONE = upstream_spec("crafts", "plain", name="one")
TWO = upstream_spec("crafts", "plain", "two", name="two")
HERE = Path("/somewhere/project")


async def pid_of(yard: Yard, name: str, place: Path | None = None) -> int:
    """The process that answers."""
    return int(text_of(await call(yard.source(name, place), "pid")))


async def test_only_what_changed_is_started_anew_and_only_what_nobody_wants_ends(yard: Yard) -> None:
    await yard.ready(ONE, TWO)
    kept, changed = await pid_of(yard, "one"), await pid_of(yard, "two")
    await yard.ready(ONE, replace(TWO, args=(*TWO.args, "more")))
    assert await pid_of(yard, "one") == kept
    assert await pid_of(yard, "two") != changed
    yard.pool.reconcile(None, found(ONE))
    await until_dead(changed)
    assert yard.pool.find("two") is None
    assert await pid_of(yard, "one") == kept


async def test_a_filter_or_a_time_out_makes_another_source_of_the_same_process(yard: Yard) -> None:
    source = await yard.ready(ONE)
    pid = await pid_of(yard, "one")
    yard.pool.reconcile(
        None, found(replace(ONE, tools=ToolFilter(allow=("p*", "echo"), deny=("echo",)), timeout_ms=7_000))
    )
    narrowed = yard.source("one")
    assert narrowed is not source
    assert [(tool.ref.tool, tool.timeout) for tool in narrowed.tools()] == [("pid", 7.0)]
    assert await pid_of(yard, "one") == pid
    with pytest.raises(ToolcribError):
        narrowed.prepare("echo", {}, b"")


async def test_places_that_see_the_same_definition_share_one_process_and_one_source(yard: Yard) -> None:
    await yard.ready(ONE)
    yard.pool.reconcile(HERE, found(ONE, replace(TWO, alias="other")))
    assert yard.source("one", HERE) is yard.source("one")
    await yard.until_state("other", "connected", HERE)
    assert await pid_of(yard, "one", HERE) == await pid_of(yard, "one")
    other = await pid_of(yard, "other", HERE)
    assert yard.pool.find("other") is None
    yard.pool.drop(HERE)
    await until_dead(other)
    assert await pid_of(yard, "one")


async def test_a_server_known_from_before_shows_its_tools_at_once_and_connects_on_first_use(
    processes: Processes, tmp_path: Path
) -> None:
    memory = Memory()
    async with open_yard(processes, tmp_path, memory=memory) as yard:
        before = (await yard.ready(ONE)).tools()
    async with open_yard(processes, tmp_path, memory=memory) as yard:
        yard.pool.reconcile(None, found(ONE, TWO))
        source = yard.source("one")
        assert tuple(source.tools()) == tuple(before)
        assert source.status.state == "not_checked" and "first use" in source.status.sentence
        await yard.until_state("two", "connected")
        assert source.status.state == "not_checked"
        pids = set[str]()

        async def ask() -> None:
            pids.add(text_of(await call(source, "pid")))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert len(pids) == 1
        await yard.until_state("one", "connected")
        assert yard.states.count(("one", "connecting")) == 1


async def test_a_stored_offer_that_cannot_be_read_is_as_if_it_were_not_there(
    processes: Processes, tmp_path: Path
) -> None:
    memory = Memory({entry(ONE).digest: b"{broken", entry(TWO).digest: b'{"era":"legacy","version":"1","tools":3}'})
    async with open_yard(processes, tmp_path, memory=memory) as yard:
        await yard.ready(ONE)
        yard.pool.reconcile(None, found(ONE, TWO))
        assert not yard.source("two").tools()
        assert (await yard.pool.test(entry(TWO))).state == "connected"
        assert yard.source("two").tools()


async def test_without_eagerness_nothing_is_connected_before_it_is_used(processes: Processes, tmp_path: Path) -> None:
    async with open_yard(processes, tmp_path, eager=False) as yard:
        yard.pool.reconcile(None, found(ONE, TWO))
        offer = await yard.pool.ensure(entry(ONE))
        assert {"echo", "pid"} <= {tool["name"] for tool in offer.tools}
        assert not [name for name, _ in yard.states if name == "two"]


async def test_testing_a_server_that_is_being_connected_waits_for_its_lists(yard: Yard, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    spec = upstream_spec("dawdles", str(asked))
    yard.pool.reconcile(None, found(spec))
    await eventually(asked.exists)
    assert (await yard.pool.test(entry(spec))).state == "connected"


async def test_testing_a_connected_server_asks_it_again_and_reloading_it_starts_it_anew(yard: Yard) -> None:
    source = await yard.ready(ONE)
    pid = await pid_of(yard, "one")
    status = await yard.pool.test(entry(ONE))
    assert (status.state, status.pid) == ("connected", pid)
    await yard.pool.reload(entry(ONE))
    assert source.status.state == "connected"
    assert await pid_of(yard, "one") != pid
    await yard.pool.reload()
    assert source.status.state == "connected"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"enabled": False}, "server.disabled"),
        ({"trusted": False}, "server.untrusted"),
        ({"spec": None}, "server.invalid"),
    ],
)
async def test_what_may_not_be_connected_is_not_even_on_request(
    yard: Yard, change: dict[str, object], code: str
) -> None:
    server = replace(entry(ONE), **change)  # pyright: ignore[reportArgumentType] parametrized
    yard.pool.reconcile(None, replace(found(), servers=(server,)))
    assert yard.pool.sources() == ()
    for ask in (yard.pool.test, yard.pool.ensure, yard.pool.reload, yard.pool.signed_in):
        with pytest.raises(ToolcribError) as raised:
            await ask(server)
        assert raised.value.code == code
    assert yard.states == []


async def test_many_servers_start_side_by_side_and_end_together(processes: Processes, tmp_path: Path) -> None:
    specs = [upstream_spec("crafts", "plain", str(number), name=f"server{number}") for number in range(30)]
    async with open_yard(processes, tmp_path) as yard:
        await yard.ready(*specs)
        assert sum(len(source.tools()) for source in yard.pool.sources()) == 30 * 10
        started = anyio.current_time()
    assert anyio.current_time() - started < 5


async def test_calls_of_a_server_that_is_taken_off_the_list_end_at_once(yard: Yard) -> None:
    source = await yard.ready(ONE)
    answers = list[CallResult]()

    async def hang() -> None:
        answers.append(await call(source, "sleep"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hang)
        await call(source, "pid")
        yard.pool.reconcile(None, found())
    assert answers[0].is_error and "was stopped" in text_of(answers[0])
    assert "was stopped" in text_of(await call(source, "pid"))


async def test_a_server_of_both_eras_is_met_in_the_modern_one_and_that_is_remembered(
    processes: Processes, tmp_path: Path
) -> None:
    memory = Memory()
    for _ in range(2):
        async with open_yard(processes, tmp_path, memory=memory, eager=False) as yard:
            yard.pool.reconcile(None, found(sdk_spec()))
            status = await yard.pool.test(entry(sdk_spec()))
            assert (status.state, status.era, status.version) == ("connected", "modern", "2026-07-28")
