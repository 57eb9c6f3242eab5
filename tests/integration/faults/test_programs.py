"""Programs that misbehave, through a whole crib: only their own calls feel it, and each fault has its sentence."""

import os
from functools import partial
from pathlib import Path

import anyio
import pytest

from integration.faults.harness import HEALTHY, Bench, beside, call, program, text_of, until_listed, until_state
from lab import eventually
from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

IS_FULL = bool(os.environ.get("TOOLCRIB_TEST_ALL"))
STDERR_MEGABYTES = 1024 if IS_FULL else 32
BAD = program("misbehaving", "plain")


@pytest.mark.parametrize("step", ["initialize", "tools/list"])
async def test_a_program_that_leaves_at_a_step_of_its_greeting_is_failed_with_its_exit_code(
    bench: Bench, step: str
) -> None:
    async with bench.crib(bad=program("misbehaving", "leaves", step), healthy=HEALTHY) as (_, client):
        await until_state(client, "healthy", "connected")
        found: list[JsonObject] = []

        async def tested() -> None:
            found.append(await client.test_server("bad"))

        await beside(client, tested)
        assert (found[0]["state"], found[0]["exitCode"]) == ("failed", 3)
        assert "exit code 3" in found[0]["lastError"]
        assert found[0]["stderr"]
        assert "hunter2" not in str(found[0])
        assert found[0]["action"] == "toolcrib mcp test bad"


async def test_a_program_that_leaves_when_it_hears_of_the_new_era_is_greeted_in_the_old_one(bench: Bench) -> None:
    async with bench.crib(old=program("misbehaving", "leaves", "server/discover")) as (_, client):
        assert (await until_state(client, "old", "connected"))["protocolVersion"] == "2025-11-25"
        assert not (await call(client, "old/echo"))["isError"]


async def test_a_program_that_never_lists_its_tools_keeps_nobody_waiting(bench: Bench) -> None:
    async with bench.crib(bad=program("misbehaving", "silent", "tools/list"), healthy=HEALTHY) as (_, client):
        await until_state(client, "healthy", "connected")
        await beside(client, partial(anyio.sleep, 0.2))
        assert (await client.server("bad"))["state"] in ("connecting", "not_checked")


async def test_a_program_that_hangs_in_its_greeting_is_given_up(bench: Bench) -> None:
    bad = program("misbehaving", "silent", "initialize", timeout=500)
    async with bench.crib(bad=bad, healthy=HEALTHY) as (holding, client):
        await until_state(client, "healthy", "connected")
        found: list[JsonObject] = []

        async def tested() -> None:
            found.append(await client.test_server("bad"))

        await beside(client, tested)
        assert found[0]["state"] == "failed"
        assert "did not complete" in found[0]["lastError"]
        assert holding.crib.pool.sources()


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("leave", {}, "exit code 4"),
        ("half", {}, "cannot be read"),
        ("babble", {}, "other than messages"),
        ("huge", {"megabytes": 50}, "more than"),
        ("deep", {"levels": 300}, "nested too deep"),
        ("deep", {"levels": 5_000}, "cannot be read"),
    ],
)
async def test_a_call_that_meets_a_fault_says_which(bench: Bench, tool: str, arguments: JsonObject, told: str) -> None:
    async with bench.crib(bad=BAD, healthy=HEALTHY) as (_, client):
        await until_state(client, "bad", "connected")
        answers: list[JsonObject] = []

        async def trouble() -> None:
            answers.append(await call(client, f"bad/{tool}", **arguments))

        await beside(client, trouble)
        assert answers[0]["isError"]
        assert text_of(answers[0]).startswith("MCP error: ")
        assert told in text_of(answers[0])
        assert "hunter2" not in str(answers[0])
        tested = await client.test_server("bad")
        assert tested["state"] == "connected", tested
        assert (await call(client, "bad/echo", again=True))["structuredContent"] == {"name": "echo", "again": True}


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("garbage", {}, "after garbage"),
        ("bytes", {}, "caf\ufffd"),
        ("ids", {}, "truth"),
        ("storm", {"times": 100_000 if IS_FULL else 20_000}, "stormed"),
        ("stderr", {"megabytes": STDERR_MEGABYTES}, "written"),
    ],
)
async def test_a_call_survives_what_can_be_survived(bench: Bench, tool: str, arguments: JsonObject, told: str) -> None:
    async with bench.crib(bad=BAD, healthy=HEALTHY) as (_, client):
        started = await until_state(client, "bad", "connected")
        answers: list[JsonObject] = []

        async def trouble() -> None:
            answers.extend([await call(client, f"bad/{tool}", **arguments) for _ in range(2)])

        await beside(client, trouble)
        assert all(told in text_of(answer) and not answer["isError"] for answer in answers), answers
        assert (await client.server("bad"))["pid"] == started["pid"], "it was not started anew"


async def test_an_endless_list_and_ten_thousand_tools_are_bounded_and_told(bench: Bench) -> None:
    servers = {"endless": program("crafts", "endless"), "many": program("crafts", "many", "10001")}
    async with bench.crib(healthy=HEALTHY) as (_, client):
        await until_state(client, "healthy", "connected")

        async def appear() -> None:
            bench.write(healthy=HEALTHY, **servers)
            await client.reload_servers()
            await until_state(client, "endless", "connected")
            await until_state(client, "many", "connected")

        await beside(client, appear)
        assert (await client.server("endless"))["tools"] == 100
        assert (await client.server("many"))["tools"] == 10_000
        await until_listed(client, "many", 10_000)
        await until_listed(client, "endless", 100)


async def test_names_and_texts_that_mean_harm_are_tools_like_others(bench: Bench) -> None:
    async with bench.crib(names=program("misbehaving", "names"), healthy=HEALTHY) as (_, client):
        await until_state(client, "names", "connected")
        await until_listed(client, "names", 22)
        tools = [tool for tool in await client.tools() if tool["server"] == "names"]
        shown = {tool["exposedName"] for tool in tools}
        assert len(shown) == len(tools)
        assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() and name.isascii() for name in shown), (
            shown
        )
        for tool in tools:
            answer = await call(client, tool["ref"], n=1)
            if not tool["name"].startswith("deep"):
                assert answer["structuredContent"] == {"name": tool["name"], "n": 1}
        known = {tool["name"]: tool for tool in tools}
        assert len(known["wordy"]["description"].encode()) < 70_000
        assert [problem for name in ("deep", "deep_meta", "deep_hints") for problem in known[name]["problems"]]
    async with bench.crib() as (_, client):  # what was stored of it can be read
        assert (await client.server("names"))["tools"] >= 19
        assert (await call(client, "names/__proto__", n=2))["structuredContent"] == {"name": "__proto__", "n": 2}


async def test_a_program_that_changes_its_era_at_every_start_is_used_all_the_same(bench: Bench) -> None:
    file = bench.user / "starts"
    async with bench.crib(eras=program("misbehaving", "eras", str(file)), healthy=HEALTHY) as (_, client):
        await until_state(client, "eras", "connected")
        for number in range(3):
            found = await client.reload_server("eras")
            assert found["state"] == "connected", found
            answer = await call(client, "eras/echo", number=number)
            assert answer["structuredContent"] == {"name": "echo", "number": number}


@pytest.mark.parametrize("way", ["term", "family"])
async def test_what_does_not_want_to_end_is_gone_when_it_is_switched_off(bench: Bench, way: str) -> None:
    async with bench.crib(bad=program("misbehaving", way), healthy=HEALTHY) as (_, client):
        await until_state(client, "bad", "connected")
        pids = (await call(client, "bad/pids"))["structuredContent"].values()

        async def switched_off() -> None:
            await client.switch_server("bad", enabled=False)
            await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 15)

        await beside(client, switched_off)
        assert (await client.server("bad"))["state"] == "disabled"
        with pytest.raises(Conflict, match="is disabled"):
            await call(client, "bad/echo")
