"""Tools: who they are (`ToolRef`), what they promise (`Tool`), what a call gives back (`CallResult`).

A tool is identified by the pair (server, tool name). The names shown to models are made from it in `catalog.naming`
and looked up there; nothing parses them back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import orjson

from toolcrib.model.json import Json, JsonObject, digest, is_array, no_members
from toolcrib.model.problems import Problem

ServerKind = Literal["builtin", "plugin", "upstream", "runtime"]
"""`runtime`: what an agent's own runtime runs, inside its sessions only; no door lists or calls it."""


class ToolRef(NamedTuple):
    """Identity of a tool. Sorts by server, then by name."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server}/{self.tool}"

    @classmethod
    def parse(cls, text: str) -> "ToolRef | None":
        """Read what a person wrote as `server/tool`; servers have no slash in their names, tools may."""
        server, slash, tool = text.partition("/")
        return cls(server, tool) if slash and server and tool else None


@dataclass(frozen=True, slots=True)
class Marks:
    """What the owner of a tool says about it; policy reads these."""

    read_only: bool = False
    destructive: bool = False
    privileged: bool = False
    scheduler_blocked: bool = False
    open_world: bool = False
    always_load: bool = False

    def to_json(self) -> JsonObject:
        """The public shape (`marks` of a tool)."""
        return {
            "readOnly": self.read_only,
            "destructive": self.destructive,
            "privileged": self.privileged,
            "schedulerBlocked": self.scheduler_blocked,
        }


@dataclass(frozen=True)
class Tool:
    """One tool as its server defines it.

    `annotations` and `extra` keep what the server said in the protocol's own words (hints, icons, `_meta`), so that it
    can be passed on unchanged. `requires` names services that must exist, else the tool is not offered. `timeout` is in
    seconds; the gate applies it, and the crib's default where it is None.
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

    @cached_property
    def definition(self) -> JsonObject:
        """What a client is told of the tool, but for its name: the object that is hashed, pinned and listed."""
        wire: JsonObject = {"description": self.description, "inputSchema": self.input_schema}
        if self.title is not None:
            wire["title"] = self.title
        if self.output_schema is not None:
            wire["outputSchema"] = self.output_schema
        if self.annotations is not None:
            wire["annotations"] = self.annotations
        return {**self.extra, **wire}

    @cached_property
    def encoded(self) -> bytes:
        """The definition as it is sent, so that lists are put together instead of written."""
        return orjson.dumps(self.definition)

    @cached_property
    def definition_hash(self) -> str:
        """Changes whenever anything a model or a person was told about the tool changes."""
        return digest([self.ref.server, self.ref.tool, self.definition])


@dataclass(frozen=True, slots=True)
class ContentItem:
    """A prompt, a resource or a template of one server: `key` is what the server calls it, `definition` all it says."""

    server: str
    key: str
    definition: JsonObject


@dataclass(frozen=True, slots=True)
class Fault:
    """The error of the protocol that an error result stands for: a client may act on its code and data."""

    code: int
    message: str
    data: Json = None


@dataclass(slots=True)
class CallResult:
    """What a call gave back, every part kept: content blocks as they came, structured content, `_meta`, the rest.

    It is never changed. To have Python see to that would take four times as long as to make one, for every call.

    `structured_content` is absent when `has_structured` is false; `None` is a value of its own. `is_final` is false
    where the server wants to be asked again with answers: what it wants to know is in `extra`, in the protocol's words.
    `fault` is what the server answered with instead of a result, if it did.
    """

    content: Sequence[JsonObject] = ()
    is_error: bool = False
    structured_content: Json = None
    has_structured: bool = False
    extra: Mapping[str, Json] = field(default_factory=no_members)
    is_final: bool = True
    fault: Fault | None = None

    @classmethod
    def text(cls, text: str, *, is_error: bool = False) -> "CallResult":
        """A result of one text block."""
        return cls(content=({"type": "text", "text": text},), is_error=is_error)

    @classmethod
    def error(cls, text: str) -> "CallResult":
        """A failure told to the model, which can read it and act."""
        return cls.text(text, is_error=True)

    @classmethod
    def of_wire(cls, wire: Mapping[str, Json]) -> "CallResult":
        """A result as a server sent it (`CallToolResult` of either era)."""
        extra = dict(wire)
        if extra.get("resultType") == "input_required":
            return cls(extra=extra, is_final=False)
        content: Json = extra.pop("content", None)
        is_error: Json = extra.pop("isError", False)
        has_structured = "structuredContent" in extra
        structured: Json = extra.pop("structuredContent", None)
        return cls(content if is_array(content) else (), is_error is True, structured, has_structured, extra)

    def to_json(self) -> JsonObject:
        """The protocol's own shape (`CallToolResult`)."""
        if not self.is_final:
            return dict(self.extra)
        wire: JsonObject = {**self.extra, "content": list(self.content), "isError": self.is_error}
        if self.has_structured:
            wire["structuredContent"] = self.structured_content
        return wire
