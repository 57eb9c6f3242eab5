"""Server requests, messages and list changes reach the client behind a call, and no other client."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest

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
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, Client, ProtocolError
from toolcrib.model.tools import CallResult
from toolcrib.upstream.source import UpstreamSource

pytestmark = pytest.mark.anyio

CAPABILITIES: JsonObject = {"elicitation": {"form": {}}, "sampling": {}}
YES: JsonObject = {"action": "accept", "content": {"why": "because"}}


@dataclass
class RecordingClient:
    """A client that accepts every elicitation, and records requests and messages."""

    name: str
    requests: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    messages: list[JsonObject] = field(default_factory=list[JsonObject])
    declines: bool = False

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Record a request and accept it."""
        self.requests.append((method, params))
        if self.declines:
            raise ProtocolError(-32000, "I would rather not", {"because": "so"})
        return {**YES, "by": self.name}

    async def tell(self, method: str, params: JsonObject) -> None:
        """Record a message."""
        await anyio.lowlevel.checkpoint()
        self.messages.append({"method": method, **params})

    def client(self, *, log_level: str | None = None, by_retry: bool = False) -> Client:
        """Return a client that sends requests and messages to this object."""
        if by_retry:
            return Client(CAPABILITIES, {"name": self.name, "version": "1"}, answers_by_retry=True)
        return Client(CAPABILITIES, {"name": self.name, "version": "1"}, self.name, self.ask, self.tell, log_level)


async def call_all(
    source: UpstreamSource, tool: str, recorders: Sequence[RecordingClient], level: str | None
) -> list[CallResult]:
    """Call a tool for each of these clients at the same time, each with its own principal."""
    results = list[CallResult]()

    async def one(recorder: RecordingClient) -> None:
        context = CallContext(Principal("token", recorder.name, "ide"), "call", client=recorder.client(log_level=level))
        results.append(await source.prepare(tool, {"text": recorder.name}, b"")(context))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for recorder in recorders:
                tasks.start_soon(one, recorder)
    return results


async def test_modern_server_sees_the_capabilities_and_metadata_of_the_caller(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("modern"))
    client = Client(CAPABILITIES, {"name": "ide"}, log_level="info", meta={"traceparent": "00-1", "progressToken": 7})
    seen = (await call(source, "who", client)).structured_content["_meta"]
    assert seen["io.modelcontextprotocol/clientCapabilities"] == CAPABILITIES
    assert seen["io.modelcontextprotocol/clientInfo"] == {"name": "ide"}
    assert seen["io.modelcontextprotocol/logLevel"] == "info"
    assert seen["traceparent"] == "00-1" and "progressToken" not in seen
    seen = (await call(source, "who")).structured_content["_meta"]
    assert seen["io.modelcontextprotocol/clientCapabilities"] == {}
    assert seen["io.modelcontextprotocol/clientInfo"]["name"] == "toolcrib-tests"


async def test_elicitation_of_a_modern_server_is_answered_in_a_second_request(
    harness: PoolHarness,
) -> None:
    source, recorder = await harness.connect(upstream_spec("modern")), RecordingClient("anna")
    result = await call(source, "ask", recorder.client())
    assert recorder.requests == [("elicitation/create", {"message": "Why?"})]
    assert result.structured_content == {"answers": {"why": {**YES, "by": "anna"}}, "state": "state"}


async def test_client_that_answers_by_retry_receives_the_elicitation_as_a_result(
    harness: PoolHarness,
) -> None:
    source, recorder = await harness.connect(upstream_spec("modern")), RecordingClient("anna")
    pending = await call(source, "ask", recorder.client(by_retry=True))
    assert not pending.is_final and pending.extra["requestState"] == "state" and not recorder.requests
    again = Client(CAPABILITIES, answers_by_retry=True, responses={"why": YES}, state="state")
    result = await call(source, "ask", again)
    assert result.structured_content == {"answers": {"why": YES}, "state": "state"}


@pytest.mark.parametrize(
    ("tool", "declines", "reason"),
    [
        ("forever", False, "for input more than 10 times"),
        ("bulky", False, "too large"),
        ("ask", True, "I would rather not"),
    ],
)
async def test_unanswerable_elicitation_is_an_error(
    harness: PoolHarness, tool: str, declines: bool, reason: str
) -> None:
    source = await harness.connect(upstream_spec("modern"))
    result = await call(source, tool, RecordingClient("anna", declines=declines).client())
    assert result.is_error and reason in text_of(result)
    assert not (await call(source, "who")).is_error


async def test_elicitation_without_client_support_is_an_error(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("modern"))
    for client in (None, Client(CAPABILITIES)):
        result = await call(source, "ask", client)
        assert result.is_error and "does not support" in text_of(result)
        with pytest.raises(ProtocolError, match="does not support"):
            await source.request("prompts/get", {"name": "ask"}, CallContext(OWNER, "call", client=client))


async def test_shared_legacy_server_sees_no_capabilities_and_its_elicitation_is_refused(
    harness: PoolHarness,
) -> None:
    source, recorder = await harness.connect(upstream_spec("legacy", "plain")), RecordingClient("anna")
    result = await call(source, "ask", recorder.client())
    assert result.structured_content["error"]["code"] == -32601 and not recorder.requests
    assert (await call(source, "abilities", recorder.client())).structured_content["abilities"] == {}


async def test_session_server_of_the_legacy_era_elicits_only_from_its_own_client(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain", share="session"))
    recorders = [RecordingClient(f"person {number}") for number in range(4)]
    results = await call_all(source, "ask", recorders, None)
    for recorder in recorders:
        assert [params["message"] for _, params in recorder.requests] == [recorder.name]
    answers = {result.structured_content["result"]["by"] for result in results}
    assert answers == {recorder.name for recorder in recorders}
    own = await call(source, "abilities", recorders[0].client())
    assert own.structured_content["abilities"] == CAPABILITIES
    pids = {text_of(await call(source, "pid", recorder.client())) for recorder in recorders}
    assert len(pids) == 4 and text_of(await call(source, "pid")) not in pids
    harness.pool.end_session(recorders[0].name)
    assert text_of(await call(source, "pid", recorders[0].client())) not in pids


async def test_tool_that_needs_a_capability_is_hidden_only_on_a_shared_server(harness: PoolHarness) -> None:
    shared = upstream_spec("legacy", "plain", name="shared")
    source = await harness.connect(upstream_spec("legacy", "plain", share="session"), shared)
    assert "guess" in {tool.ref.tool for tool in source.tools()}
    assert "guess" not in {tool.ref.tool for tool in harness.source("shared").tools()}
    able = RecordingClient("anna").client()
    assert text_of(await call(source, "guess", able)) == "heads"
    unable = Client({}, {"name": "ben", "version": "1"}, "ben")
    refused = await call(source, "guess", unable)
    assert refused.is_error and "Unknown tool" in text_of(refused)


async def test_declined_elicitation_reaches_the_legacy_server_with_its_error(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain", share="session"))
    result = await call(source, "ask", RecordingClient("anna", declines=True).client())
    assert result.structured_content["error"] == {
        "code": -32000,
        "message": "I would rather not",
        "data": {"because": "so"},
    }


async def test_server_of_both_eras_elicits_live_in_the_legacy_era(
    harness: PoolHarness,
) -> None:
    source, recorder = await harness.connect(sdk_spec(share="session")), RecordingClient("anna")
    assert source.status.era == "modern"
    assert text_of(await call(source, "ask", recorder.client())) == "{'why': 'because'}"
    assert recorder.requests[0][0] == "elicitation/create"


async def test_messages_reach_only_a_caller_that_requests_them(harness: PoolHarness) -> None:
    source, recorder = await harness.connect(upstream_spec("legacy", "plain")), RecordingClient("anna")
    await call(source, "log", recorder.client(log_level="info"))
    assert [params["level"] for params in recorder.messages] == ["warning"]
    await call(source, "log", recorder.client())
    assert len(recorder.messages) == 1


async def test_messages_with_an_unclear_recipient_are_dropped(harness: PoolHarness) -> None:
    source, recorders = (
        await harness.connect(upstream_spec("legacy", "plain")),
        [RecordingClient("anna"), RecordingClient("ben")],
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_all, source, "sleep", [recorders[0]], "debug")
        await call(source, "pid")
        await call_all(source, "log", [recorders[1]], "debug")
        tasks.cancel_scope.cancel()
    assert recorders[0].messages == recorders[1].messages == []


async def test_resource_is_subscribed_once_for_all_clients(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    for name in ("anna", "ben"):
        context = CallContext(Principal("token", name, "ide"), "call", client=RecordingClient(name).client())
        assert await source.request("resources/subscribe", {"uri": "note://one"}, context) == {}
    await call(source, "update")
    await harness.until(lambda: bool(harness.notices))
    assert [(notice.server, notice.params) for notice in harness.notices] == [("legacy", {"uri": "note://one"})]
    methods = (await call(source, "abilities")).structured_content["told"]
    assert methods.count("resources/subscribe") == 1
    harness.pool.end_session("anna")
    context = CallContext(OWNER, "call", client=RecordingClient("ben").client())
    await source.request("resources/unsubscribe", {"uri": "note://one"}, context)
    methods = (await call(source, "abilities")).structured_content["told"]
    assert methods.count("resources/unsubscribe") == 1


async def test_modern_server_is_subscribed_again_after_a_lost_stream(
    harness: PoolHarness,
) -> None:
    source = await harness.connect(upstream_spec("modern"))
    await call(source, "change")
    await harness.until(lambda: len(source.tools()) == 9)
    assert await source.request("resources/subscribe", {"uri": "note://one"}, CallContext(OWNER, "call")) == {}
    while "note://one" not in text_of(await call(source, "update")):
        harness.notices.clear()
    await harness.until(lambda: bool(harness.notices))
    await call(source, "hang_up")
    await harness.until(lambda: len(source.tools()) == 10)


async def test_expired_lists_of_a_modern_server_without_notifications_are_read_again(
    processes: Processes, tmp_path: Path
) -> None:
    async with open_harness(processes, tmp_path, timing=replace(QUICK, shortest_ttl=0.05)) as harness:
        silent, notifying = (
            upstream_spec("expiring_lists", "1", name="silent"),
            upstream_spec("expiring_lists", "1", "tells", name="notifying"),
        )
        source = await harness.connect(silent, notifying)
        await harness.until(lambda: len(source.tools()) >= 4)
        assert len(harness.source("notifying").tools()) == 1
        assert any(notice.kind == "tools/list_changed" for notice in harness.notices)


async def test_restarted_server_receives_subscriptions_and_log_level_again(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    context = CallContext(OWNER, "call", client=RecordingClient("anna").client())
    await source.request("resources/subscribe", {"uri": "note://one"}, context)
    await source.request("logging/setLevel", {"level": "error"}, context)
    pid = source.status.pid
    await call(source, "exit")
    await harness.until(lambda: source.status.pid not in (pid, None))
    methods = (await call(source, "abilities")).structured_content["told"]
    assert "resources/subscribe" in methods and "logging/setLevel" in methods


async def test_prompt_content_keeps_all_its_members(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    result = await source.request("prompts/get", {"name": "greet", "arguments": {"a": "b"}}, CallContext(OWNER, "call"))
    assert result == {"messages": [], "futureMember": {"name": "greet", "arguments": {"a": "b"}}}
    with pytest.raises(ProtocolError) as raised:
        await source.request("completion/complete", {}, CallContext(OWNER, "call"))
    assert raised.value.code == -32601


async def test_protocol_error_becomes_an_error_result_with_its_code(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "many", "3"))
    result = await call(source, "tool 1")
    assert result.is_error and text_of(result) == "MCP error: Unknown tool"
    assert result.fault is not None and result.fault.code == -32602
