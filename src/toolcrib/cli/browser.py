"""Opening the console in a person's browser, if this machine has one to show.

Above: `serve`. It must never hold up the crib, nor start a browser that takes over the terminal.
"""

import sys
import webbrowser

import anyio
import anyio.to_thread

from toolcrib.settings import Environment

_OPEN_SECONDS = 10.0


def has_browser(environment: Environment) -> bool:
    """Whether a browser would open in a window, or the person named one."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(environment.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


async def open_console(url: str, environment: Environment) -> bool:
    """Open the address; whether a browser took it."""
    if has_browser(environment):
        with anyio.move_on_after(_OPEN_SECONDS):
            return await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
    return False
