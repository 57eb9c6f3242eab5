"""YAML, parsed as plain data: no tags, no objects, and a budget for expanding aliases.

`ruamel.yaml` composes nodes with their positions. They are converted to `YamlNode` and values are built here, so no
constructor of a library runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.servers.syntax.document import Document, Duplicate, Key, KeyPath, SyntaxProblem, line_at, total

if TYPE_CHECKING:
    from ruamel import yaml as ruamel_yaml
    from ruamel.yaml import error as ruamel_error
else:
    ruamel_yaml = lazy_module("ruamel.yaml")
    ruamel_error = lazy_module("ruamel.yaml.error")

MAX_NODES = 100_000
MAX_DEPTH = 200
MAX_CHARACTERS = 256 * 1024
"""Composing is slow, and no real settings file is larger."""
MAX_FLOW = 100
"""Maximum depth of brackets; the cost of composing them is more than linear."""

_BRACKET = re.compile(r"[\[\]{}]")
_VERSION = re.compile(r"^%YAML[ \t]+([0-9]+\.[0-9]+)[ \t\r]*(?:#.*)?$", re.MULTILINE)
_CORE = "tag:yaml.org,2002:"
_MERGE = f"{_CORE}merge"


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A node with its position. `pairs` are the members: (key, value) of a mapping, (item, item) of a list."""

    kind: Literal["scalar", "sequence", "mapping"]
    tag: str
    text: str
    flow: bool
    start: int
    end: int
    line: int
    column: int
    pairs: "tuple[tuple[YamlNode, YamlNode], ...]" = ()

    def children(self) -> "list[tuple[Key, YamlNode, YamlNode]]":
        """Return the key, the node it starts at and the value of each member."""
        if self.kind == "mapping":
            return [(key.text, key, value) for key, value in self.pairs if key.kind == "scalar"]
        return [(index, item, item) for index, (item, _) in enumerate(self.pairs)]


@total
def parse(text: str) -> Document:
    """Parse one YAML document. Raises `SyntaxProblem`."""
    root = compose(text)
    builder = _Builder()
    value = builder.build(root, 0) if root is not None else None

    def lines_of(path: KeyPath) -> Mapping[Key, int]:
        node = node_at(root, path)
        return {key: at.line for key, at, _ in node.children()} if node else {}

    return Document(value, lines_of, duplicates=tuple(builder.duplicates), notes=tuple(builder.notes))


@total
def compose(text: str) -> YamlNode | None:
    """Return the nodes of the text with their positions; None for an empty text. Raises `SyntaxProblem`."""
    if len(text) > MAX_CHARACTERS:
        raise SyntaxProblem(f"more than {MAX_CHARACTERS // 1024} KB of YAML")
    _check_brackets(text)
    _check_version(text)
    loader: Any = ruamel_yaml.YAML(typ="safe", pure=True)
    try:
        node = loader.compose(text)
        return _translate(node, {}, 0) if node is not None else None
    except ruamel_error.MarkedYAMLError as error:
        marked: Any = error
        mark = marked.problem_mark or marked.context_mark
        raise SyntaxProblem(str(marked.problem or "not YAML"), mark.line + 1 if mark else None) from None
    except ruamel_error.YAMLError as error:
        raise SyntaxProblem((str(error).splitlines() or ["not YAML"])[0]) from None


def _check_version(text: str) -> None:
    """Raise `SyntaxProblem` for a version the library does not know and would fail on."""
    for match in _VERSION.finditer(text):
        if match[1] not in ("1.1", "1.2"):
            raise SyntaxProblem(
                f"YAML {match[1][:20]} is not known here, only 1.1 and 1.2", line_at(text, match.start())
            )


def _check_brackets(text: str) -> None:
    depth = 0
    for match in _BRACKET.finditer(text):
        depth = max(0, depth + (1 if match[0] in "[{" else -1))
        if depth > MAX_FLOW:
            raise SyntaxProblem("nested too deeply", line_at(text, match.start()))


def node_at(root: YamlNode | None, path: KeyPath) -> YamlNode | None:
    """Return the node at a path; None if there is none."""
    node = root
    for step in path:
        node = next((value for key, _, value in reversed(node.children()) if key == step), None) if node else None
    return node


def _translate(node: Any, known: dict[int, YamlNode | None], depth: int) -> YamlNode:
    """Convert a library node. A shared node stays shared; a node that contains itself is refused."""
    line = int(node.start_mark.line) + 1
    if depth > MAX_DEPTH:
        raise SyntaxProblem("nested too deeply", line)
    if id(node) in known:
        done = known[id(node)]
        if done is None:
            raise SyntaxProblem("an alias stands for something that contains it", line)
        return done
    known[id(node)] = None
    kind = node.id
    pairs: tuple[tuple[YamlNode, YamlNode], ...] = ()
    if kind == "mapping":
        pairs = tuple((_translate(k, known, depth + 1), _translate(v, known, depth + 1)) for k, v in node.value)
    elif kind == "sequence":
        items = (_translate(item, known, depth + 1) for item in node.value)
        pairs = tuple((item, item) for item in items)
    start, end = node.start_mark, node.end_mark
    text = str(node.value) if kind == "scalar" else ""
    flow = bool(getattr(node, "flow_style", False))
    own = YamlNode(kind, str(node.tag), text, flow, start.index, end.index, line, int(start.column), pairs)
    known[id(node)] = own
    return own


class _Builder:
    """Builds values from nodes, within the budget."""

    def __init__(self) -> None:
        self.duplicates: list[Duplicate] = []
        self.notes: list[str] = []
        self._nodes = 0

    def build(self, node: YamlNode, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise SyntaxProblem("its aliases unfold to too much", node.line)
        if node.kind == "scalar":
            return self._scalar(node)
        if node.kind == "sequence":
            return [self.build(item, depth + 1) for item, _ in node.pairs]
        return self._mapping(node, depth)

    def _mapping(self, node: YamlNode, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.pairs:
            value = self.build(value_node, depth + 1)
            if key_node.tag == _MERGE:
                for source in cast("list[Any]", value) if isinstance(value, list) else [value]:
                    merged = {**source, **merged} if isinstance(source, dict) else merged
                continue
            key = key_node.text if key_node.kind == "scalar" else str(self.build(key_node, depth + 1))
            if key in own:
                self.duplicates.append(Duplicate(key, key_node.line))
            own[key] = value
        return {**merged, **own}

    def _scalar(self, node: YamlNode) -> Any:
        kind = node.tag.removeprefix(_CORE)
        if kind == "null":
            return None
        if kind == "bool":
            return node.text.lower() in ("true", "yes", "on")
        if kind in ("int", "float"):
            return _number(node.text)
        if kind not in ("str", "timestamp", "value", "merge"):
            self.notes.append(f"the tag {node.tag} in line {node.line} is not followed; its text is taken as it is")
        return node.text


def _number(text: str) -> int | float | str:
    digits = text.replace("_", "")
    for base in (10, 0):
        try:
            return int(digits, base)
        except ValueError:
            continue
    try:
        value = float(digits)
    except ValueError:
        return text
    # Infinity and NaN are not JSON, so they stay text.
    return value if value - value == 0 else text
