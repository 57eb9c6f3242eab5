"""Faulty stdio servers connected to a whole crib: only their own calls are affected, and each fault has its message."""

import os
from functools import partial
from pathlib import Path

import anyio
import pytest

from integration.faults.harness import (
    HEALTHY,
    Machine,
    call,
    program,
    text_of,
    until_listed,
    until_state,
    with_healthy_calls,
)
from lab import eventually
from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

IS_FULL = bool(os.environ.get("TOOLCRIB_TEST_ALL"))
STDERR_MEGABYTES = 1024 if IS_FULL else 32
BAD = program("misbehaving", "plain")


@pytest.mark.parametrize("step", ["initialize", "tools/list"])
async def test_server_that_exits_during_its_handshake_fails_with_its_exit_code(machine: Machine, step: str) -> None:
    async with machine.crib(bad=program("misbehaving", "leaves", step), healthy=HEALTHY) as (_, client):
        await until_state(client, "healthy", "connected")
        found: list[JsonObject] = []

        async def test_bad() -> None:
            found.append(await client.test_server("bad"))

        await with_healthy_calls(client, test_bad)
        assert (found[0]["state"], found[0]["exitCode"]) == ("failed", 3)
        assert "exit code 3" in found[0]["lastError"]
        assert found[0]["stderr"]
        assert "hunter2" not in str(found[0])
        assert found[0]["action"] == "toolcrib mcp test bad"


async def test_server_that_exits_on_discover_is_connected_with_the_legacy_era(machine: Machine) -> None:
    async with machine.crib(old=program("misbehaving", "leaves", "server/discover")) as (_, client):
        assert (await until_state(client, "old", "connected"))["protocolVersion"] == "2025-11-25"
        assert not (await call(client, "old/echo"))["isError"]


async def test_server_that_never_lists_its_tools_does_not_delay_others(machine: Machine) -> None:
    async with machine.crib(bad=program("misbehaving", "silent", "tools/list"), healthy=HEALTHY) as (_, client):
        await until_state(client, "healthy", "connected")
        await with_healthy_calls(client, partial(anyio.sleep, 0.2))
        assert (await client.server("bad"))["state"] in ("connecting", "not_checked")


async def test_server_that_hangs_in_its_handshake_fails_after_its_timeout(machine: Machine) -> None:
    bad = program("misbehaving", "silent", "initialize", timeout=500)
    async with machine.crib(bad=bad, healthy=HEALTHY) as (holding, client):
        await until_state(client, "healthy", "connected")
        found: list[JsonObject] = []

        async def test_bad() -> None:
            found.append(await client.test_server("bad"))

        await with_healthy_calls(client, test_bad)
        assert found[0]["state"] == "failed"
        assert "did not complete" in found[0]["lastError"]
        assert holding.crib.pool.sources()


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("leave", {}, "exit code 4"),
        ("half", {}, "cannot be read"),
        ("babble", {}, "other than messages"),
        ("huge", {"megabytes": 50}, "more than"),
        ("deep", {"levels": 300}, "nested too deep"),
        ("deep", {"levels": 5_000}, "cannot be read"),
    ],
)
async def test_faulty_reply_fails_the_call_and_names_the_fault(
    machine: Machine, tool: str, arguments: JsonObject, expected: str
) -> None:
    async with machine.crib(bad=BAD, healthy=HEALTHY) as (_, client):
        await until_state(client, "bad", "connected")
        answers: list[JsonObject] = []

        async def call_bad() -> None:
            answers.append(await call(client, f"bad/{tool}", **arguments))

        await with_healthy_calls(client, call_bad)
        assert answers[0]["isError"]
        assert text_of(answers[0]).startswith("MCP error: ")
        assert expected in text_of(answers[0])
        assert "hunter2" not in str(answers[0])
        server = await client.test_server("bad")
        assert server["state"] == "connected", server
        assert (await call(client, "bad/echo", again=True))["structuredContent"] == {"name": "echo", "again": True}


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("garbage", {}, "after garbage"),
        ("bytes", {}, "caf\ufffd"),
        ("ids", {}, "truth"),
        ("storm", {"times": 100_000 if IS_FULL else 20_000}, "stormed"),
        ("stderr", {"megabytes": STDERR_MEGABYTES}, "written"),
    ],
)
async def test_call_succeeds_despite_noise_from_the_server(
    machine: Machine, tool: str, arguments: JsonObject, expected: str
) -> None:
    async with machine.crib(bad=BAD, healthy=HEALTHY) as (_, client):
        started = await until_state(client, "bad", "connected")
        answers: list[JsonObject] = []

        async def call_bad() -> None:
            answers.extend([await call(client, f"bad/{tool}", **arguments) for _ in range(2)])

        await with_healthy_calls(client, call_bad)
        assert all(expected in text_of(answer) and not answer["isError"] for answer in answers), answers
        assert (await client.server("bad"))["pid"] == started["pid"], "the server was restarted"


async def test_long_and_endless_tool_lists_are_truncated(machine: Machine) -> None:
    servers = {"endless": program("legacy", "endless"), "many": program("legacy", "many", "10001")}
    async with machine.crib(healthy=HEALTHY) as (_, client):
        await until_state(client, "healthy", "connected")

        async def add_servers() -> None:
            machine.write(healthy=HEALTHY, **servers)
            await client.reload_servers()
            await until_state(client, "endless", "connected")
            await until_state(client, "many", "connected")

        await with_healthy_calls(client, add_servers)
        assert (await client.server("endless"))["tools"] == 100
        assert (await client.server("many"))["tools"] == 10_000
        await until_listed(client, "many", 10_000)
        await until_listed(client, "endless", 100)


async def test_tools_with_hostile_names_and_texts_are_listed_and_callable(machine: Machine) -> None:
    async with machine.crib(names=program("misbehaving", "names"), healthy=HEALTHY) as (_, client):
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
    async with machine.crib() as (_, client):  # reads what was stored of these tools
        assert (await client.server("names"))["tools"] >= 19
        assert (await call(client, "names/__proto__", n=2))["structuredContent"] == {"name": "__proto__", "n": 2}


async def test_server_that_changes_its_era_at_every_start_stays_usable(machine: Machine) -> None:
    file = machine.user / "starts"
    async with machine.crib(eras=program("misbehaving", "eras", str(file)), healthy=HEALTHY) as (_, client):
        await until_state(client, "eras", "connected")
        for number in range(3):
            found = await client.reload_server("eras")
            assert found["state"] == "connected", found
            answer = await call(client, "eras/echo", number=number)
            assert answer["structuredContent"] == {"name": "echo", "number": number}


@pytest.mark.parametrize("fault", ["term", "family"])
async def test_disabling_a_server_ends_processes_that_ignore_sigterm(machine: Machine, fault: str) -> None:
    async with machine.crib(bad=program("misbehaving", fault), healthy=HEALTHY) as (_, client):
        await until_state(client, "bad", "connected")
        pids = (await call(client, "bad/pids"))["structuredContent"].values()

        async def disable() -> None:
            await client.switch_server("bad", enabled=False)
            await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 15)

        await with_healthy_calls(client, disable)
        assert (await client.server("bad"))["state"] == "disabled"
        with pytest.raises(Conflict, match="is disabled"):
            await call(client, "bad/echo")
