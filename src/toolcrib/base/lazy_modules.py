"""Modules that are imported when one of their attributes is first used, so that a start pays only for what it uses.

Type checkers and the import contract see a normal import:

    if TYPE_CHECKING:
        import httpx2
    else:
        httpx2 = lazy_module("httpx2")

Annotations of such a module are quoted, and nothing at the top level of the importing module may use it.
"""

import importlib
from types import ModuleType
from typing import cast


class _LazyModule:
    """Reads every attribute from the module, and imports it for the first one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        return getattr(importlib.import_module(self._name), attribute)

    def __repr__(self) -> str:
        return f"<lazy module {self._name!r}>"


def lazy_module(name: str) -> ModuleType:
    """Return the module of this name without importing it yet."""
    return cast("ModuleType", _LazyModule(name))
