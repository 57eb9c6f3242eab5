"""Between a server and the client behind a call: questions, messages, changes; and nothing to the wrong one."""

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

ABILITIES: JsonObject = {"elicitation": {"form": {}}, "sampling": {}}
YES: JsonObject = {"action": "accept", "content": {"why": "because"}}


@dataclass
class Person:
    """A client with a person behind it, who says yes, and hears what it is told."""

    name: str
    asked: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    heard: list[JsonObject] = field(default_factory=list[JsonObject])
    refuses: bool = False

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Answer."""
        self.asked.append((method, params))
        if self.refuses:
            raise ProtocolError(-32000, "I would rather not", {"because": "so"})
        return {**YES, "by": self.name}

    async def tell(self, method: str, params: JsonObject) -> None:
        """Listen."""
        await anyio.lowlevel.checkpoint()
        self.heard.append({"method": method, **params})

    def client(self, *, log_level: str | None = None, by_retry: bool = False) -> Client:
        """The client that asks and tells this person live."""
        if by_retry:
            return Client(ABILITIES, {"name": self.name, "version": "1"}, answers_by_retry=True)
        return Client(ABILITIES, {"name": self.name, "version": "1"}, self.name, self.ask, self.tell, log_level)


async def call_all(source: UpstreamSource, tool: str, people: Sequence[Person], level: str | None) -> list[CallResult]:
    """Each of these people calls a tool at the same time, as somebody else."""
    results = list[CallResult]()

    async def one(person: Person) -> None:
        context = CallContext(Principal("token", person.name, "ide"), "call", client=person.client(log_level=level))
        results.append(await source.prepare(tool, {"text": person.name}, b"")(context))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for person in people:
                tasks.start_soon(one, person)
    return results


async def test_a_modern_server_sees_the_callers_abilities_and_nothing_of_ours(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("modern"))
    client = Client(ABILITIES, {"name": "ide"}, log_level="info", meta={"traceparent": "00-1", "progressToken": 7})
    seen = (await call(source, "who", client)).structured_content["_meta"]
    assert seen["io.modelcontextprotocol/clientCapabilities"] == ABILITIES
    assert seen["io.modelcontextprotocol/clientInfo"] == {"name": "ide"}
    assert seen["io.modelcontextprotocol/logLevel"] == "info"
    assert seen["traceparent"] == "00-1" and "progressToken" not in seen
    seen = (await call(source, "who")).structured_content["_meta"]
    assert seen["io.modelcontextprotocol/clientCapabilities"] == {}
    assert seen["io.modelcontextprotocol/clientInfo"]["name"] == "toolcrib-tests"


async def test_a_question_of_a_modern_server_is_asked_live_and_answered_in_a_second_request(
    harness: PoolHarness,
) -> None:
    source, person = await harness.connect(upstream_spec("modern")), Person("anna")
    result = await call(source, "ask", person.client())
    assert person.asked == [("elicitation/create", {"message": "Why?"})]
    assert result.structured_content == {"answers": {"why": {**YES, "by": "anna"}}, "state": "state"}


async def test_a_client_that_answers_by_retry_gets_the_question_and_its_answers_are_passed_on(
    harness: PoolHarness,
) -> None:
    source, person = await harness.connect(upstream_spec("modern")), Person("anna")
    asked = await call(source, "ask", person.client(by_retry=True))
    assert not asked.is_final and asked.extra["requestState"] == "state" and not person.asked
    again = Client(ABILITIES, answers_by_retry=True, responses={"why": YES}, state="state")
    result = await call(source, "ask", again)
    assert result.structured_content == {"answers": {"why": YES}, "state": "state"}


@pytest.mark.parametrize(
    ("tool", "refuses", "reason"),
    [
        ("forever", False, "for input more than 10 times"),
        ("bulky", False, "too large"),
        ("ask", True, "I would rather not"),
    ],
)
async def test_a_question_that_leads_nowhere_ends_as_an_error(
    harness: PoolHarness, tool: str, refuses: bool, reason: str
) -> None:
    source = await harness.connect(upstream_spec("modern"))
    result = await call(source, tool, Person("anna", refuses=refuses).client())
    assert result.is_error and reason in text_of(result)
    assert not (await call(source, "who")).is_error


async def test_a_question_to_a_client_that_cannot_be_asked_is_an_error_that_says_so(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("modern"))
    for client in (None, Client(ABILITIES)):
        result = await call(source, "ask", client)
        assert result.is_error and "does not support" in text_of(result)
        with pytest.raises(ProtocolError, match="does not support"):
            await source.request("prompts/get", {"name": "ask"}, CallContext(OWNER, "call", client=client))


async def test_a_shared_legacy_server_is_told_of_no_abilities_and_its_questions_are_refused(
    harness: PoolHarness,
) -> None:
    source, person = await harness.connect(upstream_spec("legacy", "plain")), Person("anna")
    result = await call(source, "ask", person.client())
    assert result.structured_content["error"]["code"] == -32601 and not person.asked
    assert (await call(source, "abilities", person.client())).structured_content["abilities"] == {}


async def test_a_legacy_server_of_a_session_asks_the_client_of_that_session_and_no_other(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain", share="session"))
    people = [Person(f"person {number}") for number in range(4)]
    results = await call_all(source, "ask", people, None)
    for person in people:
        assert [params["message"] for _, params in person.asked] == [person.name]
    answers = {result.structured_content["result"]["by"] for result in results}
    assert answers == {person.name for person in people}
    mine = await call(source, "abilities", people[0].client())
    assert mine.structured_content["abilities"] == ABILITIES
    pids = {text_of(await call(source, "pid", person.client())) for person in people}
    assert len(pids) == 4 and text_of(await call(source, "pid")) not in pids
    harness.pool.end_session(people[0].name)
    assert text_of(await call(source, "pid", people[0].client())) not in pids


async def test_a_tool_for_clients_with_a_capability_is_listed_unless_the_server_is_shared(harness: PoolHarness) -> None:
    shared = upstream_spec("legacy", "plain", name="shared")
    source = await harness.connect(upstream_spec("legacy", "plain", share="session"), shared)
    assert "guess" in {tool.ref.tool for tool in source.tools()}
    assert "guess" not in {tool.ref.tool for tool in harness.source("shared").tools()}
    able = Person("anna").client()
    assert text_of(await call(source, "guess", able)) == "heads"
    unable = Client({}, {"name": "ben", "version": "1"}, "ben")
    refused = await call(source, "guess", unable)
    assert refused.is_error and "Unknown tool" in text_of(refused)


async def test_what_a_client_refuses_reaches_the_legacy_server_that_asked(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain", share="session"))
    result = await call(source, "ask", Person("anna", refuses=True).client())
    assert result.structured_content["error"] == {
        "code": -32000,
        "message": "I would rather not",
        "data": {"because": "so"},
    }


async def test_a_server_of_both_eras_is_asked_in_the_old_one_for_a_client_that_is_asked_live(
    harness: PoolHarness,
) -> None:
    source, person = await harness.connect(sdk_spec(share="session")), Person("anna")
    assert source.status.era == "modern"
    assert text_of(await call(source, "ask", person.client())) == "{'why': 'because'}"
    assert person.asked[0][0] == "elicitation/create"


async def test_messages_reach_the_one_caller_that_wants_them_before_its_result(harness: PoolHarness) -> None:
    source, person = await harness.connect(upstream_spec("legacy", "plain")), Person("anna")
    await call(source, "log", person.client(log_level="info"))
    assert [params["level"] for params in person.heard] == ["warning"]
    await call(source, "log", person.client())
    assert len(person.heard) == 1


async def test_messages_that_may_be_somebody_elses_reach_nobody(harness: PoolHarness) -> None:
    source, people = await harness.connect(upstream_spec("legacy", "plain")), [Person("anna"), Person("ben")]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_all, source, "sleep", [people[0]], "debug")
        await call(source, "pid")
        await call_all(source, "log", [people[1]], "debug")
        tasks.cancel_scope.cancel()
    assert people[0].heard == people[1].heard == []


async def test_a_resource_is_subscribed_once_and_its_news_are_told(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    for name in ("anna", "ben"):
        context = CallContext(Principal("token", name, "ide"), "call", client=Person(name).client())
        assert await source.request("resources/subscribe", {"uri": "note://one"}, context) == {}
    await call(source, "update")
    await harness.until(lambda: bool(harness.notices))
    assert [(notice.server, notice.params) for notice in harness.notices] == [("legacy", {"uri": "note://one"})]
    told = (await call(source, "abilities")).structured_content["told"]
    assert told.count("resources/subscribe") == 1
    harness.pool.end_session("anna")
    context = CallContext(OWNER, "call", client=Person("ben").client())
    await source.request("resources/unsubscribe", {"uri": "note://one"}, context)
    told = (await call(source, "abilities")).structured_content["told"]
    assert told.count("resources/unsubscribe") == 1


async def test_a_modern_server_is_listened_to_and_asked_again_for_what_may_have_been_missed(
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


async def test_lists_of_a_modern_server_that_tells_of_no_changes_are_read_again_when_they_expire(
    processes: Processes, tmp_path: Path
) -> None:
    async with open_harness(processes, tmp_path, timing=replace(QUICK, shortest_ttl=0.05)) as harness:
        silent, telling = (
            upstream_spec("expiring_lists", "1", name="silent"),
            upstream_spec("expiring_lists", "1", "tells", name="telling"),
        )
        source = await harness.connect(silent, telling)
        await harness.until(lambda: len(source.tools()) >= 4)
        assert len(harness.source("telling").tools()) == 1
        assert any(notice.kind == "tools/list_changed" for notice in harness.notices)


async def test_a_server_that_was_started_again_is_told_what_was_wanted_of_it(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    context = CallContext(OWNER, "call", client=Person("anna").client())
    await source.request("resources/subscribe", {"uri": "note://one"}, context)
    await source.request("logging/setLevel", {"level": "error"}, context)
    pid = source.status.pid
    await call(source, "exit")
    await harness.until(lambda: source.status.pid not in (pid, None))
    told = (await call(source, "abilities")).structured_content["told"]
    assert "resources/subscribe" in told and "logging/setLevel" in told


async def test_content_is_passed_on_with_all_its_members(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "plain"))
    result = await source.request("prompts/get", {"name": "greet", "arguments": {"a": "b"}}, CallContext(OWNER, "call"))
    assert result == {"messages": [], "futureMember": {"name": "greet", "arguments": {"a": "b"}}}
    with pytest.raises(ProtocolError) as raised:
        await source.request("completion/complete", {}, CallContext(OWNER, "call"))
    assert raised.value.code == -32601


async def test_an_error_of_the_protocol_is_a_result_that_keeps_its_code(harness: PoolHarness) -> None:
    source = await harness.connect(upstream_spec("legacy", "many", "3"))
    result = await call(source, "tool 1")
    assert result.is_error and text_of(result) == "MCP error: Unknown tool"
    assert result.fault is not None and result.fault.code == -32602
