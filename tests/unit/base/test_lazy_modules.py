"""Lazy modules: imported with the first use, and declared as what they are."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolcrib
from toolcrib.base.lazy_modules import lazy_module

SOURCE = Path(toolcrib.__file__).parent


def test_lazy_module_is_imported_when_an_attribute_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seldom_used.py").write_text("answer = 42\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    module = lazy_module("seldom_used")
    assert "seldom_used" not in sys.modules
    assert module.answer == 42
    with pytest.raises(AttributeError):
        _ = module.question
    monkeypatch.delitem(sys.modules, "seldom_used")


def test_missing_lazy_module_fails_when_it_is_used() -> None:
    module = lazy_module("no_such_module_at_all")
    with pytest.raises(ModuleNotFoundError):
        _ = module.anything


def declared(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The name and the module of each lazy module in a file."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("lazy_module"), [ast.Constant(str(module))])):
                yield name, module
            case _:
                pass


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The name and the module of each import for type checkers."""
    for block in tree.body:
        if not (isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"):
            continue
        for node in block.body:
            if isinstance(node, ast.Import):
                yield from ((each.asname or each.name, each.name) for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def test_lazy_modules_exist_and_are_those_that_type_checkers_see() -> None:
    found = 0
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        lazy = set(declared(tree))
        assert lazy <= set(imported(tree)), file
        assert [module for _, module in lazy if importlib.util.find_spec(module) is None] == [], file
        found += len(lazy)
    assert found
