"""A session that a program opens, uses and closes in one block."""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from toolcrib.model.json import Json
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionEvent

if TYPE_CHECKING:
    from toolcrib.agents.sessions.sessions import Sessions


class OpenSession:
    """A session used by a program."""

    def __init__(self, sessions: "Sessions", id: str) -> None:
        self.id = id
        self._sessions = sessions

    async def send(self, content: str) -> AsyncIterator[SessionEvent]:
        """Send a prompt and yield every event until it is answered."""
        log = await self._sessions.events(self.id)
        sent = await self._sessions.send(self.id, content)
        async for batch in log.follow(sent.seq - 1):
            for event in batch:
                yield event
                if event.kind == "done":
                    return

    async def interrupt(self) -> bool:
        """Interrupt the running turn."""
        return await self._sessions.interrupt(self.id)

    async def answer(self, question: str, answers: Mapping[str, Json], *, by: Principal) -> None:
        """Answer an agent's question as a person."""
        await self._sessions.answer(question, answers, by=by)
