"""Holding a home: one crib, open and listening, for as long as a block runs.

The order matters at both ends. The lock comes before the port, so that a second holder learns who the first one is;
`run.json` is written when requests are answered; at the end the streams end first, then requests under way get their
time, then the crib closes and frees the lock.

Above: `serve`, `stdio` and commands without a running crib. Below: `host`, `app`, `listen`. It must never listen on
anything but loopback.
"""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from toolcrib.errors import Unavailable
from toolcrib.home import HolderKind, RunInfo, clear_run, kept_from_children, sealing_key, write_run
from toolcrib.host import Crib
from toolcrib.server.app import create_app
from toolcrib.server.limits import Limits
from toolcrib.server.listen import GRACE, address_of, bind, check_loopback, serving
from toolcrib.server.login import Logins
from toolcrib.server.mcp.endpoint import McpEndpoint
from toolcrib.settings import Environment, Settings
from toolcrib.version import __version__

COMMAND_GRACE = 30
"""Seconds that requests of other commands get to finish when the command ends that held the home for all of them."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A held home: who holds it, the crib itself, and the ways in. `login_url` works once."""

    info: RunInfo
    crib: Crib
    login_url: str
    mcp_url: str


@asynccontextmanager
async def hold(
    settings: Settings,
    *,
    kind: HolderKind,
    port: int | None = None,
    environment: Environment | None = None,
    limits: Limits | None = None,
) -> AsyncGenerator[Holding]:
    """Open the crib of this home and listen.

    Raises `bind.refused` for an address that is not loopback, `crib.running` if another process holds the home, and
    `bind.occupied` if the port is in use; a stdio front then takes any other port, since nobody types its address.
    """
    check_loopback(settings.host)
    async with AsyncExitStack() as stack:
        # A command does what it was asked for and no more; who stays gets everything ready.
        stays = kind != "command"
        crib = await stack.enter_async_context(Crib(settings, environment=environment, eager=stays, on_time=stays))
        listener = _bind(settings, kind, port)
        stack.callback(listener.close)
        stack.enter_context(kept_from_children(listener.fileno()))
        address = address_of(listener)
        crib.port = listener.getsockname()[1]
        mcp = await stack.enter_async_context(
            McpEndpoint(
                crib.gate,
                crib.feed,
                key=sealing_key(crib.home),
                zoo=crib.zoo,
                introduce=crib.introduction,
                enter=crib.placed,
                ready=crib.ready,
                notices=crib.listen,
                ended=crib.pool.end_session,
                in_session=crib.session_tokens.call,
            )
        )
        logins = Logins(address)
        app = create_app(crib, mcp, logins, address=address)
        grace = COMMAND_GRACE if kind == "command" else GRACE
        await stack.enter_async_context(serving(app, listener, limits, grace=grace))
        # From here on the way out is: run.json, event streams, MCP streams, requests under way, the crib.
        stack.push_async_exit(mcp)
        stack.callback(crib.feed.close)
        info = RunInfo(os.getpid(), f"http://{address}", kind, __version__, crib.started_at.isoformat())
        write_run(crib.home, info)
        stack.callback(clear_run, crib.home)
        yield Holding(info, crib, logins.link(), f"{info.url}/mcp")


def _bind(settings: Settings, kind: HolderKind, port: int | None) -> socket.socket:
    try:
        return bind(settings.host, settings.port if port is None else port)
    except Unavailable:
        if kind != "stdio":
            raise
        return bind(settings.host, 0)
