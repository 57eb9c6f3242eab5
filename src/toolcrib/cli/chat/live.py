"""An interactive chat: events of the session scroll by while the user types messages, commands and answers.

The input row belongs to one thing at a time: to messages, or to the next pending request. It switches only after a
pause in typing, so that a line never answers something it was not typed for.

Must never answer for the user.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from toolcrib.cli import output
from toolcrib.cli.arguments import parse_arguments
from toolcrib.cli.chat.asks import Ask, Asks, Verdict, choice_lines, read_choice, read_verdict
from toolcrib.cli.chat.commands import run_command
from toolcrib.cli.chat.input import Action, Editor, Entered, Keys
from toolcrib.cli.chat.screen import Screen
from toolcrib.cli.chat.view import ChatView, Tone, ViewLine, failure_lines
from toolcrib.cli.crib import is_lost
from toolcrib.cli.rules import describe_rule
from toolcrib.gate.approvals.display import show
from toolcrib.gate.policy import coding_tools
from toolcrib.model.errors import NotFound, ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient

QUIET: Final = 0.5
"""Seconds without a key, and after a request arrived, before the input row switches to the request."""
TWICE: Final = 2.0
"""Seconds within which a second Ctrl-C exits."""
_LINES: Final = 1000
_DESTROYS: Final = coding_tools.EDITORS | {"Bash"}


class LiveChat:
    """One chat. Call `run` again after the crib was lost."""

    def __init__(self, screen: Screen, keys: Keys, session: JsonObject, after: int) -> None:
        """`after` is the sequence number of the last event to skip."""
        self.session = session
        self.screen = screen
        self.view = ChatView(session, after)
        self.client: ApiClient
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
        self._command: anyio.CancelScope | None = None
        self._enter: MemoryObjectSendStream[tuple[Ask | None, str]]
        self._tasks: TaskGroup
        self.is_deleted = self.is_interrupted = False
        self._failure: ToolcribError | None = None

    @property
    def id(self) -> str:
        """The id of the session."""
        return str(self.session["id"])

    async def run(self, client: ApiClient, first: str | None = None) -> None:
        """Chat until the user leaves or the session is deleted; `first` is treated as a typed line."""
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
                        self._tasks.start_soon(self._run_guarded, part)
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
        """Print one line."""
        self.screen.show([ViewLine(text.replace("\n", " "), tone)])

    def switch(self, session: JsonObject, after: int) -> None:
        """Continue with another session."""
        self.session = session
        self.view = ChatView(session, after)
        self._asks = Asks()
        self._following.cancel()
        self._note_change()

    async def _run_guarded(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run one part of the chat; its failure cancels the others and is raised after they ended."""
        try:
            await part()
        except ToolcribError as error:
            self._failure = self._failure or error
            self._tasks.cancel_scope.cancel()

    async def _follow(self) -> None:
        """Display the events of the session, also after switching to another one."""
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
        await anyio.sleep(QUIET)  # the stream ended but the crib responds: it is shutting down

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
            try:
                ask.needs_word = not ask.questions and await self._destroys(event)
                if not ask.questions:
                    await self._look_up(ask)
            finally:
                ask.is_ready = True
        self._note_change()
        if was_busy != self.view.is_busy:
            self._draw()

    async def _destroys(self, event: JsonObject) -> bool:
        """Return whether a call may be destructive; True if unknown."""
        ref = ToolRef(str(event["server"]), str(event["tool"]))
        if ref.server == coding_tools.SERVER:
            return ref.tool in _DESTROYS
        try:
            return bool((await self.client.tool(ref))["marks"].get("destructive"))
        except NotFound:
            return True

    async def _look_up(self, ask: Ask) -> None:
        """Fetch the rules that answers would write, and the warnings that only the crib can compute (real paths)."""
        try:
            approval = await self.client.permissions.approval(ask.id)
        except NotFound:
            return
        ask.remember_as = approval.get("rememberAs", {})
        messages = {remark.message for remark in show(ask.event.get("arguments") or {}).remarks}
        for remark in approval["shown"]["remarks"]:
            if remark["message"] not in messages:
                self.tell(
                    f"  CAREFUL: {output.one_line(remark['pointer'], 1000)}: {output.one_line(remark['message'], 5000)}"
                )

    async def _forget_answered(self) -> None:
        if self._asks.first is not None:
            waiting = await self.client.permissions.approvals(status="pending", session=self.id)
            self._asks.keep({str(each["id"]) for each in waiting})
            self._note_change()

    def _note_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _choose_row(self) -> None:
        """Switch the input row to the next request once the user pauses typing."""
        while True:
            changed = self._changed
            first = self._asks.first
            if self._row_for is first or (first is not None and not first.is_ready):
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
            for line in choice_lines(ask):
                self.tell(f"  {line}", "faint")
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
        """Handle Ctrl-C: cancel the command, else interrupt the turn, else clear the line; the second time exit."""
        now = anyio.current_time()
        again, self._pressed_at = now - self._pressed_at < TWICE, now
        if again or self._is_interrupting:
            self.is_interrupted = True
            self.leave()
        elif self._row_for is not None and self._row_for.is_editing:
            self._row_for.is_editing = False
            self._editor.put("")
        elif self._command is not None:
            self._command.cancel()
        elif self.view.is_busy:
            self._is_interrupting = True
            self.tell("Interrupting. Press Ctrl-C again to quit; the session is kept.", "faint")
            self._tasks.start_soon(self._run_guarded, self._interrupt_turn)
        elif self._editor.text:
            self._editor.put("")
        else:
            self.tell("Press Ctrl-C again to quit; the session is kept.", "faint")

    async def _interrupt_turn(self) -> None:
        await self.client.sessions.interrupt(self.id)

    async def _answer_line(self, row_for: Ask | None, line: str) -> None:
        try:
            if row_for is None:
                await self._submit(line)
            elif self._asks.get(row_for.id) is not row_for:
                self.tell("Already answered.")
            elif row_for.questions:
                await self._answer_question(row_for, line)
            else:
                await self._answer_approval(row_for, line)
        except ToolcribError as error:
            if is_lost(error):
                if row_for is None:
                    self._editor.put(line)
                raise
            self.screen.show(failure_lines(error.message, error.hint))

    async def _submit(self, line: str) -> None:
        if line.startswith("/") and not line.startswith("//"):
            self.screen.show([ViewLine(""), ViewLine(f"> {line}", "strong")])
            await self._run_cancellable(line)
        else:
            await self.client.sessions.send(self.id, line.removeprefix("/") if line.startswith("//") else line)

    async def _run_cancellable(self, line: str) -> None:
        self._command = scope = anyio.CancelScope()
        try:
            with scope:
                await run_command(self, line)
        finally:
            self._command = None
        if scope.cancelled_caught:
            self.tell("Cancelled.", "faint")

    async def _answer_question(self, ask: Ask, line: str) -> None:
        question = ask.next_question
        if question is None:
            return
        answer = read_choice(question, line)
        if answer is None:
            return self.tell("Type the number of a choice, or your own answer.")
        ask.answers[str(question["question"])] = answer
        if ask.next_question is None:
            await self.client.sessions.answer(self.id, ask.id, ask.answers)
            self._release_input(ask)
        self._draw()

    async def _answer_approval(self, ask: Ask, line: str) -> None:
        if ask.is_editing:
            return await self._answer_edited(ask, line)
        verdict = read_verdict(line, needs_word=ask.needs_word)
        if verdict is None:
            self.tell(f"Invalid answer. {choice_lines(ask)[0]}")
        elif verdict.edit:
            ask.is_editing = True
            self._editor.put(output.editable(ask.event["arguments"]))
            self.tell("  Edit the arguments and press Enter; an empty line cancels.", "faint")
            self._draw()
        else:
            await self._send_verdict(ask, verdict)

    async def _answer_edited(self, ask: Ask, line: str) -> None:
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
        body["prefix"] = verdict.prefix
        given = {key: value for key, value in body.items() if value is not None}
        answered = await self.client.permissions.answer(ask.id, given)
        if rule := answered.get("rule"):
            self.tell(f"  Added rule {rule['id']}: {output.one_line(describe_rule(rule), 5000)}.", "faint")
        self._release_input(ask)

    def _release_input(self, ask: Ask) -> None:
        """Return the input row to the user; the next request gets it after a pause."""
        if self._row_for is ask:
            self._give_row(None)
        self._note_change()
