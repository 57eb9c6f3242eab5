"""Public class names are unique, so that a search for one finds one thing."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "toolcrib"
SHARED: frozenset[str] = frozenset()
"""Names that may exist more than once. The list only shrinks."""
NO_PARTICIPLES = frozenset({"_embed", "_exceed", "_feed", "_need", "_proceed", "_seed", "_shed", "_speed"})
IRREGULAR = frozenset({
    "_bound", "_built", "_drawn", "_found", "_given", "_gone", "_grown", "_held", "_hidden", "_kept", "_known", "_left",
    "_lost", "_made", "_meant", "_said", "_seen", "_sent", "_shown", "_taken", "_told", "_written",
})  # fmt: skip
"""Participles that do not end in -ed."""


def test_public_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    reused = {name: found for name, found in places.items() if len(found) > 1}
    assert set(reused) == SHARED, reused


def test_source_has_at_most_15_packages() -> None:
    assert len([path for path in SOURCE.iterdir() if (path / "__init__.py").exists()]) <= 15


def is_participle(name: str) -> bool:
    """Return whether a name is only a participle, such as `_told`, which states neither an action nor a result."""
    is_regular = name.endswith("ed") and "_" not in name[1:] and name not in NO_PARTICIPLES
    return name in IRREGULAR or is_regular


def test_private_functions_are_not_named_with_a_bare_participle() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "migrations" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.decorator_list  # a cached property is a value
        and node.name.startswith("_")
        and is_participle(node.name)
    ]
    assert found == []
