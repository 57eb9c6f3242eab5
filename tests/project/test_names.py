"""Public class names are unique, so that a search for one finds one thing."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "toolcrib"
SHARED: frozenset[str] = frozenset()
"""Names that may exist more than once. The list only shrinks."""


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
