"""What a client asks about sessions of agents: make them, speak to them, follow and steer them.

Above: `Client.sessions`. Below: `wire`. A stream of events that breaks off is taken up again where it was, so whoever
reads it sees every event once.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import cast

import anyio

from toolcrib.client.wire import Wire, path_to
from toolcrib.errors import Unavailable
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent, SessionEventKind

Answers = Mapping[str, str | list[str]]
"""By the text of each question: a choice or several."""

_SESSIONS = "/api/sessions"
_RESTS = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Seconds before each try to take a broken stream up again."""


class SessionsClient:
    """The part of one asker's client that is about sessions. Ids may be cut short."""

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
        """Sessions, the newest first: of one directory, or of all. `found` adds what Claude Code kept by itself."""
        # Every request says where it comes from; here an empty word says that this is not what is asked for.
        params = {
            "cwd": cwd or "",
            "agentId": agent,
            "state": state,
            "limit": limit,
            "found": "true" if found else None,
        }
        return await self._ask("GET", _SESSIONS, params)

    async def create(self, body: JsonObject | None = None) -> JsonObject:
        """Make a session; the client's own directory and source count where the body names none."""
        return await self._ask("POST", _SESSIONS, body=body or {})

    async def get(self, id: str) -> JsonObject:
        """One session."""
        return await self._ask("GET", path_to(_SESSIONS, id))

    async def send(self, id: str, content: str) -> JsonObject:
        """Say something; gives the number of the message, after which its events are read."""
        return await self._ask("POST", f"{path_to(_SESSIONS, id)}/messages", body={"content": content})

    async def interrupt(self, id: str) -> bool:
        """End the answer that is being given; false if there is none."""
        answer = await self._ask("POST", f"{path_to(_SESSIONS, id)}/interrupt")
        return bool(answer["interrupted"])

    async def answer(self, id: str, question: str, answers: Answers) -> JsonObject:
        """Answer a question of the agent."""
        path = path_to(f"{path_to(_SESSIONS, id)}/questions", question)
        return await self._ask("POST", path, body={"answers": dict(answers)})

    async def change(self, id: str, body: JsonObject) -> JsonObject:
        """Change mode, model or title."""
        return await self._ask("PATCH", path_to(_SESSIONS, id), body=body)

    async def fork(self, id: str, title: str | None = None) -> JsonObject:
        """Make another session that begins with all this one has said."""
        body = {} if title is None else {"title": title}
        return await self._ask("POST", f"{path_to(_SESSIONS, id)}/fork", body=body)

    async def delete(self, id: str) -> None:
        """Remove a session with all its events."""
        await self._ask("DELETE", path_to(_SESSIONS, id))

    def transcript(self, id: str, form: str | None = None) -> AsyncIterator[bytes]:
        """All that happened, as lines of JSON or as Markdown, piece by piece."""
        return self._wire.lines(f"{path_to(_SESSIONS, id)}/transcript", {"format": form})

    async def events(self, id: str, after: int | None = None) -> AsyncGenerator[SessionEvent]:
        """Events after this number, from now on if None, until the session is deleted or the crib stops.

        A connection that breaks is made anew, and goes on after the last event that came; if the crib is not there any
        more, that is raised.
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
                if error.code not in ("crib.closed", "crib.unreachable") or failures == len(_RESTS):
                    raise
                await anyio.sleep(_RESTS[failures])
                failures += 1

    async def _stream(self, id: str, after: int) -> AsyncGenerator[SessionEvent]:
        async for event in self._wire.events(f"{path_to(_SESSIONS, id)}/events", {"after": after}):
            yield _event(event)


def _event(event: Event) -> SessionEvent:
    data = dict(event.data)
    session, parent = str(data.pop("sessionId", "")), data.pop("parentToolCallId", None)
    # A newer crib may tell of kinds that this client does not know; they are passed on as they are.
    return SessionEvent(event.seq, event.at, session, cast("SessionEventKind", event.kind), data, parent)
