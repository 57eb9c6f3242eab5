"""`toolcrib stdio`: serves one MCP client on standard input and output until it disconnects or a signal arrives.

Separate from the other commands, because a front that joins a running crib imports as little as possible.

Must never print to standard output: it belongs to the protocol.
"""

import asyncio
import signal
import sys
from typing import NoReturn

from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings, load_settings
from toolcrib.cli import output
from toolcrib.cli.logs import start_logging
from toolcrib.cli.loop import run
from toolcrib.model.errors import ToolcribError
from toolcrib.web.stdio import run_stdio

_SIGNALS = (
    (signal.SIGINT, signal.SIGTERM) if sys.platform == "win32" else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
)


def run_front(home: str | None, agent: str | None, token: str | None, *, as_json: bool) -> NoReturn:
    """Run a front as the whole program, and exit with its code."""
    output.prepare_streams()
    try:
        loaded = load_settings(Environment.current(), {"home": home})
        output.warn_all([problem.to_json() for problem in loaded.problems])
        code = serve_client(loaded.settings, agent, token)
    except ToolcribError as error:
        output.failure(error, as_json=as_json)
        code = error.exit_code
    except Exception as error:  # noqa: BLE001 boundary: no unexpected failure reaches a person as a trace
        from toolcrib.cli.main import unexpected

        failure = unexpected(error)
        output.failure(failure, as_json=as_json)
        code = failure.exit_code
    output.leave(code)


def serve_client(settings: Settings, agent: str | None, token: str | None = None) -> int:
    """Serve one client; return 0 when it disconnected, 128 plus the signal number if one arrived."""
    home = prepare_home(settings.home)
    start_logging(home, settings.log_level, [owner_token(home)], talk=True)
    return run(lambda: _until_signalled(settings, agent, token))


async def _until_signalled(settings: Settings, agent: str | None, token: str | None) -> int:
    """Run the front until a signal cancels it; later signals get the default handlers."""
    work = asyncio.create_task(run_stdio(settings, agent, token))
    caught: list[int] = []
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        caught.append(number)
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
        work.cancel()

    if sys.platform != "win32":  # on Windows, Ctrl-C interrupts the loop
        for each in _SIGNALS:
            loop.add_signal_handler(each, end, each)
    await asyncio.wait([work])
    if work.cancelled():
        return 128 + caught[0] if caught else 1
    work.result()
    return 128 + caught[0] if caught else 0
