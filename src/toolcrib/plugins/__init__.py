"""Tools from outside: `folder` has the owner's own modules, `packages` what was installed and granted.

`manifest` and `discover` say what an installed package is without running a line of it.
Above: `host` opens both. Below: `tools`, `store`.
"""

from toolcrib.plugins.folder import ToolFolder
from toolcrib.plugins.packages import Plugins

__all__ = ["Plugins", "ToolFolder"]
