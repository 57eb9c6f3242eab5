"""Opens the console in a browser, if the machine has a display.

Must never delay the crib, nor start a browser that takes over the terminal.
"""

import sys
import webbrowser

import anyio
import anyio.to_thread

from toolcrib.base.settings import Environment

_OPEN_SECONDS = 10.0


def has_browser(environment: Environment) -> bool:
    """Return whether a graphical browser is likely, or one is configured."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(environment.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


async def open_console(url: str, environment: Environment) -> bool:
    """Open the URL; return whether a browser accepted it."""
    if has_browser(environment):
        with anyio.move_on_after(_OPEN_SECONDS):
            return await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
    return False
