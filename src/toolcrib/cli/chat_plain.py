"""A chat without a terminal: prompts come from the command line or a pipe, what the agent says goes to standard output.

Tools, questions and failures are talk and go to standard error; with `--json` every event is a line of JSON on standard
output instead. Nobody is asked here: what waits for a person is told, with the command that answers it.

Above: `chat`, `sessions send`. Below: `chat_view`, the client. It must never send a prompt before the one before is
answered.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.cli import output
from toolcrib.cli.chat_view import ChatView, Line, Piece
from toolcrib.client import Client
from toolcrib.errors import CODES, Unavailable
from toolcrib.model.json import JsonObject

_LAST_WORDS: Final = 3.0
_WAITS: Final = {
    "approval_required": ("approvalId", "approvals approve {0}` or `toolcrib approvals deny {0}"),
    "question_prompt": ("questionId", 'approvals answer {0} --answer "QUESTION=CHOICE"'),
}


async def prompts(given: str | None) -> AsyncIterator[str]:
    """The prompt that was given; `-` stands for all of standard input, None for each line of it."""
    if given is not None and given != "-":
        yield given
        return
    read = sys.stdin.buffer.readline if given is None else sys.stdin.buffer.read
    while text := (await anyio.to_thread.run_sync(read, abandon_on_cancel=True)).decode("utf-8", "replace"):
        if text.strip():
            yield text.strip()


class PlainChat:
    """One chat, over as many connections as it takes: `run` it again where the crib was lost."""

    def __init__(self, session: JsonObject, prompts: AsyncIterator[str], *, as_json: bool) -> None:
        self.id = str(session["id"])
        self.exit_code = 0
        self._prompts = prompts
        self._as_json = as_json
        self._view = ChatView(session, int(session["lastSeq"]))
        self._awaited = self._view.is_busy
        self._unsure: str | None = None
        self._error: str | None = None

    async def run(self, client: Client) -> None:
        """Have every prompt answered. When this is cancelled, so is the answer."""
        try:
            await self._answered(client)
            while (prompt := self._unsure or await anext(self._prompts, None)) is not None:
                if self._unsure is None or not await self._has_arrived(client):
                    self._unsure = prompt
                    await client.sessions.send(self.id, prompt)
                self._unsure, self._awaited = None, True
                await self._answered(client)
        except anyio.get_cancelled_exc_class():
            if self._awaited:
                with anyio.move_on_after(_LAST_WORDS, shield=True):
                    await client.sessions.interrupt(self.id)
            raise

    async def _has_arrived(self, client: Client) -> bool:
        """Whether the prompt is on record during which the crib was lost; nobody else speaks here."""
        return int((await client.sessions.get(self.id))["lastSeq"]) > self._view.seq

    async def _answered(self, client: Client) -> None:
        """Show what happens until the turn has ended."""
        while self._awaited:
            async with aclosing(client.sessions.events(self.id, self._view.seq)) as events:
                async for event in events:
                    self._take(event.shape)
                    if not self._awaited:
                        return
            raise Unavailable("crib.closed", "The crib ended before the answer did.")

    def _take(self, event: JsonObject) -> None:
        if int(event["seq"]) <= self._view.seq:
            return
        pieces = self._view.show(event)
        if self._as_json:
            output.record(event)
        elif event["kind"] != "user_message":
            self._show(pieces)
        if (waits := _WAITS.get(str(event["kind"]))) is not None:
            output.note(f"waiting: answer with `toolcrib {waits[1].format(event[waits[0]])}`.")
        if event["kind"] == "error":
            self._error = str(event["code"])
        if event["kind"] == "done":
            self._awaited = False
            self._judge(str(event.get("reason")))

    def _show(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Line):
                output.note(piece.text)
            elif piece.tone == "plain":
                output.part(piece.text)

    def _judge(self, reason: str) -> None:
        """What the answer means for whoever started the command: the worst counts."""
        if reason == "completed":
            return
        code = CODES.get(self._error or "")
        self.exit_code = max(self.exit_code, code.raised_as.exit_code if code is not None else 1)
