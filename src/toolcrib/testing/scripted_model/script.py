"""Scripts of the scripted model: lists of steps, parsed from JSON.

    {"weather": {"when": "weather|rain", "steps": [
        {"blocks": [{"text": "I look."}, {"tool": "mcp__weather__forecast", "input": {"city": "Ulm"}}]},
        {"blocks": [{"text": "It says: {{last_tool_result}}"}]}]}}

A script without `when` may be just its list of steps. The script `default` answers prompts that no other matches.

Parsing never raises for invalid input: it is reported as a problem, and the other scripts are used.
"""

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TypeAlias

from toolcrib.model.errors import ConfigError
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.problems import Problem

CHUNK = 24
"""Default number of characters per delta."""


@dataclass(frozen=True, slots=True)
class TextStep:
    """A text. `{{last_tool_result}}`, `{{n_tools}}` and `{{model}}` are substituted."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A thinking block."""

    thinking: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call, by the name known to the model."""

    tool: str
    input: JsonObject


@dataclass(frozen=True, slots=True)
class Raw:
    """A raw API block, for everything else."""

    block: JsonObject


Block: TypeAlias = TextStep | Thinking | ToolUse | Raw


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP error instead of a reply."""

    status: int
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class ScriptPace:
    """How a reply is sent: initial delay, chunk size, delay per chunk, and whether it is cut off.

    A runtime may retry a stream that was cut off; the retry is cut off too.
    """

    delay_ms: float = 0
    chunk: int = CHUNK
    chunk_delay_ms: float = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One reply of the model: blocks, a refusal, or silence for `hang_s` seconds before the connection is closed."""

    blocks: tuple[Block, ...] = ()
    refusal: Refusal | None = None
    hang_s: float | None = None
    pace: ScriptPace = ScriptPace()
    stop_reason: str | None = None
    usage: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """Steps in order; the last one repeats. `when` matches the prompt, ignoring case."""

    steps: tuple[ScriptStep, ...]
    when: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class ReadScripts:
    """The valid scripts, and the problems of the others."""

    scripts: Mapping[str, Script] = field(default_factory=dict[str, Script])
    problems: tuple[Problem, ...] = ()


class _Wrong(Exception):
    """An invalid part: its location, and what is expected."""


NAME = re.compile(r"[\w.-]+")
_BLOCKS: Mapping[str, frozenset[str]] = {
    "text": frozenset(), "thinking": frozenset(), "tool": frozenset({"input"}), "raw": frozenset(),
}  # fmt: skip
"""The key of each kind of block, and its optional keys."""


def read_scripts(value: Json) -> ReadScripts:
    """Parse all scripts of a JSON object; each invalid one is reported as a problem."""
    if not is_object(value):
        return ReadScripts(problems=(Problem("script.invalid", "Scripts are an object of scripts by name."),))
    scripts: dict[str, Script] = {}
    problems: list[Problem] = []
    for name, given in value.items():
        try:
            scripts[name] = _script(name, given)
        except _Wrong as wrong:
            problems.append(Problem("script.invalid", str(wrong)))
    return ReadScripts(scripts, tuple(problems))


def _script(name: str, value: Json) -> Script:
    if not NAME.fullmatch(name):
        raise _Wrong(f"Script {name!r}: a name is made of letters, digits, `_`, `.` and `-`.")
    whole: JsonObject = value if is_object(value) else {"steps": value}
    _only(whole, {"steps", "when"}, f"Script `{name}`")
    steps: Json = whole.get("steps")
    if not is_array(steps) or not steps:
        raise _Wrong(f"Script `{name}`: `steps` is a list of at least one step.")
    when: Json = whole.get("when")
    return Script(
        tuple(_step(step, f"Script `{name}`, step {index}") for index, step in enumerate(steps)),
        _pattern(when, f"Script `{name}`") if when is not None else None,
    )


def _pattern(value: Json, where: str) -> re.Pattern[str]:
    try:
        return re.compile(value, re.IGNORECASE)
    except (re.error, TypeError) as error:
        raise _Wrong(f"{where}: `when` is a regular expression ({error}).") from None


_KEYS = frozenset({
    "blocks", "delay_ms", "chunk", "chunk_delay_ms", "hang_s", "cut", "status", "error", "message", "stop_reason",
    "usage",
})  # fmt: skip


def _step(value: Json, where: str) -> ScriptStep:
    if not is_object(value):
        raise _Wrong(f"{where}: a step is an object.")
    _only(value, _KEYS, where)
    part = _Reader(value, where)
    blocks: Json = value.get("blocks", [])
    if not is_array(blocks):
        raise _Wrong(f"{where}: `blocks` is a list.")
    step = ScriptStep(
        blocks=tuple(_block(block, f"{where}, block {index}") for index, block in enumerate(blocks)),
        refusal=_refusal(part) if "status" in value else None,
        hang_s=part.duration("hang_s", 0) if "hang_s" in value else None,
        pace=ScriptPace(
            part.duration("delay_ms", 0),
            part.read("chunk", CHUNK, lambda it: _is_whole(it) and it > 0, "a whole number above 0"),
            part.duration("chunk_delay_ms", 0),
            part.read("cut", False, lambda it: isinstance(it, bool), "true or false"),
        ),
        stop_reason=part.read("stop_reason", None, lambda it: isinstance(it, str), "a text"),
        usage=part.read("usage", None, is_object, "an object"),
    )
    if sum((bool(step.blocks), step.refusal is not None, step.hang_s is not None)) != 1:
        raise _Wrong(f"{where}: a step has one of `blocks`, `status` and `hang_s`.")
    return step


def _refusal(part: "_Reader") -> Refusal:
    status: int = part.read("status", 0, lambda it: _is_whole(it) and 400 <= it <= 599, "a number from 400 to 599")
    return Refusal(status, part.text("error", "api_error"), part.text("message", "The script says so."))


def _block(value: Json, where: str) -> Block:
    kinds = sorted(_BLOCKS.keys() & value.keys()) if is_object(value) else []
    if not is_object(value) or len(kinds) != 1:
        raise _Wrong(f"{where}: a block has one of `text`, `thinking`, `tool` and `raw`.")
    kind = kinds[0]
    _only(value, {kind, *_BLOCKS[kind]}, where)
    part = _Reader(value, where)
    if kind == "text":
        return TextStep(part.text("text"))
    if kind == "thinking":
        return Thinking(part.text("thinking"))
    if kind == "tool":
        return ToolUse(part.text("tool"), part.read("input", {}, is_object, "an object"))
    return Raw(
        part.read("raw", {}, lambda it: is_object(it) and isinstance(it.get("type"), str), "a block with a type")
    )


def _only(value: JsonObject, known: frozenset[str] | set[str], where: str) -> None:
    for key in value.keys() - known:
        raise _Wrong(f"{where}: there is no `{key}`; there are {', '.join(f'`{each}`' for each in sorted(known))}.")


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads and validates the members of one object."""

    value: JsonObject
    where: str

    def read(self, key: str, default: Json, fits: Callable[[Json], bool], words: str) -> Json:
        if key not in self.value:
            return default
        if not fits(self.value[key]):
            raise _Wrong(f"{self.where}: `{key}` is {words}.")
        return self.value[key]

    def text(self, key: str, default: str = "") -> str:
        return self.read(key, default, lambda it: isinstance(it, str), "a text")

    def duration(self, key: str, default: float) -> float:
        return self.read(
            key, default, lambda it: (_is_whole(it) or isinstance(it, float)) and 0 <= it < 1e8, "a number from 0 on"
        )


class Scripts(MutableMapping[str, Script]):
    """Scripts by name, which may be added while the model is in use; invalid ones are rejected immediately.

    Raises `ConfigError` (`script.invalid`) with all problems.
    """

    def __init__(self, given: Mapping[str, Json] | None = None) -> None:
        self._scripts: dict[str, Script] = {}
        self.update(given or {})

    def __setitem__(self, name: str, script: Json) -> None:
        if not isinstance(script, Script):
            read = read_scripts({name: script})
            if read.problems:
                raise ConfigError("script.invalid", " ".join(problem.message for problem in read.problems))
            script = read.scripts[name]
        # Copy on write, because another thread may be reading the old mapping.
        self._scripts = {**self._scripts, name: script}

    def __delitem__(self, name: str) -> None:
        self._scripts = {other: script for other, script in self._scripts.items() if other != name}

    def __getitem__(self, name: str) -> Script:
        return self._scripts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scripts)

    def __len__(self) -> int:
        return len(self._scripts)
