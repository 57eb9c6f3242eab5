"""Python functions as tools: `@tool` defines them, providers fill injected parameters, a source lists and runs them."""

from toolcrib.tools.define import ToolServer, tool
from toolcrib.tools.inject import Context, Provider
from toolcrib.tools.load import LoadedFolder, load_folder, module_server
from toolcrib.tools.signature import Inject
from toolcrib.tools.source import PythonSource

__all__ = [
    "Context",
    "Inject",
    "LoadedFolder",
    "Provider",
    "PythonSource",
    "ToolServer",
    "load_folder",
    "module_server",
    "tool",
]
