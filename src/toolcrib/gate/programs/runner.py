"""Runs programs that call tools: reads run at once, changes run after one approval of their whole set.

A program runs in passes. The first pass plans: calls that only read are made, all others are collected and return
`None`. If a collected call needs approval, a person sees the whole set with its exact arguments and answers once. The
next pass runs the program again from its start: results of calls that were made are repeated, and the approved calls
are made. A call that depends on the result of a change is only known then, and is collected for another approval.

Invariant: a call is made once, and never before the calls of its set are approved. A result is repeated only if no
collected call came before it, because it may depend on that call.
"""

import math
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import anyio
import orjson

from toolcrib.gate.admission import InSession
from toolcrib.gate.gate import Gate
from toolcrib.gate.principals import Door
from toolcrib.gate.programs.functions import functions_of, stubs_for
from toolcrib.gate.programs.interpreter import ProgramError, ProgramInterpreter, RunningProgram, WantedCall
from toolcrib.gate.programs.planned_call import CallKey, PlannedCall, ProgramCall, plan, refuse_edit, set_of
from toolcrib.gate.refusals import error_sentence
from toolcrib.model.errors import Denied, InvalidRequest, ToolcribError
from toolcrib.model.json import DIGITS_LIMIT, Json, JsonObject, dumps, is_array, is_object, loads
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, Client, ReportProgress
from toolcrib.model.tools import CallResult

MOST_PASSES: Final = 8
LONGEST_CODE: Final = 100_000
"""Characters of a program."""
_AT_ONCE: Final = 8
"""Calls of one program that run at the same time."""
_DEEPEST: Final = 100
"""Nesting of a returned value. What is deeper is left out, because clients could not read it."""


class MadeCall(NamedTuple):
    """A call that was made, and the value or the exception that the program received."""

    planned: PlannedCall
    value: Any


@dataclass(slots=True)
class _Pass:
    """One pass: the collected calls, and how often each call occurred."""

    collected: list[PlannedCall] = field(default_factory=list[PlannedCall])
    seen: Counter[CallKey] = field(default_factory=Counter[CallKey])
    is_speculative: bool = False
    output: str = ""
    value: Any = None
    failure: str | None = None


class ProgramRun:
    """The run of one program for one principal."""

    def __init__(
        self,
        gate: Gate,
        interpreter: ProgramInterpreter,
        principal: Principal,
        code: str,
        *,
        door: Door,
        client: Client | None = None,
        progress: ReportProgress | None = None,
        session: InSession | None = None,
    ) -> None:
        """`session` is the call of an agent's session that runs the program."""
        self._session = session
        self.id = f"program-{secrets.token_hex(8)}"
        self._gate = gate
        self._interpreter = interpreter
        self._principal = principal
        self._code = code
        self._door: Door = door
        self._context = CallContext(principal, self.id, progress, client)
        self._functions = functions_of(gate.listing(principal).tools, lambda ref: gate.name("endpoint", ref))
        self._stubs = stubs_for(code, self._functions)
        self._made: dict[tuple[CallKey, int], MadeCall] = {}
        self._approved: Counter[CallKey] = Counter()
        self._approval: str | None = None
        self._may_change = False
        self._slots = anyio.CapacityLimiter(_AT_ONCE)

    async def run(self, *, dry_run: bool = False) -> CallResult:
        """Run the program and return its output, its value and its calls. With `dry_run`, only plan it."""
        for _ in range(MOST_PASSES):
            done = await self._pass()
            if not done.collected:
                return self._final_result(done)
            if dry_run:
                return self._dry_run_result(done)
            try:
                await self._approve(done.collected)
            except Denied as error:
                return self._refusal_result(done, error)
            self._may_change = True
        return CallResult.error(f"The program was stopped after {MOST_PASSES} approvals. {self._changes()}")

    async def _approve(self, collected: Sequence[PlannedCall]) -> None:
        """Have the set approved, unless none of its calls needs it or all of them are approved already."""
        wanted = Counter(call.key for call in collected if call.needs_approval)
        if wanted - self._approved:
            session, approval_timeout = self._session, None
            question = set_of(collected, self._code, self._context, self._door)
            if session is not None:
                question, approval_timeout = replace(question, call=session.tool_call), session.approval_timeout
            answer = await self._gate.consent.obtain(question, self._context, refuse_edit, approval_timeout)
            if not answer.approved or answer.arguments != question.arguments:
                raise Denied("approval.denied", answer.refusal)
            self._approval, self._approved = answer.approval, wanted

    async def _pass(self) -> _Pass:
        current = _Pass()
        left = Counter(self._approved)
        async with self._interpreter.running(self._code, self._stubs, self._functions) as program:
            try:
                wanted = await program.start()
                while wanted:
                    wanted = await program.resume(await self._answers(wanted, current, left))
                current.value = program.value
            except ProgramError as error:
                current.failure = str(error)
            current.output = _printed_output(program)
        self._approved = left if self._may_change else self._approved
        return current

    async def _answers(self, wanted: Sequence[WantedCall], current: _Pass, left: Counter[CallKey]) -> Mapping[int, Any]:
        """Return the results of calls that a program waits for at the same time."""
        answers: dict[int, Any] = {}
        is_speculative = current.is_speculative
        async with anyio.create_task_group() as together:
            for call in wanted:
                planned = self._plan(call)
                if isinstance(planned, Exception):
                    answers[call.id] = planned
                    continue
                number = current.seen[planned.key]
                current.seen[planned.key] += 1
                made = self._made.get((planned.key, number)) if not is_speculative else None
                if made is not None:
                    answers[call.id] = made.value
                elif self._is_due(planned, left, is_speculative=is_speculative):
                    keep = None if is_speculative else (planned.key, number)
                    together.start_soon(self._make, planned, keep, answers, call.id)
                else:
                    current.collected.append(planned)
                    current.is_speculative = True
                    answers[call.id] = None
        return answers

    def _is_due(self, planned: PlannedCall, left: Counter[CallKey], *, is_speculative: bool) -> bool:
        """Return whether a call is made now. An approval is used up by it."""
        if planned.reads:
            return True
        if is_speculative or not self._may_change:
            return False
        if not planned.needs_approval:
            return True
        if left[planned.key] > 0:
            left[planned.key] -= 1
            return True
        return False

    def _plan(self, call: WantedCall) -> PlannedCall | Exception:
        """Return a call as decided, or the exception that the program receives."""
        tool = self._functions.get(call.function)
        if tool is None:
            return NameError(f"There is no function {call.function!r}; find_tools finds tools.")
        if call.positional:
            return TypeError(f"{call.function}() takes keyword arguments only.")
        try:
            return plan(self._gate.views.of(self._principal), self._principal, tool.ref, dict(call.arguments))
        except InvalidRequest as error:
            return TypeError(error_sentence(error))
        except ToolcribError as error:
            return PermissionError(error_sentence(error))

    async def _make(
        self, planned: PlannedCall, keep: tuple[CallKey, int] | None, answers: dict[int, Any], number: int
    ) -> None:
        """Make one call through the gate, and keep what the program receives."""
        approval = self._approval if planned.needs_approval else None
        try:
            async with self._slots:
                called = await self._gate.call(
                    self._principal,
                    planned.tool.ref,
                    planned.arguments,
                    door=self._door,
                    client=self._context.client,
                    session=self._session,
                    program=ProgramCall(self.id, planned, approval),
                )
            value = value_of(called.result)
        except ToolcribError as error:
            value = PermissionError(error_sentence(error))
        answers[number] = value
        if keep is not None:
            self._made[keep] = MadeCall(planned, value)

    def _final_result(self, done: _Pass) -> CallResult:
        shape = self._shape(done)
        if done.failure is not None:
            return _result(f"{done.output}{done.failure}\n{self._changes()}".strip(), shape, is_error=True)
        shown = "" if done.value is None else _display_value(done.value)
        return _result(f"{done.output}{shown}".strip() or "The program ended without output.", shape)

    def _dry_run_result(self, done: _Pass) -> CallResult:
        lines = [f"{call.tool.ref} {call.encoded.decode()}" for call in done.collected]
        needed = sum(call.needs_approval for call in done.collected)
        heading = f"Dry run. Calls that would be made: {len(lines)}, of which {needed} need approval."
        return _result(
            "\n".join([heading, *lines]), self._shape(done) | {"planned": [call.to_json() for call in done.collected]}
        )

    def _refusal_result(self, done: _Pass, error: Denied) -> CallResult:
        planned = [call.to_json() for call in done.collected]
        text = f"The program was refused: {error_sentence(error)} {self._changes()}"
        return _result(text, self._shape(done) | {"planned": planned}, is_error=True)

    def _changes(self) -> str:
        changed = [str(made.planned.tool.ref) for made in self._made.values() if not made.planned.reads]
        return f"Calls that were made: {', '.join(changed)}." if changed else "Nothing was changed."

    def _shape(self, done: _Pass) -> JsonObject:
        made = [
            {"tool": str(each.planned.tool.ref), "arguments": each.planned.arguments} for each in self._made.values()
        ]
        shape: JsonObject = {"programId": self.id, "output": done.output, "result": _plain(done.value), "calls": made}
        return shape | ({"error": done.failure} if done.failure is not None else {})


def value_of(result: CallResult) -> Any:
    """Return what a program receives: structured content, or parsed JSON, or text. An error result is an exception."""
    texts = [str(part["text"]) for part in result.content if part.get("type") == "text"]
    text = "\n".join(texts)
    if result.is_error:
        return RuntimeError(text or "The tool failed.")
    if result.has_structured:
        return result.structured_content
    if len(texts) == len(result.content):
        return _parse_json(text)
    return list(result.content)


def _parse_json(text: str) -> Json:
    if text[:1] not in ("{", "["):
        return text
    try:
        return loads(text)
    except orjson.JSONDecodeError:
        return text


def _printed_output(program: RunningProgram) -> str:
    output = program.output
    return f"{output}\n" if output and not output.endswith("\n") else output


def _plain(value: Any, depth: int = 0) -> Json:
    """Return a value of a program as JSON; what has no JSON form as its representation."""
    if depth > _DEEPEST:
        return "…"
    if is_object(value):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if is_array(value):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, int) and abs(value) >= 10**DIGITS_LIMIT:
        return f"an integer of {value.bit_length():,} bits"
    if value is None or isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return repr(value)


def _display_value(value: Any) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else dumps(plain, option=orjson.OPT_INDENT_2).decode()


def _result(text: str, shape: JsonObject, *, is_error: bool = False) -> CallResult:
    return CallResult(({"type": "text", "text": text},), is_error, shape, has_structured=True)
