"""Sessions over HTTP with a runtime that plays scripts."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2

from integration.web.crib import Running
from toolcrib.model.json import Json, JsonObject, loads
from toolcrib.testing.played import PlayedRunner

BOUND = 15.0
"""Seconds after which any wait of these tests fails."""

HELLO: Json = [{"blocks": [{"text": "Hello there, how are you today?"}]}]
ECHO: Json = [
    {"blocks": [{"text": "I try."}, {"tool": "mcp__bench__echo", "input": {"text": "ab", "times": 2}}]},
    {"blocks": [{"text": "It said {{last_tool_result}}"}]},
]
WAIT: Json = [{"blocks": [{"tool": "mcp__bench__wait", "input": {}}]}, {"blocks": [{"text": "Waited."}]}]
COLOUR = "Which colour?"
ASK: Json = [
    {
        "blocks": [
            {
                "tool": "AskUserQuestion",
                "input": {"questions": [{"question": COLOUR, "options": [{"label": "Red"}, {"label": "Blue"}]}]},
            }
        ]
    },
    {"blocks": [{"text": "So: {{last_tool_result}}"}]},
]
LIST: Json = [{"blocks": [{"tool": "Bash", "input": {"command": "ls"}}]}, {"blocks": [{"text": "Listed."}]}]
REMOVE: Json = [{"blocks": [{"tool": "Bash", "input": {"command": "rm -rf x"}}]}, {"blocks": [{"text": "Removed."}]}]
SCRIPTS: dict[str, Json] = {
    "hello": HELLO, "echo": ECHO, "wait": WAIT, "ask": ASK, "list": LIST, "remove": REMOVE,
}  # fmt: skip


def frames(text: bytes) -> list[JsonObject]:
    """Parse the events of a stream and check their form."""
    found: list[JsonObject] = []
    for frame in text.split(b"\n\n"):
        if frame and not frame.startswith(b":"):
            number, kind, data = frame.split(b"\n")
            event: JsonObject = loads(data.removeprefix(b"data: "))
            assert (number, kind) == (f"id: {event['seq']}".encode(), f"event: {event['kind']}".encode())
            found.append(event)
    return found


@dataclass
class SessionClient:
    """A crib, its played runtime and an HTTP client."""

    running: Running
    client: httpx2.AsyncClient
    runner: PlayedRunner
    cwd: Path

    async def request(self, method: str, path: str, body: Json = None, status: int = 200) -> Json:
        """Send a request and check its status; return the JSON."""
        answer = await self.client.request(method, path, json=body)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def create(self, **body: Json) -> str:
        """Create a session on the played runtime and return its id."""
        given = {"runner": "played", "cwd": str(self.cwd), **body}
        return str((await self.request("POST", "/api/sessions", given, 201))["id"])

    async def send(self, id: str, content: str) -> JsonObject:
        """Send a message to a session."""
        return await self.request("POST", f"/api/sessions/{id}/messages", {"content": content}, 202)

    async def until(
        self, id: str, is_last: Callable[[JsonObject], bool], after: int = 0, *, by_header: bool = False
    ) -> list[JsonObject]:
        """Follow a session; return its events up to the first that matches."""
        headers = {"last-event-id": str(after)} if by_header else {}
        params = {} if by_header else {"after": after}
        received = b""
        with anyio.fail_after(BOUND):
            path = f"/api/sessions/{id}/events"
            async with self.client.stream("GET", path, headers=headers, params=params) as stream:
                assert stream.status_code == 200
                async for piece in stream.aiter_bytes():
                    received += piece
                    whole = frames(received.rpartition(b"\n\n")[0])
                    for number, event in enumerate(whole):
                        if is_last(event):
                            return whole[: number + 1]
        raise AssertionError(f"The stream ended: {frames(received)}")

    async def until_done(self, id: str, after: int = 0) -> list[JsonObject]:
        """Follow a session to the end of an answer."""
        return await self.until(id, kind("done"), after)

    async def until_kind(self, id: str, wanted: str, after: int = 0) -> JsonObject:
        """Return the first event of this kind."""
        return (await self.until(id, kind(wanted), after))[-1]

    async def events_to_end(self, id: str, after: int = 0) -> list[JsonObject]:
        """Follow a session until its stream ends."""
        with anyio.fail_after(BOUND):
            answer = await self.client.get(f"/api/sessions/{id}/events", params={"after": after})
        return frames(answer.content)


def kind(wanted: str) -> Callable[[JsonObject], bool]:
    """Return a predicate for events of this kind."""
    return lambda event: event["kind"] == wanted


def kinds(events: list[JsonObject]) -> list[str]:
    """Return the kinds of all events except status events."""
    return [event["kind"] for event in events if event["kind"] != "session_status"]


@asynccontextmanager
async def open_session_client(running: Running, cwd: Path) -> AsyncGenerator[SessionClient]:
    """Add a played runtime to the crib and yield a client of its sessions."""
    runner = PlayedRunner(SCRIPTS)
    running.holding.crib.runners.add(runner)
    async with running.client() as client:
        yield SessionClient(running, client, runner, cwd)
