"""Holds a home: opens a crib and serves it for the duration of a block.

The order matters. The lock is acquired before the port is bound, so that a second holder can name the first one.
`run.json` is written once requests are answered. On exit, calls in flight get their grace period, then the streams end,
then the crib closes and releases the lock.

Must never listen on an address that `public` refuses.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

from toolcrib.base.home import (
    HolderKind,
    Home,
    RunInfo,
    clear_run,
    kept_from_children,
    restore_token,
    sealing_key,
    write_run,
)
from toolcrib.base.settings import Environment, Settings
from toolcrib.gate.costs import DAYS
from toolcrib.host import Crib
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.model.version import __version__
from toolcrib.web.app import create_app
from toolcrib.web.forwarded import NodeProxy
from toolcrib.web.limits import WireLimits
from toolcrib.web.listen import GRACE, address_of, bind, is_loopback, serving
from toolcrib.web.login import Logins
from toolcrib.web.mcp.budgeted import ContextBudgets
from toolcrib.web.mcp.endpoint import McpEndpoint
from toolcrib.web.mcp.node_routing import NodeRouting
from toolcrib.web.mcp.tasks import McpTasks
from toolcrib.web.public import PublicEntrance, bind_public, check_login, public_address
from toolcrib.web.stopping import Stopping

if sys.platform == "win32":

    def raise_file_limit() -> None:
        """Do nothing: Windows has no such limit."""
else:
    from toolcrib.web.accepting import raise_file_limit

logger = logging.getLogger(__name__)

_LOOK_AT_TOKEN = 1.0
COMMAND_GRACE = 30
"""Seconds that other commands' requests get to finish when the command that holds the home ends."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A held home: its run info, crib and URLs. `login_url` works once."""

    info: RunInfo
    crib: Crib
    login_url: str
    mcp_url: str
    stopping: Stopping


@asynccontextmanager
async def hold(
    settings: Settings,
    *,
    kind: HolderKind,
    port: int | None = None,
    environment: Environment | None = None,
    limits: WireLimits | None = None,
) -> AsyncGenerator[Holding]:
    """Open the crib of this home and listen.

    Raises `bind.refused` for an address that is not safe to listen on, `crib.running` if another process holds the
    home, and `bind.occupied` if the port is in use. A stdio front falls back to any free port, because its address is
    never typed.
    """
    public = public_address(settings) if kind == "serve" else None
    async with AsyncExitStack() as stack:
        # A command starts only what it needs; a long-running holder prepares everything.
        stays = kind != "command"
        if stays:
            raise_file_limit()
        crib = await stack.enter_async_context(Crib(settings, environment=environment, eager=stays, on_time=stays))
        if public is not None:
            check_login(settings, crib)
        outer = _keep_listener(stack, bind_public(public, _port(settings, port))) if public is not None else None
        listener = _keep_listener(stack, _bind(settings, kind, port, is_public=public is not None))
        address = address_of(listener)
        crib.port = listener.getsockname()[1]
        stopping = Stopping(crib.gate, lambda: hurry())
        key = sealing_key(crib.home)
        mcp_key = crib.cluster_secret.key("mcp state") if crib.cluster_secret is not None else key
        mcp = await stack.enter_async_context(_endpoint(crib, mcp_key, stopping))
        shared = crib.store if crib.store.shared and crib.cluster_secret is not None else None
        logins = Logins(address, file=crib.home.browser_sessions, key=key, store=shared)
        crib.policy.on_change(logins.look_at_all)
        crib.policy.on_skipped(mcp.list_changes.distrust)
        app = create_app(crib, mcp, logins, address=address, stopping=stopping)
        grace = COMMAND_GRACE if kind == "command" else GRACE
        hurry = await stack.enter_async_context(serving(app, listener, limits, grace=grace))
        reachable = url = f"http://{address}"
        if public is not None and outer is not None:
            entrance = PublicEntrance(app, crib.principals, public, address, settings.approval_address)
            await stack.enter_async_context(serving(entrance, outer, limits, grace=grace, tls=public.tls))
            databases = str(crib.store.connection_parameters().get("host") or "")
            reachable = public.url(outer.getsockname()[1], databases)
        # From here on the exit order is: calls in flight, run.json, event streams, MCP streams, requests, the crib.
        stack.push_async_exit(mcp)
        stack.callback(crib.feed.close)
        info = RunInfo(os.getpid(), url, kind, __version__, crib.started_at.isoformat())
        stack.enter_context(_publish(crib, info, reachable))
        stack.callback(asyncio.create_task(_keep_token(crib.home)).cancel)
        if stays:
            stack.push_async_callback(stopping.drain, settings.stop_grace)
        yield Holding(info, crib, await logins.link(), f"{reachable}/mcp", stopping)


def _endpoint(crib: Crib, key: bytes, stopping: Stopping) -> McpEndpoint:
    return McpEndpoint(
        crib.gate,
        crib.feed,
        key=key,
        zoo=crib.zoo,
        introduce=crib.introduction,
        enter=crib.placed,
        ready=crib.ready,
        notices=crib.listen,
        ended=crib.pool.end_session,
        in_session=crib.session_tokens.call,
        ended_file=crib.home.ended_sessions,
        stopping=stopping,
        budgets=_budgets(crib),
        routing=NodeRouting(crib.membership.id, NodeProxy(crib.node_client)) if crib.node_client is not None else None,
        tasks=McpTasks(crib.store, crib.membership.id, lambda: stopping.has_begun),
    )


def _keep_listener(stack: AsyncExitStack, listener: socket.socket) -> socket.socket:
    """Close a listener at the end, and keep it from child processes."""
    stack.callback(listener.close)
    stack.enter_context(kept_from_children(listener.fileno()))
    return listener


@contextmanager
def _publish(crib: Crib, info: RunInfo, reachable: str) -> Generator[None]:
    """Publish the address to commands on this machine, and the one that other nodes can reach to them."""
    write_run(crib.home, info)
    crib.membership.announce(reachable)
    try:
        yield
    finally:
        clear_run(crib.home)


def _budgets(crib: Crib) -> ContextBudgets:
    """Return what MCP clients receive by default."""

    async def recent_calls(principal: Principal) -> Mapping[ToolRef, int]:
        return await crib.audit.calls(DAYS, agent=principal.agent, principal=principal.name)

    return ContextBudgets(crib.settings.result_tokens, crib.settings.whole_results, recent_calls)


async def _keep_token(home: Home) -> None:
    """Restore the owner's token file if it is removed: without it, the owner's commands cannot authenticate."""
    has_warned = False
    while True:
        await asyncio.sleep(_LOOK_AT_TOKEN)
        try:
            if restore_token(home):
                logger.warning(
                    "%s was removed or damaged while the crib was running; it was restored.", home.token_file
                )
            has_warned = False
        except (OSError, ConfigError) as error:
            if not has_warned:
                logger.warning("%s cannot be restored: %s", home.token_file, error)
            has_warned = True


def _bind(settings: Settings, kind: HolderKind, port: int | None, *, is_public: bool) -> socket.socket:
    """Bind loopback. A crib with a public address falls back to a free port: only commands here use this one."""
    host = settings.host if is_loopback(settings.host) else "127.0.0.1"
    try:
        return bind(host, _port(settings, port))
    except Unavailable:
        if kind != "stdio" and not is_public:
            raise
        return bind(host, 0)


def _port(settings: Settings, port: int | None) -> int:
    return settings.port if port is None else port
