"""The source of a connected server: its offers, calls and results."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
import pytest

from integration.upstream.stdio.harness import until_dead
from integration.upstream.upstream.harness import (
    OWNER,
    QUICK,
    PoolHarness,
    call,
    open_harness,
    sdk_spec,
    text_of,
    upstream_spec,
)
from toolcrib.base.processes.process import Processes
from toolcrib.model.servers import Auth
from toolcrib.model.sources import CallContext, Client
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential, Registration

pytestmark = pytest.mark.anyio


async def test_server_offers_tools_prompts_and_resources_under_its_alias(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain", name="shop"))
    assert {str(tool.ref) for tool in source.tools()} > {"shop/echo", "shop/pid"}
    assert [item.key for item in source.prompts()] == ["greet"]
    assert [item.key for item in source.resources()] == ["note://one"]
    assert [item.key for item in source.templates()] == ["note://{name}"]
    assert source.problems() == ()
    status = source.status
    assert (status.state, status.era, status.server_title) == ("connected", "legacy", "Legacy")
    assert status.latency_ms is not None and status.pid is not None and status.sentence and status.action


async def test_call_result_keeps_all_its_members(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    result = await call(source, "echo", text="hello", number=1.5)
    assert (result.is_error, result.structured_content) == (False, {"text": "hello", "number": 1.5})
    assert result.extra == {"futureMember": [1]}


@pytest.mark.parametrize("tool", ["echo", "count"])
async def test_tools_of_a_modern_server_are_called(harness: PoolHarness, tool: str) -> None:
    source = await harness.connect(sdk_spec())
    assert source.status.era == "modern"
    assert text_of(await call(source, tool, text="hi")) == "hi"


@pytest.mark.parametrize("share", ["shared", "session"])
async def test_progress_arrives_in_order_before_the_result(
    harness: PoolHarness, share: Literal["shared", "session"]
) -> None:
    source = await harness.connect(sdk_spec(share=share))
    reports = list[tuple[float, float | None, str | None]]()

    async def report(done: float, total: float | None, message: str | None) -> None:
        reports.append((done, total, message))

    context = CallContext(OWNER, "call", report, Client(session="one"))
    with anyio.fail_after(20):
        await source.prepare("count", {}, b"")(context)
    assert reports == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]


async def test_cancelled_call_sends_one_cancellation(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, source, "sleep")
        await call(source, "pid")
        tasks.cancel_scope.cancel()
    methods = (await call(source, "abilities")).structured_content["told"]
    assert methods[-1] == "tools/call" and methods.count("notifications/cancelled") == 1


async def test_unresponsive_idle_server_is_restarted(processes: Processes, tmp_path: Path) -> None:
    async with open_harness(processes, tmp_path, timing=replace(QUICK, ping_after=0.05)) as harness:
        source = await harness.connect(upstream_spec("legacy", "stays", "silent", "ping"))
        pid = source.status.pid
        await harness.until(lambda: source.status.pid not in (pid, None))
        assert "stopped responding" in str(source.status.last_error)


async def test_idle_connection_of_a_session_is_closed_and_reopened_on_use(processes: Processes, tmp_path: Path) -> None:
    timing = replace(QUICK, ping_after=0.05, session_idle=0.1)
    async with open_harness(processes, tmp_path, timing=timing) as harness:
        source = await harness.connect(upstream_spec("legacy", "plain", share="session"))
        client = Client(session="one")
        pid = int(text_of(await call(source, "pid", client)))
        await until_dead(pid, seconds=20)
        assert int(text_of(await call(source, "pid", client))) != pid
        assert source.status.state == "connected"


async def test_server_gets_the_token_of_the_credential_in_its_definition(processes: Processes, tmp_path: Path) -> None:
    client = Registration("https://issuer.example", "crib")
    credentials = CredentialStore(tmp_path)
    await credentials.keep(
        OAuthCredential("shop", "https://shop.example/mcp", client, "https://issuer.example/token", "t0ken")
    )
    async with open_harness(processes, tmp_path) as harness:
        specs = [
            replace(upstream_spec("legacy", "plain", name=name), auth=Auth(credential_id=name))
            for name in ("shop", "bank")
        ]
        await harness.connect(*specs)
        received = [
            (await call(harness.source(name), "abilities")).structured_content["token"] for name in ("shop", "bank")
        ]
        assert received == ["t0ken", None]
