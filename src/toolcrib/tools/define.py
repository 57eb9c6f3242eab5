"""`@tool` turns a Python function into a tool; `ToolServer` groups functions under one name.

The decorator reads everything (name, description, schemas, marks, injected parameters), so an invalid signature fails
where it is written. It returns the function unchanged, so tests can call it directly.

Must never call a tool.
"""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import Marks, ServerKind, Tool, ToolRef
from toolcrib.tools.inject import Factory, Provider, as_providers, injected
from toolcrib.tools.results import ToResult, read_results
from toolcrib.tools.schema import Check, read_arguments
from toolcrib.tools.signature import Key, definition_error, read_parameters, read_return

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE = "__toolcrib_tool__"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SERVER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """Everything read from a decorated function."""

    function: Callable[..., Any]
    name: str
    description: str
    input_schema: JsonObject
    check: Check
    output_schema: JsonObject | None
    to_result: ToResult
    injected: Mapping[str, Key]
    title: str | None
    marks: Marks
    requires: tuple[str, ...]
    timeout: float | None

    def __str__(self) -> str:
        return _subject(self.function)

    def tool(self, server: str, kind: ServerKind, timeout: float | None = None) -> Tool:
        """Return the tool for the catalog; `timeout` applies if the function sets none."""
        marks = self.marks
        hints = {
            "readOnlyHint": marks.read_only,
            "destructiveHint": marks.destructive,
            "openWorldHint": marks.open_world,
        }
        annotations: JsonObject = {hint: True for hint, is_set in hints.items() if is_set}
        return Tool(
            ref=ToolRef(server, self.name),
            description=self.description,
            input_schema=self.input_schema,
            kind=kind,
            title=self.title,
            output_schema=self.output_schema,
            annotations=annotations or None,
            marks=marks,
            requires=self.requires,
            timeout=timeout if self.timeout is None else self.timeout,
            extra={"_meta": {"anthropic/alwaysLoad": True}} if marks.always_load else {},
        )


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    read_only: bool = False,
    destructive: bool = False,
    privileged: bool = False,
    scheduler_blocked: bool = False,
    open_world: bool = False,
    always_load: bool = False,
    requires: str | Sequence[str] = (),
    timeout: float | None = None,
) -> Callable[[Function], Function]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    requires: str | Sequence[str] = (),
    timeout: float | None = None,
    **marks: bool,
) -> Any:
    """Turn a function into a tool. Can be used with or without arguments.

    `read_only`, `destructive`, `privileged`, `scheduler_blocked`, `open_world` and `always_load` are marks for policy
    and clients. `requires` names services without which the tool is not offered. `timeout` is in seconds. Raises
    `ConfigError` (`tool.definition`) for an invalid definition.
    """
    needed = (requires,) if isinstance(requires, str) else tuple(requires)

    def decorate(target: Function) -> Function:
        definition = _define(target, name, title, Marks(**marks), needed, timeout)
        setattr(target, _ATTRIBUTE, definition)
        return target

    return decorate if function is None else decorate(function)


def definition_of(function: object) -> ToolDefinition | None:
    """Return the definition that `@tool` attached to a function, or None if it is not decorated."""
    found = vars(function).get(_ATTRIBUTE) if inspect.isfunction(function) else None
    if not isinstance(found, ToolDefinition):
        return None
    if found.function is not function:  # a decorator above copied the attribute and would be skipped by every call
        raise definition_error(str(found), "another decorator is above `@tool`.", "Put `@tool` on top.")
    return found


def check_server_name(name: str) -> None:
    """Raise `ConfigError` if this is not a valid server name."""
    if not _SERVER_NAME.fullmatch(name):
        hint = "Use letters, digits and `_.-`, up to 100."
        raise ConfigError("tool.definition", f"{name!r} cannot be the name of a server.", hint)


@dataclass(frozen=True, slots=True, eq=False)
class ToolServer:
    """Tools offered under one name, with the providers of their injected parameters.

    `instructions` describe the server's purpose. `conditions` describe the services that tools require and how to
    provide them. `timeout` applies to tools that set none, in seconds. Raises `ConfigError` for an invalid name,
    something that is not a tool, or a duplicate tool name.
    """

    name: str
    tools: Sequence[Callable[..., Any]] = ()
    providers: Mapping[Key, Provider | Factory] = field(default_factory=dict[Key, Provider | Factory])
    kind: ServerKind = "plugin"
    title: str | None = None
    instructions: str | None = None
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float | None = None
    definitions: Mapping[str, ToolDefinition] = field(init=False, repr=False, compare=False)
    provided: Mapping[Key, Provider] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_server_name(self.name)
        object.__setattr__(self, "definitions", _definitions(self.name, self.tools))
        object.__setattr__(self, "provided", as_providers(self.providers))


def _definitions(server: str, functions: Sequence[Callable[..., Any]]) -> Mapping[str, ToolDefinition]:
    found: dict[str, ToolDefinition] = {}
    for function in functions:
        definition = definition_of(function)
        if definition is None:
            message = f"Server `{server}`: {function!r} is not a tool."
            raise ConfigError("tool.definition", message, "Decorate the function with `@tool`.")
        if definition.name in found:
            hint = 'Rename one of them, or give it a name: `@tool(name="…")`.'
            raise definition_error(str(definition), f"server `{server}` already has a tool `{definition.name}`.", hint)
        found[definition.name] = definition
    return found


def _define(
    function: Callable[..., Any],
    name: str | None,
    title: str | None,
    marks: Marks,
    requires: tuple[str, ...],
    timeout: float | None,
) -> ToolDefinition:
    subject = _subject(function)
    _check_function(function, subject)
    name = function.__name__ if name is None else name
    _check_options(name, marks, timeout, subject)
    parameters = read_parameters(function, subject)
    doc = read_doc(function, [parameter.name for parameter in parameters])
    given = [parameter for parameter in parameters if not parameter.injected]
    arguments = read_arguments(given, doc.parameters, subject)
    results = read_results(read_return(function, subject), subject)
    return ToolDefinition(
        function=function,
        name=name,
        description=doc.description,
        input_schema=arguments.schema,
        check=arguments.check,
        output_schema=results.schema,
        to_result=results.convert,
        injected=injected(parameters),
        title=title,
        marks=marks,
        requires=requires,
        timeout=timeout,
    )


def _check_function(function: Callable[..., Any], subject: str) -> None:
    if not inspect.isfunction(function):
        raise definition_error(subject, "`@tool` takes functions only.", "Write a function that calls it.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        hint = "Return a list; report progress through an injected `Context`."
        raise definition_error(subject, "it yields, and a tool has one result.", hint)


def _check_options(name: str, marks: Marks, timeout: float | None, subject: str) -> None:
    if not _TOOL_NAME.fullmatch(name):
        hint = 'Use letters, digits and `_.-`, up to 128, as in `@tool(name="list_files")`.'
        raise definition_error(subject, f"its name {name!r} cannot be used.", hint)
    if marks.read_only and marks.destructive:
        raise definition_error(subject, "it is marked both read-only and destructive.", "Remove one of the marks.")
    if timeout is not None and not 0 < timeout < math.inf:
        raise definition_error(subject, f"its time-out is {timeout}.", "Give a number of seconds above 0.")


def _subject(function: Callable[..., Any]) -> str:
    return f"Tool `{getattr(function, '__qualname__', type(function).__qualname__)}`"


_HEADING = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Doc:
    """A parsed docstring: the description, and one text per parameter."""

    description: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def read_doc(function: Callable[..., Any], parameters: Collection[str]) -> Doc:
    """Parse the function's docstring. An `Args:` section with unknown parameters stays in the description."""
    return split_doc(inspect.cleandoc(function.__doc__ or ""), parameters)


def split_doc(text: str, parameters: Collection[str]) -> Doc:
    """Extract the `Args:` section of a clean docstring."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if _HEADING.fullmatch(line)), None)
    if start is None:
        return Doc(text)
    end = next((n for n in range(start + 1, len(lines)) if lines[n] and not lines[n][0].isspace()), len(lines))
    found = _entries(lines[start + 1 : end])
    if not found or not found.keys() <= set(parameters):
        return Doc(text)
    before = "\n".join(lines[:start]).rstrip()
    after = "\n".join(lines[end:]).strip()
    return Doc("\n\n".join(part for part in (before, after) if part), found)


def _entries(lines: list[str]) -> dict[str, str]:
    """Parse `name: text` or `name (type): text` with continuation lines; returns {} for other content."""
    block = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    found: dict[str, list[str]] = {}
    texts: list[str] | None = None
    for line in block:
        if not line.strip():
            continue
        if line[0].isspace():
            if texts is None:
                return {}
            texts.append(line.strip())
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            return {}
        texts = found[entry["name"]] = [entry["text"].strip()]
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}
