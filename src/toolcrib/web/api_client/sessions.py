"""The client's methods for agents' sessions.

A broken event stream is resumed where it ended, so that a reader sees every event once.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import cast

import anyio

from toolcrib.model.errors import Unavailable
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent, SessionEventKind
from toolcrib.web.api_client.wire import Wire, path_to

Answers = Mapping[str, str | list[str]]
"""One choice, or several, by the text of each question."""

_SESSIONS = "/api/sessions"
_RESTS = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Back-off in seconds before each attempt to resume a broken stream."""


class SessionsClient:
    """Manages sessions. Ids may be abbreviated."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ask = wire.ask

    async def list(
        self,
        *,
        cwd: str | None = None,
        agent: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        found: bool = False,
    ) -> list[JsonObject]:
        """Return sessions, newest first, of one directory or all. `found` adds those that Claude Code keeps itself."""
        # An empty `cwd` overrides the client's own, which every request carries.
        params = {
            "cwd": cwd or "",
            "agentId": agent,
            "state": state,
            "limit": limit,
            "found": "true" if found else None,
        }
        return await self._ask("GET", _SESSIONS, params)

    async def create(self, body: JsonObject | None = None) -> JsonObject:
        """Create a session; directory and source default to the client's own."""
        return await self._ask("POST", _SESSIONS, body=body or {})

    async def get(self, id: str) -> JsonObject:
        """Return one session."""
        return await self._ask("GET", path_to(_SESSIONS, id))

    async def send(self, id: str, content: str) -> JsonObject:
        """Send a message. Returns its number, after which its events can be read."""
        return await self._ask("POST", f"{path_to(_SESSIONS, id)}/messages", body={"content": content})

    async def interrupt(self, id: str) -> bool:
        """Interrupt the answer in progress. Return False if there is none."""
        answer = await self._ask("POST", f"{path_to(_SESSIONS, id)}/interrupt")
        return bool(answer["interrupted"])

    async def answer(self, id: str, question: str, answers: Answers) -> JsonObject:
        """Answer a question of the agent."""
        path = path_to(f"{path_to(_SESSIONS, id)}/questions", question)
        return await self._ask("POST", path, body={"answers": dict(answers)})

    async def change(self, id: str, body: JsonObject) -> JsonObject:
        """Change the mode, model or title."""
        return await self._ask("PATCH", path_to(_SESSIONS, id), body=body)

    async def fork(self, id: str, title: str | None = None) -> JsonObject:
        """Create a session that continues from a copy of this one's conversation."""
        body = {} if title is None else {"title": title}
        return await self._ask("POST", f"{path_to(_SESSIONS, id)}/fork", body=body)

    async def delete(self, id: str) -> None:
        """Delete a session and its events."""
        await self._ask("DELETE", path_to(_SESSIONS, id))

    def transcript(self, id: str, form: str | None = None) -> AsyncIterator[bytes]:
        """Yield the transcript in pieces, as lines of JSON or as Markdown."""
        return self._wire.lines(f"{path_to(_SESSIONS, id)}/transcript", {"format": form})

    async def replay(self, id: str, body: JsonObject) -> JsonObject:
        """Replay a recorded session. Waits without a timeout."""
        return await self._ask("POST", f"{path_to(_SESSIONS, id)}/replay", body=body, patient=True)

    async def replay_recording(self, recording: str, body: JsonObject) -> JsonObject:
        """Replay an exported recording. Waits without a timeout."""
        return await self._ask("POST", f"{_SESSIONS}/replay", body={**body, "recording": recording}, patient=True)

    async def compare(self, id: str, other: str) -> JsonObject:
        """Compare two sessions side by side."""
        return await self._ask("GET", f"{path_to(_SESSIONS, id)}/compare", {"with": other})

    def recording(self, id: str) -> AsyncIterator[bytes]:
        """Yield the recording of a session in pieces, as lines of JSON."""
        return self._wire.lines(f"{path_to(_SESSIONS, id)}/recording", {})

    async def events(self, id: str, after: int | None = None) -> AsyncGenerator[SessionEvent]:
        """Yield events after this number, or from now on if None, until the session is deleted or the crib stops.

        A broken connection is resumed after the last event. Raises `Unavailable` once all attempts have failed.
        """
        seen = (await self.get(id))["lastSeq"] if after is None else after
        failures = 0
        while True:
            try:
                async with aclosing(self._stream(id, seen)) as stream:
                    async for event in stream:
                        seen, failures = event.seq, 0
                        yield event
                return
            except Unavailable as error:
                if error.code not in ("crib.closed", "crib.stopping", "crib.unreachable") or failures == len(_RESTS):
                    raise
                await anyio.sleep(_RESTS[failures])
                failures += 1

    async def _stream(self, id: str, after: int) -> AsyncGenerator[SessionEvent]:
        async for event in self._wire.events(f"{path_to(_SESSIONS, id)}/events", {"after": after}):
            yield _event(event)


def _event(event: Event) -> SessionEvent:
    data = dict(event.data)
    session, parent = str(data.pop("sessionId", "")), data.pop("parentToolCallId", None)
    # A newer crib may send kinds that this client does not know; they are passed on unchanged.
    return SessionEvent(event.seq, event.at, session, cast("SessionEventKind", event.kind), data, parent)
