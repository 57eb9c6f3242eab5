"""Event streams of the legacy era that a client resumes by `Last-Event-ID`."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from integration.web.mcp.library import ROOM, Library
from lab import Lab
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import CallContext, ContentMethod
from toolcrib.web.mcp import resumable_streams, sdk

pytestmark = pytest.mark.anyio

ACCEPT = {"accept": "application/json, text/event-stream"}
CAN_ANSWER: JsonObject = {"elicitation": {}}


class Event(dict[str, str]):
    """One server-sent event, by field."""

    @property
    def message(self) -> JsonObject:
        """The JSON-RPC message of the event."""
        return json.loads(self["data"])


class Session:
    """A legacy MCP session over plain HTTP."""

    def __init__(self, http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
        self.http = http
        self.headers = headers

    @asynccontextmanager
    async def call(self, tool: str, **arguments: str) -> AsyncGenerator[AsyncIterator[Event]]:
        """Call a tool; leaving the block breaks the connection."""
        body: JsonObject = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
        body["params"] = {"name": tool, "arguments": arguments}
        async with self.http.stream("POST", "/mcp", json=body, headers=self.headers) as response:
            yield events(response)

    @asynccontextmanager
    async def resume(self, last: str) -> AsyncGenerator[AsyncIterator[Event]]:
        """Reconnect after an event."""
        headers = self.headers | {"last-event-id": last}
        async with self.http.stream("GET", "/mcp", headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield events(response)

    async def send(self, message: JsonObject) -> None:
        """Send a notification or a response."""
        answer = await self.http.post("/mcp", json={"jsonrpc": "2.0", **message}, headers=self.headers)
        assert answer.status_code == 202


async def events(response: httpx2.Response) -> AsyncIterator[Event]:
    """Parse the events of a stream."""
    event = Event()
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name.rstrip(":")] = value
        elif event.keys() - {""}:
            yield event
            event = Event()


@asynccontextmanager
async def open_session(lab: Lab, version: str = "2025-11-25") -> AsyncGenerator[Session]:
    hello: JsonObject = {"protocolVersion": version, "capabilities": CAN_ANSWER}
    hello["clientInfo"] = {"name": "test", "version": "1"}
    async with lab.http() as http:
        opening: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        answer = await http.post("/mcp", json=opening, headers=ACCEPT)
        headers = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": version}
        session = Session(http, ACCEPT | headers)
        await session.send({"method": "notifications/initialized"})
        yield session
        await http.delete("/mcp", headers=session.headers)  # a running call would delay the end of the crib


async def first(stream: AsyncIterator[Event], count: int) -> list[Event]:
    """Return the first events of a stream."""
    with anyio.fail_after(20):
        return [await anext(stream) for _ in range(count)]


async def test_broken_stream_is_resumed_with_the_missed_events(lab: Lab) -> None:
    async with open_session(lab) as session:
        async with session.call("library_ask_name") as stream:
            primed, asked = await first(stream, 2)
        assert (primed["data"], primed["retry"]) == ("", "1000")
        async with session.resume(primed["id"]) as stream:
            again = (await first(stream, 1))[0]
            assert again == asked
            answer: JsonObject = {"action": "accept", "content": {"name": "Ada"}}
            await session.send({"id": asked.message["id"], "result": answer})
            result = (await first(stream, 1))[0]
        assert result.message["id"] == 7
        assert "Hello Ada" in str(result.message["result"]["content"])
        async with session.resume(asked["id"]) as stream:  # the response may have been lost as well
            assert await first(stream, 1) == [result]


async def test_long_call_is_resumable_before_its_first_message(lab: Lab, tmp_path: Path) -> None:
    async with open_session(lab) as session:
        async with session.call("lab_wait_for_ever", note=str(tmp_path / "note")) as stream:
            primed = (await first(stream, 1))[0]
        async with session.resume(primed["id"]) as stream:
            await session.send({"method": "notifications/cancelled", "params": {"requestId": 7}})
            with anyio.fail_after(20):
                assert [event async for event in stream] == []


async def test_older_client_gets_no_event_without_data(lab: Lab) -> None:
    async with open_session(lab, "2025-06-18") as session, session.call("library_ask_name") as stream:
        asked = (await first(stream, 1))[0]
    assert asked.message["method"] == "elicitation/create"
    assert asked["id"]


async def test_call_ends_if_its_client_does_not_reconnect(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_streams, "RESUME_WITHIN", 0.2)
    async with open_session(lab) as session:
        async with session.call("library_ask_name") as stream:
            primed = (await first(stream, 2))[0]
        outcomes: list[JsonObject] = []
        with anyio.fail_after(20):
            while not outcomes:
                records = (await session.http.get("/api/audit")).json()
                outcomes = [one for one in records if (one["tool"], one["phase"]) == ("ask_name", "outcome")]
        answer = await session.http.get("/mcp", headers=session.headers | {"last-event-id": primed["id"]})
        assert (answer.status_code, answer.json()["code"]) == (410, "feed.gone")


async def test_stream_of_one_session_cannot_be_resumed_in_another(lab: Lab) -> None:
    async with open_session(lab) as session, open_session(lab) as other:
        async with session.call("library_ask_name") as stream:
            primed = (await first(stream, 1))[0]
        answer = await other.http.get("/mcp", headers=other.headers | {"last-event-id": primed["id"]})
        assert answer.status_code == 410


async def test_ending_the_session_cancels_its_detached_call(lab: Lab) -> None:
    async with open_session(lab) as session:
        async with session.call("library_ask_name") as stream:
            await first(stream, 2)
        await session.http.delete("/mcp", headers=session.headers)
        with anyio.fail_after(20):
            while True:
                records = (await session.http.get("/api/audit")).json()
                if any((one["tool"], one["phase"]) == ("ask_name", "outcome") for one in records):
                    break


async def test_standing_stream_of_a_session_is_resumed_without_a_gap(lab: Lab, library: Library) -> None:
    async with open_session(lab) as session:
        async with session.http.stream("GET", "/mcp", headers=session.headers) as response:
            library.add_book("ulysses")
            seen = (await first(events(response), 1))[0]
        library.add_book("dubliners")
        async with session.resume(seen["id"]) as stream:
            missed = (await first(stream, 1))[0]
            while missed.get("data", "") == "":
                missed = (await first(stream, 1))[0]
    assert seen.message["method"] == missed.message["method"] == "notifications/resources/list_changed"
    assert seen["id"] != missed["id"]


async def test_unknown_or_foreign_event_id_opens_the_standing_stream_from_now(lab: Lab, library: Library) -> None:
    async with open_session(lab) as session, open_session(lab) as other:
        async with other.http.stream("GET", "/mcp", headers=other.headers) as response:
            library.add_book("ulysses")
            foreign = (await first(events(response), 1))[0]["id"]
        for number, event_id in enumerate(("of-another-run", foreign)):
            async with session.resume(event_id) as stream:
                library.add_book(f"volume-{number}")
                event = (await first(stream, 1))[0]
            assert event.message["method"] == "notifications/resources/list_changed"
            assert event["id"].partition("-")[0] != foreign.partition("-")[0]


async def test_update_sent_before_the_subscription_is_confirmed_arrives(
    lab: Lab, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = library.request

    async def report_first(method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        if method == "resources/subscribe":
            library.notify("resources/updated", {"uri": ROOM})
            await anyio.wait_all_tasks_blocked()
        return await answer(method, params, context)

    monkeypatch.setattr(library, "request", report_first)
    async with open_session(lab) as session, session.http.stream("GET", "/mcp", headers=session.headers) as response:
        body = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": ROOM}}
        assert (await session.http.post("/mcp", json=body, headers=session.headers)).status_code == 200
        (event,) = await first(events(response), 1)
        assert event.message["method"] == "notifications/resources/updated"


async def test_only_the_newest_updates_are_kept_for_a_closed_stream(
    lab: Lab, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_session(lab) as session:
        monkeypatch.setattr(sdk, "WATCHED_BY_ONE", 1)
        body = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": ROOM}}
        assert (await session.http.post("/mcp", json=body, headers=session.headers)).status_code == 200
        for number in range(50):
            library.notify("resources/updated", {"uri": f"{ROOM}/{number}"})
        await anyio.wait_all_tasks_blocked()
        async with session.http.stream("GET", "/mcp", headers=session.headers) as response:
            kept = await first(events(response), 4)
    uris = [each.message["params"]["uri"] for each in kept]
    assert uris == [f"{ROOM}/{number}" for number in range(46, 50)]
