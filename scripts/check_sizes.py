"""Check sizes: at most 600 lines in a module of src, and 60 in a function.

Exceptions are in `size_exceptions.toml`, each with its reason. An exception that is no longer needed is reported too.
Run by `make check`.

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
    """Yield every function by its qualified name, with its length from the first decorator to the last line."""
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
    """Return everything above its limit: `path` or `path::function` and its size."""
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
    """Return a line for everything too large without an exception, and for every exception without need or reason."""
    return [
        *(f"{name}: {size}" for name, size in found.items() if name not in excepted),
        *(f"{name}: an exception that is not needed" for name in excepted if name not in found),
        *(f"{name}: an exception without a reason" for name, reason in excepted.items() if not reason.strip()),
    ]


def main() -> int:
    """Check src and print what is too large. Return 1 if anything is."""
    lines = complaints(too_large(ROOT), tomllib.loads(EXCEPTIONS.read_text(encoding="utf-8")))
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
