"""Python functions as tools: `@tool` reads them, providers fill what is injected, a source offers and runs them.

Above: `builtin` and authors define tools, `host` loads and registers them. Below: `model`.
"""

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
