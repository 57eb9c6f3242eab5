"""OpenTelemetry of a whole crib: what a collector receives, and how traces continue at upstreams."""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType

import pytest
from httpx2 import AsyncClient
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from http_clients import PLAIN
from integration.host.telemetry.receiver import Receiver, receiver
from integration.upstream.http.harness import DISCOVERED, Request, raw_server, result_response
from lab import eventually
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject
from toolcrib.web.run import Holding, hold

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[3]
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
STDIO: JsonObject = {
    "command": sys.executable,
    "args": ["-S", "-m", "upstreams.modern"],
    "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
}
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "50", "OTEL_BLRP_SCHEDULE_DELAY": "50"}


@asynccontextmanager
async def crib(
    folder: Path,
    collector: Receiver | None,
    servers: JsonObject | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    content: bool = False,
) -> AsyncGenerator[tuple[Holding, AsyncClient]]:
    """Yield a crib that sends to this collector, or has telemetry off, and a client of its owner."""
    home = prepare_home(folder / "home")
    (home.root / "mcp.json").write_text(json.dumps({"mcpServers": servers or {}}), encoding="utf-8")
    settings = Settings(home=home.root, port=0, otel=collector is not None, otel_content=content)
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url} if collector is not None else {}
    environment = Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin", **QUICK, **endpoint, **(variables or {})})
    async with hold(settings, kind="serve", environment=environment) as holding:
        headers = {"authorization": f"Bearer {owner_token(holding.crib.home)}"}
        async with AsyncClient(base_url=holding.info.url, headers=headers, timeout=20, verify=PLAIN) as client:
            yield holding, client


async def call_mcp(client: AsyncClient, tool: str, meta: JsonObject, **headers: str) -> JsonObject:
    """Call a tool on `/mcp` in the modern era."""
    version = "2026-07-28"
    key = "io.modelcontextprotocol/"
    sent: JsonObject = {f"{key}protocolVersion": version, f"{key}clientCapabilities": {}, **meta}
    params: JsonObject = {"name": tool, "arguments": {}, "_meta": sent}
    answer = await client.post(
        "/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": version,
            "mcp-method": "tools/call",
            "mcp-name": tool,
            **headers,
        },
    )
    return answer.json()["result"]


def values(span: Span) -> dict[str, str | int]:
    """Return the attributes of a span."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


async def test_trace_in_meta_continues_at_a_stdio_server_and_in_the_collector(tmp_path: Path) -> None:
    async with receiver() as collector, crib(tmp_path, collector, {"modern": STDIO}) as (holding, client):
        await client.post("/api/servers/modern/test")
        seen = await call_mcp(client, "modern_who", dict(CALLER))
        _, trace, span, flags = seen["structuredContent"]["_meta"]["traceparent"].split("-")
        assert (trace, flags) == (TRACE, "01")
        await eventually(lambda: len(collector.spans) == 2)
        served, requested = collector.spans
        assert requested.span_id.hex() == span
        assert served.parent_span_id.hex() == PARENT
        assert values(served)["gen_ai.tool.name"] == "who"
        record = await holding.crib.audit.get(int(values(served)["toolcrib.audit.id"]))
        assert (record["phase"], record["tool"]) == ("intent", "who")
        await eventually(lambda: len(collector.metrics) == 2)
        for name in ("mcp.server.operation.duration", "mcp.client.operation.duration"):
            (point,) = collector.metrics[name].histogram.data_points
            assert (point.count, sum(point.bucket_counts), len(point.bucket_counts)) == (1, 1, 15)


async def test_trace_in_headers_continues_in_headers_of_an_http_server(tmp_path: Path) -> None:
    async def serve(request: Request, writer: asyncio.StreamWriter) -> None:
        listed = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}], "content": []}
        writer.write(result_response(request, DISCOVERED if request.method == "server/discover" else listed))
        await writer.drain()

    async with (
        receiver() as collector,
        raw_server(serve) as upstream,
        crib(tmp_path, collector, {"web": {"url": upstream.url}}) as (_, client),
    ):
        answer = await client.post("/api/tools/web/look/call", json={"arguments": {}}, headers=CALLER)
        assert answer.status_code == 200, answer.text
        (called,) = [each for each in upstream.requests if each.method == "tools/call"]
        await eventually(lambda: len(collector.spans) == 2)
        expected = f"00-{TRACE}-{collector.spans[1].span_id.hex()}-01"
        assert called.headers["traceparent"] == called.message["params"]["_meta"]["traceparent"] == expected


async def test_without_telemetry_the_callers_trace_still_reaches_the_server(tmp_path: Path) -> None:
    async with crib(tmp_path, None, {"modern": STDIO}) as (_, client):
        await client.post("/api/servers/modern/test")
        seen = await call_mcp(client, "modern_who", {}, **CALLER)
        assert seen["structuredContent"]["_meta"]["traceparent"] == CALLER["traceparent"]
        seen = await call_mcp(client, "modern_who", {})
        assert "traceparent" not in seen["structuredContent"]["_meta"]


@contextmanager
def entered_modules() -> Generator[set[str]]:
    """Collect the modules whose functions are called, in every thread."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            modules.add(str(frame.f_globals.get("__name__")))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType] None removes it


def of_telemetry(modules: set[str]) -> set[str]:
    return {each for each in modules if each.startswith(("toolcrib.host.telemetry", "opentelemetry"))}


@pytest.mark.parametrize("is_on", [False, True])
async def test_call_runs_code_of_telemetry_only_when_it_is_on(tmp_path: Path, is_on: bool) -> None:
    """The extra is installed here, so only the setting makes the difference."""
    async with receiver() as collector, crib(tmp_path, collector if is_on else None, {"modern": STDIO}) as opened:
        client = opened[1]
        await client.post("/api/servers/modern/test")
        for tool in ("modern_who", "toolcrib_ping"):
            await call_mcp(client, tool, dict(CALLER))  # the first call imports and connects
            with entered_modules() as entered:
                assert not (await call_mcp(client, tool, dict(CALLER))).get("isError")
            assert {"toolcrib.gate.gate", "toolcrib.gate.counters"} <= entered
            assert bool(of_telemetry(entered)) == is_on, of_telemetry(entered)


async def test_logs_are_sent_masked_and_failed_exports_are_retried(tmp_path: Path) -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=k3y-of-the-collector", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
    async with receiver("503 Busy") as collector, crib(tmp_path, collector, {}, headers) as (holding, _):
        secret = owner_token(holding.crib.home)
        logging.getLogger("toolcrib.test").warning("The token is %s.", secret, extra={"code": "auth.invalid"})

        def found() -> list[LogRecord]:
            return [each for each in collector.logs if each.body.string_value.startswith("The token is")]

        await eventually(lambda: len(found()) == 2)
        assert found()[0] == found()[1]
        assert found()[0].severity_text == "WARNING"
        assert all(secret not in str(each) for each in collector.logs)
        assert {each.headers["api-key"] for each in collector.raw.requests} == {"k3y-of-the-collector"}


async def test_last_spans_are_sent_when_the_crib_stops(tmp_path: Path) -> None:
    async with receiver() as collector:
        slow = {"OTEL_BSP_SCHEDULE_DELAY": "60000"}
        async with crib(tmp_path, collector, {}, slow, content=True) as (_, client):
            await client.post("/api/tools/toolcrib/get_server_info/call", json={"arguments": {"include_uptime": True}})
            assert not collector.spans
        (span,) = collector.spans
        assert values(span)["gen_ai.tool.call.arguments"] == '{"include_uptime":true}'


async def test_missing_extra_is_an_error_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(_: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", not_installed)
    with pytest.raises(ConfigError, match="otel") as caught:
        async with hold(Settings(home=tmp_path / "home", port=0, otel=True), kind="serve", environment=Environment()):
            pass
    assert "toolcrib[otel]" in str(caught.value.hint)
