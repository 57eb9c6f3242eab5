"""A chat without a terminal: prompts from the command line or a pipe, answers to standard output.

Tool calls, questions and failures go to standard error; with `--json` every event is a JSON line on standard output.
Pending requests are printed with the command that answers them.

Must never send a prompt before the previous one is answered.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.cli import output
from toolcrib.cli.chat.view import ChatView, Piece, ViewLine
from toolcrib.model.errors import CODES, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.api_client import ApiClient

_LAST_WORDS: Final = 3.0
_WAITS: Final = {
    "approval_required": ("approvalId", "approvals approve {0}` or `toolcrib approvals deny {0}"),
    "question_prompt": ("questionId", 'approvals answer {0} --answer "QUESTION=CHOICE"'),
}


async def prompts(given: str | None) -> AsyncIterator[str]:
    """Yield the given prompt; `-` means all of standard input, None each line of it."""
    if given is not None and given != "-":
        yield given
        return
    read = sys.stdin.buffer.readline if given is None else sys.stdin.buffer.read
    while text := (await anyio.to_thread.run_sync(read, abandon_on_cancel=True)).decode("utf-8", "replace"):
        if text.strip():
            yield text.strip()


class PlainChat:
    """One chat. Call `run` again after the crib was lost."""

    def __init__(self, session: JsonObject, prompts: AsyncIterator[str], *, as_json: bool) -> None:
        self.id = str(session["id"])
        self.exit_code = 0
        self._prompts = prompts
        self._as_json = as_json
        self._view = ChatView(session, int(session["lastSeq"]))
        self._awaited = self._view.is_busy
        self._unsure: str | None = None
        self._error: str | None = None

    async def run(self, client: ApiClient) -> None:
        """Send every prompt and wait for its answer. Cancelling interrupts the turn."""
        try:
            await self._follow_turn(client)
            while (prompt := self._unsure or await anext(self._prompts, None)) is not None:
                if self._unsure is None or not await self._has_arrived(client):
                    self._unsure = prompt
                    await client.sessions.send(self.id, prompt)
                self._unsure, self._awaited = None, True
                await self._follow_turn(client)
        except anyio.get_cancelled_exc_class():
            if self._awaited:
                with anyio.move_on_after(_LAST_WORDS, shield=True):
                    await client.sessions.interrupt(self.id)
            raise

    async def _has_arrived(self, client: ApiClient) -> bool:
        """Return whether the prompt during which the crib was lost was recorded; this chat is the only sender."""
        return int((await client.sessions.get(self.id))["lastSeq"]) > self._view.seq

    async def _follow_turn(self, client: ApiClient) -> None:
        """Display events until the turn has ended."""
        while self._awaited:
            async with aclosing(client.sessions.events(self.id, self._view.seq)) as events:
                async for event in events:
                    self._take(event.shape)
                    if not self._awaited:
                        return
            raise Unavailable("crib.closed", "The crib stopped before the answer was complete.")

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
            self._update_exit_code(str(event.get("reason")))

    def _show(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, ViewLine):
                output.note(piece.text)
            elif piece.tone == "plain":
                output.part(piece.text)

    def _update_exit_code(self, reason: str) -> None:
        """Update the exit code; the worst turn counts."""
        if reason == "completed":
            return
        code = CODES.get(self._error or "")
        self.exit_code = max(self.exit_code, code.raised_as.exit_code if code is not None else 1)
