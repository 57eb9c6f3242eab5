"""A chat at a terminal: the session's events flow by, and the person types messages, commands and answers.

The row in which the person types belongs to one thing at a time: to messages, or to the one question that is next. It
changes hands only when no key was pressed for a moment, so that what was typed for one thing never answers another.

Above: `chat`. Below: `chat_view`, `chat_screen`, `chat_input`, `chat_asks`, the client. It must never answer for the
person.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from toolcrib.cli import output
from toolcrib.cli.arguments import parse_arguments
from toolcrib.cli.chat_asks import Ask, Asks, Verdict, choices_line, read_choice, read_verdict
from toolcrib.cli.chat_commands import run_command
from toolcrib.cli.chat_input import Action, Editor, Entered, Keys
from toolcrib.cli.chat_screen import Screen
from toolcrib.cli.chat_view import ChatView, Line, Tone, failure_lines
from toolcrib.cli.crib import is_lost
from toolcrib.client import Client
from toolcrib.errors import NotFound, ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.policy import coding

QUIET: Final = 0.5
"""Seconds without a key, and after a question came, before the row is the question's."""
TWICE: Final = 2.0
"""Seconds within which a second Ctrl-C leaves."""
_LINES: Final = 1000
_DESTROYS: Final = coding.EDITORS | {"Bash"}


class LiveChat:
    """One chat, over as many connections as it takes: `run` it again where the crib was lost."""

    def __init__(self, screen: Screen, keys: Keys, session: JsonObject, after: int) -> None:
        """`after` is the number of the last event that is not to be shown."""
        self.session = session
        self.screen = screen
        self.view = ChatView(session, after)
        self.client: Client
        self._keys = keys
        self._editor = Editor()
        self._asks = Asks()
        self._row_for: Ask | None = None
        self._draft = ""
        self._last_key = self._last_ask = 0.0
        self._pressed_at = -TWICE
        self._is_interrupting = False
        self._changed = anyio.Event()
        self._following = anyio.CancelScope()
        self._enter: MemoryObjectSendStream[tuple[Ask | None, str]]
        self._tasks: TaskGroup
        self.is_deleted = False
        self._failure: ToolcribError | None = None

    @property
    def id(self) -> str:
        """The session's."""
        return str(self.session["id"])

    async def run(self, client: Client, first: str | None = None) -> None:
        """Chat until the person leaves or the session is gone; `first` is a line that counts as typed."""
        self.client = client
        self._failure = None
        await self._forget_answered()
        self._enter, lines = anyio.create_memory_object_stream[tuple[Ask | None, str]](_LINES)

        async def answer_lines() -> None:
            async for row_for, line in lines:
                await self._answer_line(row_for, line)

        with self._enter, lines, self._keys.taken():
            try:
                self._draw()
                async with anyio.create_task_group() as self._tasks:
                    for part in (self._follow, answer_lines, self._choose_row, self._read_keys):
                        self._tasks.start_soon(self._guarded, part)
                    if first is not None:
                        self._enter.send_nowait((None, first))
            finally:
                self.screen.leave()
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """End the chat."""
        self._tasks.cancel_scope.cancel()

    def tell(self, text: str, tone: Tone = "plain") -> None:
        """Say something to the person, in one line."""
        self.screen.show([Line(text.replace("\n", " "), tone)])

    def switch(self, session: JsonObject, after: int) -> None:
        """Go on with another session."""
        self.session = session
        self.view = ChatView(session, after)
        self._asks = Asks()
        self._following.cancel()
        self._note_change()

    async def _guarded(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part of the chat; its failure ends the others, and is told once they have ended."""
        try:
            await part()
        except ToolcribError as error:
            self._failure = self._failure or error
            self._tasks.cancel_scope.cancel()

    async def _follow(self) -> None:
        """Show what happens in the session, also in the one that it was changed for."""
        while True:
            with anyio.CancelScope() as self._following:
                async with aclosing(self.client.sessions.events(self.id, self.view.seq)) as events:
                    async for event in events:
                        await self._take(event.shape)
                await self._look_whether_deleted()

    async def _look_whether_deleted(self) -> None:
        try:
            await self.client.sessions.get(self.id)
        except NotFound:
            self.is_deleted = True
            return self.leave()
        await anyio.sleep(QUIET)  # the crib ended the stream and is still there: it is closing

    async def _take(self, event: JsonObject) -> None:
        if int(event["seq"]) <= self.view.seq:
            return
        was_busy = self.view.is_busy
        self.screen.show(self.view.show(event))
        if event["kind"] == "done":
            self._is_interrupting = False
        ask = self._asks.note(event)
        if ask is not None:
            self._last_ask = anyio.current_time()
            ask.needs_word = not ask.questions and await self._destroys(event)
        self._note_change()
        if was_busy != self.view.is_busy:
            self._draw()

    async def _destroys(self, event: JsonObject) -> bool:
        """Whether a call of the tool may destroy something; what is not known may."""
        ref = ToolRef(str(event["server"]), str(event["tool"]))
        if ref.server == coding.SERVER:
            return ref.tool in _DESTROYS
        try:
            return bool((await self.client.tool(ref))["marks"].get("destructive"))
        except NotFound:
            return True

    async def _forget_answered(self) -> None:
        if self._asks.first is not None:
            waiting = await self.client.permissions.approvals(status="pending", session=self.id)
            self._asks.keep({str(each["id"]) for each in waiting})
            self._note_change()

    def _note_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _choose_row(self) -> None:
        """Give the row to what is next, once the person's hands are still."""
        while True:
            changed = self._changed
            if self._row_for is self._asks.first:
                await changed.wait()
                continue
            rest = max(self._last_key, self._last_ask) + QUIET - anyio.current_time()
            if rest > 0:
                await anyio.sleep(rest)
            else:
                self._give_row(self._asks.first)

    def _give_row(self, ask: Ask | None) -> None:
        if self._row_for is None:
            self._draft = self._editor.text
        self._row_for = ask
        self._editor.put(self._draft if ask is None else "")
        if ask is not None and not ask.questions:
            self.tell(f"  {choices_line(ask, self.session.get('agentId'))}", "faint")
        self._draw()

    def _draw(self) -> None:
        if self._row_for is not None:
            label = output.one_line(self._row_for.label, 60) + " "
        else:
            label = "working > " if self.view.is_busy else "> "
        self.screen.ask(label, self._editor.text, self._editor.cursor)

    async def _read_keys(self) -> None:
        while keys := await self._keys.read():
            self._last_key = anyio.current_time()
            for action in self._editor.feed(keys):
                self._act(action)
            self._draw()
        self.leave()

    def _act(self, action: Action) -> None:
        match action:
            case Entered(text):
                if text.strip() or self._row_for is not None:
                    self._enter.send_nowait((self._row_for, text))
            case "interrupt":
                self._interrupt()
            case "leave":
                self.leave()
            case "suspend":
                with self.screen.aside():
                    self._keys.suspend()

    def _interrupt(self) -> None:
        """Ctrl-C: the turn first, then the line, and at the second time the chat."""
        now = anyio.current_time()
        again, self._pressed_at = now - self._pressed_at < TWICE, now
        if again or self._is_interrupting:
            self.leave()
        elif self._row_for is not None and self._row_for.is_editing:
            self._row_for.is_editing = False
            self._editor.put("")
        elif self.view.is_busy:
            self._is_interrupting = True
            self.tell("Interrupting. Ctrl-C again leaves; the session stays.", "faint")
            self._tasks.start_soon(self._guarded, self._interrupt_turn)
        elif self._editor.text:
            self._editor.put("")
        else:
            self.tell("Ctrl-C again leaves; the session stays.", "faint")

    async def _interrupt_turn(self) -> None:
        await self.client.sessions.interrupt(self.id)

    async def _answer_line(self, row_for: Ask | None, line: str) -> None:
        try:
            if row_for is None:
                await self._say(line)
            elif self._asks.get(row_for.id) is not row_for:
                self.tell("That was answered already.")
            elif row_for.questions:
                await self._answer_question(row_for, line)
            else:
                await self._judge(row_for, line)
        except ToolcribError as error:
            if is_lost(error):
                if row_for is None:
                    self._editor.put(line)
                raise
            self.screen.show(failure_lines(error.message, error.hint))

    async def _say(self, line: str) -> None:
        if line.startswith("/") and not line.startswith("//"):
            self.screen.show([Line(""), Line(f"> {line}", "strong")])
            await run_command(self, line)
        else:
            await self.client.sessions.send(self.id, line.removeprefix("/") if line.startswith("//") else line)

    async def _answer_question(self, ask: Ask, line: str) -> None:
        question = ask.next_question
        if question is None:
            return
        answer = read_choice(question, line)
        if answer is None:
            return self.tell("Type the number of a choice, or your own words.")
        ask.answers[str(question["question"])] = answer
        if ask.next_question is None:
            await self.client.sessions.answer(self.id, ask.id, ask.answers)
            self._answered(ask)
        self._draw()

    async def _judge(self, ask: Ask, line: str) -> None:
        if ask.is_editing:
            return await self._judge_edited(ask, line)
        verdict = read_verdict(line, needs_word=ask.needs_word)
        if verdict is None:
            self.tell(f"That is no answer. {choices_line(ask, self.session.get('agentId'))}")
        elif verdict.edit:
            ask.is_editing = True
            self._editor.put(output.editable(ask.event["arguments"]))
            self.tell("  Change the arguments and press Enter; an empty line goes back.", "faint")
            self._draw()
        else:
            await self._send_verdict(ask, verdict)

    async def _judge_edited(self, ask: Ask, line: str) -> None:
        if line.strip():
            try:
                arguments = parse_arguments(line)
                await self._send_verdict(ask, Verdict(), arguments)
            except ToolcribError:
                self._editor.put(line)
                raise
        ask.is_editing = False
        self._draw()

    async def _send_verdict(self, ask: Ask, verdict: Verdict, arguments: Json = None) -> None:
        body = {"decision": verdict.decision, "scope": verdict.scope, "reason": verdict.reason, "arguments": arguments}
        given = {key: value for key, value in body.items() if value is not None}
        answered = await self.client.permissions.answer(ask.id, given)
        if rule := answered.get("rule"):
            self.tell(f"  Rule {rule['id']} says so from now on: {rule['effect']} {rule['pattern']}.", "faint")
        self._answered(ask)

    def _answered(self, ask: Ask) -> None:
        """The row is the person's own again; it is the next question's when the hands are still."""
        if self._row_for is ask:
            self._give_row(None)
        self._note_change()
