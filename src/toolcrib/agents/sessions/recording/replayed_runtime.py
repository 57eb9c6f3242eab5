"""Replays a recording with the real runtime: the model and the tools answer from the recording.

An answer that the recording does not have fails the turn and names the nearest one with the difference. Parts can be
live: then requests are passed on, and calls go through the gate.

Must never call a tool, ask a person, or reach a model, except for the parts that were chosen to be live.
"""

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Final

from toolcrib.agents.sessions.recording.model_endpoint import ModelRefusal, model_endpoint
from toolcrib.agents.sessions.recording.model_requests import difference, nearest, request_key
from toolcrib.agents.sessions.recording.recorded_runtime import MODEL_KEY, MODEL_URL, ModelAccess, WrappedConversation
from toolcrib.agents.sessions.recording.recording import (
    Mask,
    RecordedAnswer,
    RecordedToolCall,
    Recording,
    call_key,
    masked_members,
    places_of,
    result_of_json,
)
from toolcrib.agents.sessions.runtime import Brief, Conversation, Offered, Permit, Result, Runtime, SessionHost
from toolcrib.model.json import JsonObject, canonical, storable
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Failure, SessionEventKind, Spent, TurnEnd
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, ToolRef

WITHOUT_EFFECT: Final = frozenset({"Task", "Agent", "TodoWrite", "ToolSearch", "ExitPlanMode", "EnterPlanMode"})
"""Tools of the runtime that only steer the conversation: they run in a replay."""
_NOT_RUN: Final = "This is a replay: the call did not run."
_KEY: Final = "replay"
"""Stands in for the key of the model's API, which is not contacted."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Which parts are live."""

    live_tools: bool = False
    live_model: bool = False


ALL_RECORDED: Final = ReplayOptions()


class Misses:
    """What a replay asked for that the recording does not have. `is_over`: the part to replay has ended."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.is_over = False

    def add(self, message: str) -> str:
        """Keep the first miss, which is the cause of the others."""
        self.first = self.first or message
        return message


class ReplayedRuntime:
    """A runtime that plays a recording. `is_cut`: the recording ends before its session did."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        recording: Recording,
        options: ReplayOptions,
        access: ModelAccess,
        mask: Mask,
        *,
        is_cut: bool = False,
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._recording = recording
        self._options = options
        self._access = access
        self._mask = mask
        self._is_cut = is_cut

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[Conversation]:
        """Start the runtime with the recorded brief in this session's directory."""
        recorded, options = self._recording.brief, self._options
        played = replace(recorded, session=brief.session, cwd=brief.cwd, resume=brief.resume, fork=brief.fork)
        misses = Misses()
        is_live = options.live_model
        places = places_of(brief.cwd, self._access.user_home)
        traffic = ReplayedTraffic(self._recording, places, misses, self._mask, is_cut=self._is_cut)
        traffic.is_live = is_live
        replayed = ReplayedHost(host, self._recording, misses, self._mask, is_live=options.live_tools)
        async with model_endpoint(traffic, self._access.url if is_live else None, self._access.web) as url:
            key = {} if is_live else {MODEL_KEY: _KEY}
            reached = replace(played, variables={**brief.variables, MODEL_URL: url, **key})
            async with self._runtime.open(reached, replayed) as conversation:
                yield ReplayedConversation(conversation, misses, is_live=is_live)


class ReplayedTraffic:
    """Answers requests to the model from a recording; each answer once, the last of equal requests again."""

    def __init__(
        self, recording: Recording, places: Mapping[str, str], misses: Misses, mask: Mask, *, is_cut: bool
    ) -> None:
        self.is_live = False
        self._recording = recording
        self._places = places
        self._misses = misses
        self._mask = mask
        self._is_cut = is_cut
        self._answers: defaultdict[str, deque[RecordedAnswer]] = defaultdict(deque)
        for each in recording.answers:
            self._answers[each.key.digest].append(each)

    def answer(self, request: JsonObject) -> JsonObject | None:
        """Return the recorded answer. Raises `ModelRefusal` if there is none."""
        if self.is_live:
            return None
        wanted = request_key(masked_members(request, self._mask), self._places)
        found = self._answers.get(wanted.digest)
        if found:
            return (found.popleft() if len(found) > 1 else found[0]).message
        if self._is_cut and self._is_next(wanted.messages):
            self._misses.is_over = True
            raise ModelRefusal("The replay ends here.")
        close = nearest(wanted, [each.key for each in self._recording.answers])
        differs = difference(wanted, close, self._recording.contents)
        known = f"The nearest is {close.digest[:12]}" if close is not None else "It has none"
        message = f"The recording has no answer to the model request {wanted.digest[:12]}. {known}:\n{differs}"
        raise ModelRefusal(self._misses.add(message))

    def answered(self, request: JsonObject, message: JsonObject, duration_ms: float) -> None:
        """Ignore a live answer: a replay does not record."""

    def _is_next(self, messages: Sequence[str]) -> bool:
        """Return whether a request continues what was replayed: all recorded messages are in it."""
        longest = max((each.key.messages for each in self._recording.answers), key=len, default=())
        return tuple(messages[: len(longest)]) == longest


class ReplayedHost:
    """Answers calls from a recording, in the recorded order for equal calls."""

    def __init__(self, host: SessionHost, recording: Recording, misses: Misses, mask: Mask, *, is_live: bool) -> None:
        self._is_live = is_live
        self._host = host
        self._recording = recording
        self._misses = misses
        self._mask = mask
        self._calls = _queues(recording.calls)
        self._own = _queues(recording.own_calls)
        self._questions = deque(recording.questions)
        self._steering = {each.id: each for each in recording.own_calls if each.tool in WITHOUT_EFFECT}

    def principal(self) -> Principal:
        """Return the session's current principal."""
        return self._host.principal()

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Report an event. Results of tools that run in a replay have ids and durations, and are as recorded."""
        recorded = self._steering.get(str(data.get("toolCallId"))) if kind == "tool_result" else None
        if recorded is not None and not self._is_live:
            data = {**data, **recorded.result, "durationMs": recorded.duration_ms}
        self._host.emit(kind, data, parent)

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Return the recorded result of a call."""
        if self._is_live:
            return await self._host.call(offered, arguments, tool_call, progress)
        recorded = self._take(self._calls, str(offered.tool.ref), arguments)
        if recorded is None:
            return Result(
                CallResult.error(self._missing_call_message(str(offered.tool.ref), arguments, self._recording.calls)),
                0.0,
            )
        return Result(result_of_json(recorded.result), recorded.duration_ms)

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Refuse to run a tool of the runtime itself, and return what it returned when it was recorded."""
        if self._is_live:
            return await self._host.permit(tool, arguments, tool_call)
        recorded = self._take(self._own, tool, arguments)
        if recorded is None:
            return Permit(False, arguments, self._missing_call_message(tool, arguments, self._recording.own_calls))
        if recorded.refusal is not None:
            return Permit(False, arguments, recorded.refusal)
        if tool in WITHOUT_EFFECT:
            return Permit(True, arguments)
        return Permit(False, arguments, _NOT_RUN, Result(result_of_json(recorded.result), recorded.duration_ms))

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """Report the end of an own tool, if calls are live."""
        if self._is_live:
            await self._host.ended(tool_call, is_error=is_error)

    async def refused(self, tool: ToolRef | str, arguments: JsonObject) -> None:
        """Record a refused call, if calls are live."""
        if self._is_live:
            await self._host.refused(tool, arguments)

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Return the recorded answers of the person."""
        if self._is_live:
            return await self._host.ask(questions, tool_call)
        wanted = canonical(storable(list(questions)))
        for index, (asked, answers) in enumerate(self._questions):
            if asked == wanted:
                del self._questions[index]
                return answers
        self._misses.add("The recording has no answer to the agent's question.")
        return None

    def _take(
        self, queues: Mapping[bytes, deque[RecordedToolCall]], tool: str, arguments: JsonObject
    ) -> RecordedToolCall | None:
        found = queues.get(call_key(tool, masked_members(arguments, self._mask)))
        if not found:
            return None
        return found.popleft() if len(found) > 1 else found[0]

    def _missing_call_message(self, tool: str, arguments: JsonObject, calls: Iterable[RecordedToolCall]) -> str:
        same = [each for each in calls if each.tool == tool]
        wanted = _lines(masked_members(arguments, self._mask))
        close = max(same, key=lambda each: len(set(_lines(each.arguments)) & set(wanted)), default=None)
        message = f"The recording has no call of {tool} with these arguments."
        if close is None:
            return self._misses.add(f"{message} It has no call of this tool.")
        lines = unified_diff(_lines(close.arguments), wanted, f"recorded call {close.id}", "this call", lineterm="")
        return self._misses.add("\n".join((f"{message} The nearest is {close.id}:", *lines)))


def _queues(calls: Iterable[RecordedToolCall]) -> dict[bytes, deque[RecordedToolCall]]:
    queues: defaultdict[bytes, deque[RecordedToolCall]] = defaultdict(deque)
    for each in calls:
        queues[each.key].append(each)
    return dict(queues)


def _lines(arguments: JsonObject) -> list[str]:
    return [f"{name}: {canonical(storable(value)).decode()}" for name, value in sorted(arguments.items())]


class ReplayedConversation(WrappedConversation):
    """Answers recorded prompts. A miss fails the turn, whatever the runtime made of it."""

    def __init__(self, inner: Conversation, misses: Misses, *, is_live: bool) -> None:
        super().__init__(inner)
        self._misses = misses
        self._is_live = is_live

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt. Recorded answers cost nothing."""
        end = await self._inner.turn(text)
        end = end if self._is_live else replace(end, spent=Spent(turns=end.spent.turns))
        if self._misses.first is not None:
            return replace(end, reason="failed", failure=Failure("replay.miss", self._misses.first))
        if self._misses.is_over:
            return replace(end, reason="interrupted", failure=None)
        return end
