"""Elicitation during a call: live in the legacy era, by retry in the modern one."""

from typing import Any

import anyio
import httpx2
import pytest
from mcp.types import ElicitResult

from integration.web.mcp.library import Library
from integration.web.mcp.test_bad_input import HEADERS, META
from lab import Door, Lab, ModeName
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
DOORS: list[Door] = ["http", "stdio"]
both_eras = pytest.mark.parametrize("era", ERAS)
both_doors = pytest.mark.parametrize("door", DOORS)
ELICITATION_META: JsonObject = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


class Respondent:
    """Accepts elicitations with the given names."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.messages: list[str] = []

    async def __call__(self, context: object, params: Any) -> ElicitResult:
        self.messages.append(params.message)
        return ElicitResult(action="accept", content={"name": self.names.pop(0)})


async def call(
    http: httpx2.AsyncClient,
    tool: str,
    state: str | None = None,
    answers: JsonObject | None = None,
    path: str = "/mcp",
    **changed: Any,
) -> JsonObject:
    """Send a request as a modern client that supports elicitation."""
    params: JsonObject = {"name": tool, "arguments": {}, "_meta": ELICITATION_META}
    if state is not None:
        params["requestState"] = state
    if answers is not None:
        params["inputResponses"] = answers
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params | changed}
    return (await http.post(path, json=body, headers=HEADERS | {"mcp-name": tool})).json()


def responses_to(asked: JsonObject, name: str) -> JsonObject:
    return {key: {"action": "accept", "content": {"name": name}} for key in asked["result"]["inputRequests"]}


@both_doors
@both_eras
async def test_elicitation_is_answered_and_the_call_continues(lab: Lab, door: Door, era: ModeName) -> None:
    respondent = Respondent("Ada", "Grace")
    async with lab.client(door, era, elicitation_callback=respondent) as client:
        result = await client.call_tool("library_ask_twice", {})
    assert "Hello Ada and Grace" in str(result.content)
    assert respondent.messages == ["Who reads?"] * 2


@both_doors
@both_eras
async def test_client_without_elicitation_gets_an_error(lab: Lab, library: Library, door: Door, era: ModeName) -> None:
    async with lab.client(door, era) as client:
        result = await client.call_tool("library_ask_name", {})
    assert (result.is_error, "Nobody can be asked" in str(result.content)) == (True, True)
    assert library.clients[0] is not None
    assert library.clients[0].ask is None


@both_doors
async def test_input_required_result_is_retried_with_answers_and_state(lab: Lab, door: Door) -> None:
    async with lab.client(door, "2026-07-28", elicitation_callback=Respondent("Ada")) as client:
        result = await client.call_tool("library_want_name", {})
    assert "Hello Ada, you are on page 7" in str(result.content)


async def test_server_sees_the_capabilities_info_and_metadata_of_the_client(lab: Lab, library: Library) -> None:
    async with lab.client("http", "legacy", elicitation_callback=Respondent()) as client:
        await client.call_tool("library_look", {}, meta={"own/key": 1, "toolcrib/approval": "handle"})
    async with lab.client("http", "2026-07-28", elicitation_callback=Respondent()) as client:
        await client.call_tool("library_look", {}, meta={"own/key": 2, "toolcrib/approval": "handle"})
    old, new = library.clients
    assert old is not None
    assert new is not None
    assert (old.answers_by_retry, new.answers_by_retry) == (False, True)
    assert "elicitation" in old.capabilities
    assert "elicitation" in new.capabilities
    assert old.info is not None
    assert old.info["name"] == "mcp"
    assert (old.meta, new.meta) == ({"own/key": 1}, {"own/key": 2})


async def test_invalid_request_state_is_refused(lab: Lab) -> None:
    async with lab.http() as http:
        for tool in ("library_ask_name", "library_want_name"):
            asked = await call(http, tool)
            state: str = asked["result"]["requestState"]
            answers = responses_to(asked, "Ada")
            changed = state[:-2] + ("A" if state[-2] != "A" else "B") + state[-1]
            for wrong in (
                await call(http, tool, changed, answers),
                await call(http, tool, "", answers),
                await call(http, tool, state, answers, arguments={"other": 1}),
                await call(http, "library_look", state, answers),
            ):
                assert wrong["error"]["code"] == -32602
            right = await call(http, tool, state, answers)
            assert "Hello Ada" in str(right["result"]["content"])


async def test_request_state_is_invalid_at_another_endpoint(lab: Lab) -> None:
    async with lab.http() as http:
        asked = await call(http, "library_want_name")
        state = asked["result"]["requestState"]
        answer = await call(http, "library_want_name", state, responses_to(asked, "Ada"), path="/mcp?tools=search")
    assert answer["error"]["code"] == -32602


async def test_suspended_call_repeats_unanswered_elicitations(lab: Lab) -> None:
    async with lab.http() as http:
        asked = await call(http, "library_ask_twice")
        again = await call(http, "library_ask_twice", asked["result"]["requestState"], {})
        assert again["result"]["inputRequests"] == asked["result"]["inputRequests"]
        second = await call(http, "library_ask_twice", again["result"]["requestState"], responses_to(again, "Ada"))
        assert second["result"]["resultType"] == "input_required"
        assert second["result"]["inputRequests"].keys() != asked["result"]["inputRequests"].keys()
        last = await call(http, "library_ask_twice", second["result"]["requestState"], responses_to(second, "Grace"))
        assert "Hello Ada and Grace" in str(last["result"]["content"])
        over = await call(http, "library_ask_twice", second["result"]["requestState"], responses_to(second, "Grace"))
        assert over["error"]["code"] == -32602


async def test_suspended_call_leaves_one_intent_and_one_outcome(lab: Lab) -> None:
    async with lab.http() as http:
        asked = await call(http, "library_ask_name")
        await call(http, "library_ask_name", asked["result"]["requestState"], responses_to(asked, "Ada"))
        records = (await http.get("/api/audit")).json()
    assert [record["phase"] for record in records if record["tool"] == "ask_name"] == ["outcome", "intent"]


async def test_stopping_the_crib_ends_suspended_calls(lab: Lab, library: Library) -> None:
    """The fixture closes the crib during the suspended call, and would hang if the call continued."""
    async with lab.http() as http:
        asked = await call(http, "library_ask_name")
    assert asked["result"]["resultType"] == "input_required"


async def test_unexpected_response_is_accepted_and_dropped(lab: Lab) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    accept = {"accept": HEADERS["accept"]}
    async with lab.http() as http:
        opened = await http.post("/mcp", json=opening, headers=accept)
        session = accept | {"mcp-session-id": opened.headers["mcp-session-id"]}
        strays: list[JsonObject] = [{"id": "guessed", "result": {}}, {"id": 7, "error": {"code": 1, "message": "no"}}]
        for stray in strays:
            answer = await http.post("/mcp", json={"jsonrpc": "2.0", **stray}, headers=session)
            assert (answer.status_code, answer.content) == (202, b"")


async def test_legacy_client_that_disconnects_during_an_elicitation_ends_the_call(lab: Lab, library: Library) -> None:
    waiting = anyio.Event()
    nothing: JsonObject = {}

    async def never(context: object, params: object) -> ElicitResult:
        waiting.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with lab.client("http", "legacy", elicitation_callback=never) as client, anyio.create_task_group() as calls:
        calls.start_soon(client.call_tool, "library_ask_name", nothing)
        with anyio.fail_after(10):
            await waiting.wait()
        calls.cancel_scope.cancel()
    async with lab.http() as http:

        async def records() -> list[JsonObject]:
            return (await http.get("/api/audit")).json()

        found: list[JsonObject] = []
        with anyio.fail_after(10):
            while not any(each["phase"] == "outcome" and each["tool"] == "ask_name" for each in found):
                found = await records()
