"""Small is enforced: no module of src above 600 lines, no function above 60.

Exceptions stand in `size_exceptions.toml` beside this file, each with its reason; one that is no longer needed fails
too, so the list never grows stale. Run by `make check`.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXCEPTIONS = Path(__file__).with_name("size_exceptions.toml")
MODULE_LINES = 600
FUNCTION_LINES = 60


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Every function in the tree by its qualified name, with its length from the first decorator to the last line."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if not isinstance(node, ast.ClassDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                yield name, (node.end_lineno or node.lineno) - first + 1
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)


def too_large(root: Path) -> dict[str, str]:
    """What is above its limit: `path` or `path::function` → how much."""
    found: dict[str, str] = {}
    for path in sorted((root / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(root).as_posix()
        if (lines := len(text.splitlines())) > MODULE_LINES:
            found[name] = f"{lines} lines, at most {MODULE_LINES}"
        for function, length in functions(ast.parse(text)):
            if length > FUNCTION_LINES:
                found[f"{name}::{function}"] = f"{length} lines, at most {FUNCTION_LINES}"
    return found


def complaints(found: dict[str, str], excepted: dict[str, str]) -> list[str]:
    """What to print: everything too large without an exception, and every exception without need or reason."""
    return [
        *(f"{name}: {size}" for name, size in found.items() if name not in excepted),
        *(f"{name}: an exception that is not needed" for name in excepted if name not in found),
        *(f"{name}: an exception without a reason" for name, reason in excepted.items() if not reason.strip()),
    ]


def main() -> int:
    """Check src; print what is too large; 1 if anything is."""
    lines = complaints(too_large(ROOT), tomllib.loads(EXCEPTIONS.read_text(encoding="utf-8")))
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
