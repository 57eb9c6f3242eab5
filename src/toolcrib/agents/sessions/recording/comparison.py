"""Compares two runs of a session side by side: prompts, calls with arguments and results, texts, and cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal

from toolcrib.model.json import Json, JsonObject

StepKind = Literal["prompt", "call", "text", "error"]


@dataclass(frozen=True, slots=True)
class RunStep:
    """One step of a run: a prompt, a call, a text of the model, or an error."""

    kind: StepKind
    name: str
    arguments: Json = None
    result: Json = None
    is_error: bool = False

    @property
    def label(self) -> tuple[str, str]:
        """What steps are aligned by: their kind and tool; texts align by position."""
        return self.kind, self.name if self.kind == "call" else ""

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {"kind": self.kind, "name": self.name}
        if self.kind == "call":
            shape |= {"arguments": self.arguments, "result": self.result, "isError": self.is_error}
        return shape


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A run: its steps in order and what it cost."""

    session: str
    steps: tuple[RunStep, ...]
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    ended: str | None = None

    @property
    def calls(self) -> list[tuple[str, Json]]:
        """The calls: the model's name of the tool, and the arguments."""
        return [(step.name, step.arguments) for step in self.steps if step.kind == "call"]

    @property
    def texts(self) -> list[str]:
        """What the model said."""
        return [step.name for step in self.steps if step.kind == "text"]

    def to_json(self) -> JsonObject:
        """Return the public shape, without the steps."""
        return {
            "sessionId": self.session,
            "costUsd": self.cost_usd,
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "calls": len(self.calls),
            "ended": self.ended,
        }


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs, and their steps in pairs; a step that only one run has is paired with None."""

    left: SessionRun
    right: SessionRun
    pairs: tuple[tuple[RunStep | None, RunStep | None], ...] = field(repr=False)

    @property
    def differences(self) -> int:
        """The number of pairs that are not equal."""
        return sum(left != right for left, right in self.pairs)

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        steps = [
            {
                "left": left.to_json() if left is not None else None,
                "right": right.to_json() if right is not None else None,
                "same": left == right,
            }
            for left, right in self.pairs
        ]
        return {
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "steps": steps,
            "differences": self.differences,
        }


def run_of_events(session: str, events: Iterable[JsonObject]) -> SessionRun:
    """Return the run of a session's events, in their public shape."""
    calls: dict[str, int] = {}
    names: dict[str, str] = {}
    steps: list[RunStep] = []
    usage: JsonObject = {}
    ended: str | None = None
    for event in events:
        match event["kind"]:
            case "user_message":
                steps.append(RunStep("prompt", event["content"]))
            case "text_message":
                steps.append(RunStep("text", event["text"]))
            case "error":
                steps.append(RunStep("error", event["message"]))
            case "tool_call_start":
                names[event["toolCallId"]] = event["toolName"]
            case "tool_call_end":
                calls[event["toolCallId"]] = len(steps)
                steps.append(RunStep("call", names.get(event["toolCallId"], ""), event["arguments"]))
            case "tool_result" if event["toolCallId"] in calls:
                at = calls[event["toolCallId"]]
                called = steps[at]
                steps[at] = RunStep("call", called.name, called.arguments, event["content"], event["isError"])
            case "session_status":
                usage = event
            case "done":
                ended = event["reason"]
            case _:
                pass
    return SessionRun(
        session,
        tuple(steps),
        usage.get("costUsd", 0.0),
        usage.get("inputTokens", 0),
        usage.get("outputTokens", 0),
        ended,
    )


def compare_runs(left: SessionRun, right: SessionRun) -> RunComparison:
    """Return two runs with their steps in pairs."""
    pairs: list[tuple[RunStep | None, RunStep | None]] = []
    matcher = SequenceMatcher(None, [s.label for s in left.steps], [s.label for s in right.steps], autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        pairs += _pair(left.steps[a:b], right.steps[c:d])
    return RunComparison(left, right, tuple(pairs))


def _pair(left: Sequence[RunStep], right: Sequence[RunStep]) -> Iterable[tuple[RunStep | None, RunStep | None]]:
    if [step.label for step in left] == [step.label for step in right]:
        return list(zip(left, right, strict=True))
    return [*((step, None) for step in left), *((None, step) for step in right)]
