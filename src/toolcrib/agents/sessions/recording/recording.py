"""A recording: what a session was asked, what its model and its tools answered, and when.

A file of JSON lines, readable by its owner only. Secrets are masked before they are written. A line is one of `open`
(the brief of a process), `prompt`, `message` and `model` (a request by hash, and its answer), `call`, `permit`,
`own_result`, `ask`, `approval` and `event`.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson

from toolcrib.agents.sessions.recording.model_requests import ModelRequestKey
from toolcrib.agents.sessions.runtime import Brief, Offered
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, canonical, dumps, is_array, is_object, storable
from toolcrib.model.sessions import SessionLimits
from toolcrib.model.tools import CallResult, Marks, Tool, ToolRef
from toolcrib.model.version import __version__

FORMAT: Final = 1
Mask = Callable[[str], str]
_IDENTIFYING: Final = frozenset(
    {"id", "tool_use_id", "toolCallId", "approvalId", "session", "hash", "key", "request", "signature", "ref", "data"}
)
"""Members that are never masked: identifiers look like secrets, and encoded images are not text."""
_MARKS: Final = ("read_only", "destructive", "privileged", "scheduler_blocked", "open_world", "always_load")


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A model's answer to a request."""

    key: ModelRequestKey
    message: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class RecordedToolCall:
    """A tool call and its result. `tool` is `server/tool`, or the name of a tool of the runtime itself.

    `refusal` is the reason if a tool of the runtime itself was not permitted.
    """

    id: str
    tool: str
    arguments: JsonObject = field(repr=False)
    result: JsonObject = field(repr=False)
    duration_ms: float = 0.0
    refusal: str | None = None

    @property
    def key(self) -> bytes:
        """What identifies the call."""
        return call_key(self.tool, self.arguments)


@dataclass(frozen=True)
class Recording:
    """A whole recording. `events` are those of the session, if the recording was exported with them."""

    session: str
    runner: str
    briefs: tuple[Brief, ...]
    home: str
    prompts: tuple[str, ...] = ()
    answers: tuple[RecordedAnswer, ...] = ()
    calls: tuple[RecordedToolCall, ...] = ()
    own_calls: tuple[RecordedToolCall, ...] = ()
    questions: tuple[tuple[bytes, Mapping[str, str] | None], ...] = ()
    approvals: tuple[JsonObject, ...] = ()
    contents: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject], repr=False)
    events: tuple[JsonObject, ...] = field(default=(), repr=False)

    @property
    def brief(self) -> Brief:
        """What the session started with."""
        return self.briefs[0]

    def until(self, seq: int) -> "Recording":
        """Return the part up to an event: its prompts, and the answers that had begun. Raises `replay.until`."""
        if not self.events:
            raise InvalidRequest("replay.until", "The recording has no events, so it cannot be cut at one.")
        kept = [event for event in self.events if int(event["seq"]) <= seq]
        prompts = sum(event["kind"] == "user_message" for event in kept)
        known = {str(event[name]) for event in kept for name in ("toolCallId", "messageId") if name in event}
        begun = {name.partition(".")[0] for name in known} | known
        answers = tuple(each for each in self.answers if _ids(each.message) & begun)
        return replace(self, prompts=self.prompts[:prompts], answers=answers, events=tuple(kept))


def call_key(tool: str, arguments: JsonObject) -> bytes:
    """Return what identifies a call: the tool and its arguments."""
    return canonical([tool, storable(arguments)])


def _ids(message: JsonObject) -> set[str]:
    blocks = message.get("content", ())
    return {str(message.get("id"))} | {str(block["id"]) for block in blocks if is_object(block) and "id" in block}


class RecordingWriter:
    """Appends to the recording of one session. Every line is on disk before the next one is accepted."""

    def __init__(self, file: Path, mask: Mask) -> None:
        self._file = file
        self.mask = mask
        self._known_messages: set[str] = set()

    def open(self, brief: Brief, runner: str, home: str) -> None:
        """Record the start of a process."""
        self._write("open", brief=brief_to_json(brief), runner=runner, home=home, format=FORMAT, toolcrib=__version__)

    def prompt(self, text: str) -> None:
        """Record a prompt."""
        self._write("prompt", text=text)

    def answer(self, key: ModelRequestKey, message: JsonObject, duration_ms: float) -> None:
        """Record a request by its hash, each of its messages once, and the answer."""
        for hash, content in key.contents.items():
            if hash not in self._known_messages:
                self._known_messages.add(hash)
                self._write("message", hash=hash, message=content)
        request = {"model": key.model, "messages": list(key.messages), "tools": key.tools}
        self._write("model", key=key.digest, request=request, answer=message, durationMs=duration_ms)

    def call(self, kind: str, call: RecordedToolCall) -> None:
        """Record a call of a tool of the crib (`call`) or of the runtime itself (`own_call`)."""
        more: JsonObject = {} if call.refusal is None else {"refusal": call.refusal}
        self._write(
            kind,
            toolCallId=call.id,
            tool=call.tool,
            arguments=call.arguments,
            result=call.result,
            durationMs=call.duration_ms,
            **more,
        )

    def ask(self, questions: list[JsonObject], answers: Mapping[str, str] | None) -> None:
        """Record the agent's questions and the person's answers."""
        self._write("ask", questions=questions, answers=None if answers is None else dict(answers))

    def approval(self, kind: str, data: JsonObject) -> None:
        """Record a request for approval, or its outcome."""
        self._write("approval", event=kind, approval=data)

    def _write(self, kind: str, **fields: Json) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = dumps({"kind": kind, "at": at, **masked_members(fields, self.mask)}) + b"\n"
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)


def masked_members(value: JsonObject, mask: Mask) -> JsonObject:
    """Return an object with the secrets in its texts masked. Idempotent."""
    return {key: item if key in _IDENTIFYING else _mask_json(item, mask) for key, item in value.items()}


def _mask_json(value: Json, mask: Mask) -> Json:
    if isinstance(value, str):
        return mask(value)
    if is_object(value):
        return masked_members(value, mask)
    return [_mask_json(item, mask) for item in value] if is_array(value) else value


DAMAGED: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError)
"""What reading a recording with other members or types raises."""


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _object(value: Json) -> JsonObject:
    if not is_object(value):
        raise TypeError(value)
    return value


def _number(value: Json) -> float | None:
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise TypeError(value)
    return value


def parse_recording(lines: Iterable[bytes], name: str = "") -> Recording:
    """Return a recording. Raises `recording.invalid`."""
    found: defaultdict[str, list[JsonObject]] = defaultdict(list)
    try:
        for line in lines:
            if line.strip():
                entry: Json = orjson.loads(line)
                found[entry["kind"]].append(entry)
        return _recording(found)
    except DAMAGED as error:
        message = f"{name or 'The file'} is not a recording of a session, or is damaged."
        raise InvalidRequest("recording.invalid", message) from error


def _recording(found: Mapping[str, list[JsonObject]]) -> Recording:
    opened = found["open"]
    contents = {_text(entry["hash"]): _object(entry["message"]) for entry in found.get("message", ())}
    return Recording(
        session=_text(opened[0]["brief"]["session"]),
        runner=_text(opened[0]["runner"]),
        briefs=tuple(brief_of_json(entry["brief"]) for entry in opened),
        home=_text(opened[0]["home"]),
        prompts=tuple(_text(entry["text"]) for entry in found.get("prompt", ())),
        answers=tuple(
            RecordedAnswer(_key(entry["request"]), _object(entry["answer"])) for entry in found.get("model", ())
        ),
        calls=tuple(map(_call, found.get("call", ()))),
        own_calls=tuple(map(_call, found.get("own_call", ()))),
        questions=tuple((canonical(storable(each["questions"])), each["answers"]) for each in found.get("ask", ())),
        approvals=tuple(found.get("approval", ())),
        contents=contents,
        events=tuple(_object(entry["event"]) for entry in found.get("event", ())),
    )


def _key(request: JsonObject) -> ModelRequestKey:
    return ModelRequestKey(_text(request["model"]), tuple(map(_text, request["messages"])), _text(request["tools"]))


def _call(entry: JsonObject) -> RecordedToolCall:
    return RecordedToolCall(
        _text(entry["toolCallId"]),
        _text(entry["tool"]),
        _object(entry["arguments"]),
        entry["result"],
        float(entry["durationMs"]),
        entry.get("refusal"),
    )


def brief_to_json(brief: Brief) -> JsonObject:
    """Return a brief as JSON: everything that the model saw of it."""
    return {
        "session": brief.session,
        "cwd": brief.cwd,
        "mode": brief.mode,
        "prompt": brief.prompt,
        "model": brief.model,
        "ownTools": list(brief.own_tools),
        "limits": brief.limits.to_json(),
        "tools": [_offered_json(offered) for offered in brief.tools],
    }


def _offered_json(offered: Offered) -> JsonObject:
    tool = offered.tool
    return {
        "server": offered.server,
        "name": offered.name,
        "ref": str(tool.ref),
        "kind": tool.kind,
        "definition": tool.definition,
        "marks": [name for name in _MARKS if getattr(tool.marks, name)],
    }


def brief_of_json(value: JsonObject) -> Brief:
    """Return the brief of its JSON."""
    limits = value.get("limits", {})
    return Brief(
        session=_text(value["session"]),
        cwd=_text(value["cwd"]),
        mode=value["mode"],
        prompt=_text(value["prompt"]),
        model=value["model"],
        own_tools=tuple(map(_text, value["ownTools"])),
        limits=SessionLimits(limits.get("turns"), _number(limits.get("costUsd")), _number(limits.get("seconds"))),
        tools=tuple(_read_offer(each) for each in value["tools"]),
    )


def _read_offer(value: JsonObject) -> Offered:
    definition = dict(value["definition"])
    ref = ToolRef.parse(_text(value["ref"]))
    if ref is None:
        raise ValueError(value["ref"])
    tool = Tool(
        ref,
        _text(definition.pop("description")),
        _object(definition.pop("inputSchema")),
        value["kind"],
        definition.pop("title", None),
        definition.pop("outputSchema", None),
        definition.pop("annotations", None),
        Marks(**dict.fromkeys(value["marks"], True)),
        extra=definition,
    )
    return Offered(_text(value["server"]), _text(value["name"]), tool)


def result_of_json(value: JsonObject) -> CallResult:
    """Return a recorded result."""
    content: Json = value.get("content")
    structured = "structuredContent" in value
    is_error = value.get("isError") is True
    return CallResult(content if is_array(content) else (), is_error, value.get("structuredContent"), structured)


def places_of(cwd: str, home: str) -> dict[str, str]:
    """Return the names for directories that differ by machine, the longest path first.

    A session in the home directory itself is one of the directory `(cwd)`, as in its replay elsewhere.
    """
    places = {home: "(home)", cwd: "(cwd)"}
    return dict(
        sorted(((path, name) for path, name in places.items() if len(path) > 1), key=lambda each: -len(each[0]))
    )
