"""Toolcrib: tools for agents, issued by one gate, with a reason for every decision and a record of what ran.

The names below are the library's surface. They are loaded when first used, so that `import toolcrib` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from toolcrib.version import __version__

if TYPE_CHECKING:
    from toolcrib import bridge
    from toolcrib.errors import (
        ConfigError,
        Conflict,
        Denied,
        InvalidRequest,
        NotFound,
        ToolcribError,
        Unauthenticated,
        Unavailable,
    )
    from toolcrib.host import Crib
    from toolcrib.model.principals import Principal
    from toolcrib.model.problems import Problem
    from toolcrib.model.tools import CallResult, Tool, ToolRef
    from toolcrib.settings import Settings
    from toolcrib.tools import Context, Inject, Provider, ToolServer, tool

_WHERE = {
    "CallResult": "model.tools",
    "ConfigError": "errors",
    "Conflict": "errors",
    "Context": "tools",
    "Crib": "host",
    "Denied": "errors",
    "Inject": "tools",
    "InvalidRequest": "errors",
    "NotFound": "errors",
    "Principal": "model.principals",
    "Problem": "model.problems",
    "Provider": "tools",
    "Settings": "settings",
    "Tool": "model.tools",
    "ToolRef": "model.tools",
    "ToolServer": "tools",
    "ToolcribError": "errors",
    "Unauthenticated": "errors",
    "Unavailable": "errors",
    "tool": "tools",
}

__all__ = [
    "CallResult",
    "ConfigError",
    "Conflict",
    "Context",
    "Crib",
    "Denied",
    "Inject",
    "InvalidRequest",
    "NotFound",
    "Principal",
    "Problem",
    "Provider",
    "Settings",
    "Tool",
    "ToolRef",
    "ToolServer",
    "ToolcribError",
    "Unauthenticated",
    "Unavailable",
    "__version__",
    "bridge",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name == "bridge":
        return importlib.import_module("toolcrib.bridge")
    if name not in _WHERE:
        raise AttributeError(f"module 'toolcrib' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"toolcrib.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
