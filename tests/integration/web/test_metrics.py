"""`/metrics`: access to it, and what it counts."""

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from integration.web.crib import Running
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio


async def scrape(running: Running) -> dict[tuple[str, ...], float]:
    """Return every sample by name and the values of its labels, in the order of the labels' names."""
    async with running.client() as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def call(running: Running, tool: str, arguments: JsonObject | None = None) -> None:
    async with running.client() as client:
        await client.post(f"/api/tools/{tool}/call", json={"arguments": arguments or {}})


async def test_metrics_need_the_owners_token(running: Running) -> None:
    crib = running.holding.crib
    _, secret = await crib.tokens.create("scraper", source="api")
    async with running.client(token=False) as client:
        assert (await client.get("/metrics")).status_code == 401
        named = await client.get("/metrics", headers={"authorization": f"Bearer {secret}"})
    assert (named.status_code, named.json()["code"]) == (404, "route.unknown")


async def test_each_outcome_of_a_call_is_counted(running: Running) -> None:
    await call(running, "bench/echo", {"text": "hello"})
    await call(running, "bench/echo", {"text": "hello"})
    await call(running, "bench/broken")
    await call(running, "bench/echo", {"text": 7})
    await call(running, "bench/made_up")
    found = await scrape(running)
    assert found["toolcrib_calls_total", "ok", "bench", "echo"] == 2
    assert found["toolcrib_calls_total", "refused", "bench", "echo"] == 1
    assert found["toolcrib_calls_total", "error", "bench", "broken"] == 1
    assert found["toolcrib_calls_total", "refused", "", ""] == 1
    assert found["toolcrib_calls_refused_total", "tool.arguments_invalid"] == 1
    assert found["toolcrib_calls_refused_total", "tool.unknown"] == 1
    assert found["toolcrib_call_duration_seconds_count", "bench", "echo"] == 2
    assert found["toolcrib_call_duration_seconds_bucket", "+Inf", "bench", "echo"] == 2
    assert found["toolcrib_audit_records_total",] >= 9
    assert found["toolcrib_tools",] > 3
    assert found["toolcrib_stopped",] == 0


async def test_calls_in_flight_and_cancelled_calls_are_counted(running: Running) -> None:
    crib = running.holding.crib

    async def wait() -> None:
        await crib.call("bench/wait", principal=crib.owner("web"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with anyio.fail_after(20):
            await running.bench.started.wait()
        assert (await scrape(running))["toolcrib_calls_in_flight", "bench"] == 1
        tasks.cancel_scope.cancel()
    found = await scrape(running)
    assert found["toolcrib_calls_total", "abandoned", "bench", "wait"] == 1
    assert ("toolcrib_calls_in_flight", "bench") not in found


async def test_pending_approval_is_a_gauge(running: Running) -> None:
    crib = running.holding.crib
    found: dict[tuple[str, ...], float] = {}

    async def call_tool() -> None:
        await crib.gate.call(crib.owner("ide", mode="default"), ToolRef("bench", "broken"), {}, door="mcp")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_tool)
        with anyio.fail_after(20):
            while not found.get(("toolcrib_approvals_pending",)):
                found = await scrape(running)
        tasks.cancel_scope.cancel()
