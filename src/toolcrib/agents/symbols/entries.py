"""Symbols, references and source files, with their wire format between the worker and the crib. Pure."""

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
    """A definition. `line` starts at 1; `container` is the dotted path of what encloses it; `file` is relative."""

    name: str
    kind: Kind
    file: str
    line: int
    container: str | None
    signature: str

    def to_json(self) -> JsonObject:
        """Return the public JSON representation; a top-level symbol has no `container`."""
        shape: JsonObject = {"name": self.name, "kind": self.kind, "file": self.file, "line": self.line}
        within = {} if self.container is None else {"container": self.container}
        return {**shape, **within, "signature": self.signature}


@dataclass(frozen=True, slots=True)
class SymbolReference:
    """A line that contains a name; `text` is that line, stripped."""

    file: str
    line: int
    text: str
    is_definition: bool

    def to_json(self) -> JsonObject:
        """Return the public JSON representation."""
        return {"file": self.file, "line": self.line, "text": self.text, "isDefinition": self.is_definition}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A parsed file: its digest, its symbols, and the lines of every name. `failed` is why it could not be parsed."""

    digest: str
    symbols: Sequence[Symbol] = ()
    names: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    failed: str | None = None


def to_wire(source: SourceFile) -> Json:
    """Return a source file as compact JSON: projects have very many symbols."""
    symbols = [(each.name, each.kind, each.line, each.container, each.signature) for each in source.symbols]
    return {"digest": source.digest, "symbols": symbols, "names": source.names, "failed": source.failed}


def of_wire(file: str, wire: Json) -> SourceFile:
    """Parse the output of `to_wire`."""
    symbols = tuple(
        Symbol(name, kind, file, line, container, signature)
        for name, kind, line, container, signature in wire["symbols"]
    )
    names = {name: array("I", lines) for name, lines in wire["names"].items()}
    return SourceFile(wire["digest"], symbols, names, wire["failed"])
