"""What is known of source code: symbols, references, and all that one file has; with the form they travel in.

Above: everything else in `symbols`. Pure; the process that reads files and the one that asks share it.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject

Kind = Literal[
    "function", "method", "class", "interface", "struct", "trait", "enum", "type", "module", "macro", "constant",
    "variable", "field",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A definition. `line` counts from 1; `container` is what it stands in, with dots between; `file` is relative."""

    name: str
    kind: Kind
    file: str
    line: int
    container: str | None
    signature: str

    def to_json(self) -> JsonObject:
        """The public shape; a symbol that stands in nothing has no container."""
        shape: JsonObject = {"name": self.name, "kind": self.kind, "file": self.file, "line": self.line}
        within = {} if self.container is None else {"container": self.container}
        return {**shape, **within, "signature": self.signature}


@dataclass(frozen=True, slots=True)
class Reference:
    """A line on which a name stands; `text` is that line, without the space around it."""

    file: str
    line: int
    text: str
    is_definition: bool

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"file": self.file, "line": self.line, "text": self.text, "isDefinition": self.is_definition}


@dataclass(frozen=True, slots=True)
class Source:
    """One file as it was read: its digest, its symbols, and the lines of every name. `failed` says why it has none."""

    digest: str
    symbols: Sequence[Symbol] = ()
    names: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    failed: str | None = None


def to_wire(source: Source) -> Json:
    """A source as JSON, as short as it gets: there are very many of its parts."""
    symbols = [(each.name, each.kind, each.line, each.container, each.signature) for each in source.symbols]
    return {"digest": source.digest, "symbols": symbols, "names": source.names, "failed": source.failed}


def of_wire(file: str, wire: Json) -> Source:
    """The source of what `to_wire` made."""
    symbols = tuple(
        Symbol(name, kind, file, line, container, signature)
        for name, kind, line, container, signature in wire["symbols"]
    )
    names = {name: array("I", lines) for name, lines in wire["names"].items()}
    return Source(wire["digest"], symbols, names, wire["failed"])
