"""Toolcrib: tools for agents behind one gate, with a reason for every decision and a record of every call.

The names below are the public API. They are loaded on first use, so that `import toolcrib` is fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from toolcrib.model.version import __version__

if TYPE_CHECKING:
    from toolcrib import bridge
    from toolcrib.base.settings import Settings
    from toolcrib.host import Crib
    from toolcrib.model.errors import (
        ConfigError,
        Conflict,
        Denied,
        InvalidRequest,
        NotFound,
        ToolcribError,
        Unauthenticated,
        Unavailable,
    )
    from toolcrib.model.principals import Principal
    from toolcrib.model.problems import Problem
    from toolcrib.model.tools import CallResult, Tool, ToolRef
    from toolcrib.tools import Context, Inject, Provider, ToolServer, tool

_WHERE = {
    "CallResult": "model.tools",
    "ConfigError": "model.errors",
    "Conflict": "model.errors",
    "Context": "tools",
    "Crib": "host",
    "Denied": "model.errors",
    "Inject": "tools",
    "InvalidRequest": "model.errors",
    "NotFound": "model.errors",
    "Principal": "model.principals",
    "Problem": "model.problems",
    "Provider": "tools",
    "Settings": "base.settings",
    "Tool": "model.tools",
    "ToolRef": "model.tools",
    "ToolServer": "tools",
    "ToolcribError": "model.errors",
    "Unauthenticated": "model.errors",
    "Unavailable": "model.errors",
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
