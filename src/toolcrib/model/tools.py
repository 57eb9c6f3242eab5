"""Tools: identity (`ToolRef`), definition (`Tool`), and the result of a call (`CallResult`).

A tool is identified by the pair (server, tool name). `gate.catalog.naming` derives the names shown to models and looks
them up; they must never be parsed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from toolcrib.model.defaults import Filler, argument_names, compile_defaults
from toolcrib.model.json import Json, JsonObject, digest, dumps, is_array, no_members
from toolcrib.model.problems import Problem
from toolcrib.model.servers import NO_NAMES, ServerNames

ServerKind = Literal["builtin", "plugin", "upstream", "runtime"]
"""`runtime`: tools that an agent's runtime runs itself, in its sessions only; they are never listed or called here."""


class ToolRef(NamedTuple):
    """Identity of a tool. Sorts by server, then by name."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server}/{self.tool}"

    @classmethod
    def parse(cls, text: str) -> "ToolRef | None":
        """Parse `server/tool`. Server names contain no slash; tool names may."""
        server, slash, tool = text.partition("/")
        return cls(server, tool) if slash and server and tool else None


@dataclass(frozen=True, slots=True)
class Marks:
    """Properties of a tool, as declared by its author; policy uses them."""

    read_only: bool = False
    destructive: bool = False
    privileged: bool = False
    scheduler_blocked: bool = False
    open_world: bool = False
    always_load: bool = False

    def to_json(self) -> JsonObject:
        """Return the public shape (`marks` of a tool)."""
        return {
            "readOnly": self.read_only,
            "destructive": self.destructive,
            "privileged": self.privileged,
            "schedulerBlocked": self.scheduler_blocked,
        }


@dataclass(frozen=True)
class Tool:
    """One tool as its server defines it.

    `annotations` and `extra` keep protocol fields (hints, icons, `_meta`) unchanged. `requires` names services without
    which the tool is not offered. `timeout` is in seconds, enforced by the gate; None means the crib's default. `names`
    are the identity and other names of its server.
    """

    ref: ToolRef
    description: str
    input_schema: JsonObject
    kind: ServerKind = "plugin"
    title: str | None = None
    output_schema: JsonObject | None = None
    annotations: JsonObject | None = None
    marks: Marks = Marks()
    requires: tuple[str, ...] = ()
    timeout: float | None = None
    problems: tuple[Problem, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=no_members)
    names: ServerNames = NO_NAMES

    @cached_property
    def definition(self) -> JsonObject:
        """The definition as sent to clients, without the name. It is hashed, pinned and listed."""
        wire: JsonObject = {"description": self.description, "inputSchema": self.input_schema}
        if self.title is not None:
            wire["title"] = self.title
        if self.output_schema is not None:
            wire["outputSchema"] = self.output_schema
        if self.annotations is not None:
            wire["annotations"] = self.annotations
        return {**self.extra, **wire}

    @cached_property
    def filler(self) -> Filler | None:
        """Fills the schema's defaults into arguments; None if the schema has none."""
        return compile_defaults(self.input_schema)

    def filled(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments with the schema's defaults filled in, or the same object if nothing is missing."""
        return arguments if self.filler is None else self.filler.fill(arguments)

    @cached_property
    def argument_names(self) -> frozenset[str]:
        """The names of all arguments that the schema declares."""
        return argument_names(self.input_schema)

    @cached_property
    def encoded(self) -> bytes:
        """The encoded definition; lists are concatenated from it."""
        return dumps(self.definition)

    @cached_property
    def definition_hash(self) -> str:
        """Digest that changes with the definition or the server behind the tool."""
        return digest([self.names.bound or self.names.identity or self.ref.server, self.ref.tool, self.definition])


@dataclass(frozen=True, slots=True)
class ContentItem:
    """A prompt, resource or template of one server: `key` is its name or URI, `definition` its full definition."""

    server: str
    key: str
    definition: JsonObject

    @property
    def ref(self) -> ToolRef:
        """Its identity among items of the same kind."""
        return ToolRef(self.server, self.key)


@dataclass(frozen=True, slots=True)
class ProtocolFault:
    """The protocol error behind an error result; clients may use its code and data."""

    code: int
    message: str
    data: Json = None


@dataclass(slots=True)
class CallResult:
    """The complete result of a call: content blocks, structured content, `_meta` and the rest.

    Must never be modified. Not a frozen dataclass: that would make creating one, for every call, four times slower.

    `structured_content` is absent if `has_structured` is false; `None` is a valid value. `is_final` is false if the
    server requests input; `extra` then contains its request. `fault` is the protocol error that the server returned
    instead of a result.
    """

    content: Sequence[JsonObject] = ()
    is_error: bool = False
    structured_content: Json = None
    has_structured: bool = False
    extra: Mapping[str, Json] = field(default_factory=no_members)
    is_final: bool = True
    fault: ProtocolFault | None = None

    @classmethod
    def text(cls, text: str, *, is_error: bool = False) -> "CallResult":
        """Return a result with one text block."""
        return cls(content=({"type": "text", "text": text},), is_error=is_error)

    @classmethod
    def error(cls, text: str) -> "CallResult":
        """Return an error result, which the model can read and act on."""
        return cls.text(text, is_error=True)

    @classmethod
    def for_undeclared(cls, definition: JsonObject, arguments: JsonObject) -> "CallResult | None":
        """Return an error result if a definition declares no such argument. A misspelt one must not be ignored."""
        declared: JsonObject = definition["inputSchema"]["properties"]
        unknown = [name for name in arguments if name not in declared]
        if not unknown:
            return None
        return cls.error(f"{', '.join(unknown)[:200]}: unknown argument. Use {', '.join(declared)}.")

    @classmethod
    def of_wire(cls, wire: Mapping[str, Json]) -> "CallResult":
        """Parse a result from a server (`CallToolResult` of either era)."""
        extra = dict(wire)
        if extra.get("resultType") == "input_required":
            return cls(extra=extra, is_final=False)
        content: Json = extra.pop("content", None)
        is_error: Json = extra.pop("isError", False)
        has_structured = "structuredContent" in extra
        structured: Json = extra.pop("structuredContent", None)
        return cls(content if is_array(content) else (), is_error is True, structured, has_structured, extra)

    def to_json(self) -> JsonObject:
        """Return the protocol shape (`CallToolResult`)."""
        if not self.is_final:
            return dict(self.extra)
        wire: JsonObject = {**self.extra, "content": list(self.content), "isError": self.is_error}
        if self.has_structured:
            wire["structuredContent"] = self.structured_content
        return wire
