"""The crib a command talks to: the one that runs, else one of its own for as long as the command takes.

Above: the commands. Below: `home` says who holds it, `client` talks, `server.run` holds. It must never open the store
itself: whoever holds the lock is the only one that does.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio

from toolcrib.cli import output
from toolcrib.cli.logs import start_logging
from toolcrib.cli.options import working_directory
from toolcrib.cli.signals import until_signalled
from toolcrib.client import Client
from toolcrib.errors import ToolcribError, Unavailable
from toolcrib.home import HolderKind, Home, HomeLock, RunInfo, find_holder, owner_token, prepare_home
from toolcrib.settings import Settings
from toolcrib.version import __version__

Answer = TypeVar("Answer")

PATIENCE = 10.0
"""Seconds to wait for a holder that is starting or ending before it is called stuck."""
_HEALTH_SECONDS = 2.0
_POLL_SECONDS = 0.1
_RETRIES = 2
MOST_LOSSES = 5
"""How often in a row a long command may lose the crib before it gives up."""
_STEADY_SECONDS = 30.0
"""Seconds after which a connection counts as one that worked."""


async def ask(settings: Settings, work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Do some work with the crib. A signal ends the work, and then in good order the crib that this command holds.

    The holder may end between being found and being asked. `crib.unreachable` means that a request never arrived, so
    the work, whose first request that was, begins again with whoever holds the home then.
    """
    for _ in range(_RETRIES):
        try:
            return await _ask_once(settings, work)
        except Unavailable as error:
            if error.code != "crib.unreachable":
                raise
    return await _ask_once(settings, work)


async def _ask_once(settings: Settings, work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    async with reach(settings) as client, until_signalled():
        return await work(client)


async def kept_up(settings: Settings, work: Callable[[Client], Awaitable[None]]) -> None:
    """Do some work that outlives a crib: when it is lost, the work is begun again with the one that is there then.

    A crib that ended may be on its way back, so there is some patience before this process holds the home itself.
    """
    losses = 0
    while True:
        begun = anyio.current_time()
        try:
            async with reach(settings, kind="chat") as client, until_signalled():
                return await work(client)
        except Unavailable as error:
            losses = 1 if anyio.current_time() - begun > _STEADY_SECONDS else losses + 1
            if not is_lost(error) or losses > MOST_LOSSES:
                raise
            output.note("The crib has ended. Looking for it again; nothing that was said is lost.")
        async with until_signalled():
            await _came_back(prepare_home(settings.home))


def is_lost(error: ToolcribError) -> bool:
    """Whether the crib is gone, and not only what was asked of it."""
    return error.code in ("crib.closed", "crib.unreachable")


def is_own(settings: Settings) -> bool:
    """Whether the crib that was reached is this process itself, and ends with it."""
    holder = find_holder(prepare_home(settings.home))
    return holder is None or holder.pid == os.getpid()


async def _came_back(home: Home) -> None:
    patience = anyio.current_time() + PATIENCE
    while anyio.current_time() < patience:
        holder = find_holder(home)
        if holder and await answers(holder, home):
            return
        await anyio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def reach(settings: Settings, *, kind: HolderKind = "command") -> AsyncGenerator[Client]:
    """A client of the crib that holds the home, or of one that this process holds meanwhile, as `kind`."""
    home = prepare_home(settings.home)
    start_logging(home, settings.log_level, [owner_token(home)])
    async with AsyncExitStack() as stack:
        url = await _address(settings, home, stack, kind)
        client = Client(url, owner_token(home), source="cli", cwd=working_directory())
        yield await stack.enter_async_context(client)


async def _address(settings: Settings, home: Home, stack: AsyncExitStack, kind: HolderKind) -> str:
    lock = HomeLock(home)
    patience = anyio.current_time() + PATIENCE
    while anyio.current_time() < patience:
        holder = find_holder(home)
        if holder and await answers(holder, home):
            _note_version(holder)
            return holder.url
        if lock.try_acquire():
            lock.release()
            # Under no cancel scope: what is entered here is left only when the command is done.
            if url := await _hold(settings, stack, kind):
                return url
        await anyio.sleep(_POLL_SECONDS)
    who = f"Process {lock.holder_pid()}" if lock.holder_pid() else "Another process"
    raise Unavailable("home.busy", f"{who} holds {home.root} and does not answer.")


async def _hold(settings: Settings, stack: AsyncExitStack, kind: HolderKind) -> str | None:
    """Hold the home for this command; None if somebody else was first."""
    from toolcrib.server.run import hold

    try:
        holding = await stack.enter_async_context(hold(settings, kind=kind, port=0))
    except Unavailable as error:
        if error.code != "crib.running":
            raise
        return None
    return holding.info.url


async def answers(holder: RunInfo, home: Home) -> bool:
    """Whether the holder is there and well."""
    with anyio.move_on_after(_HEALTH_SECONDS):
        async with Client(holder.url, owner_token(home)) as client:
            try:
                await client.health()
            except ToolcribError:
                return False
            return True
    return False


def _note_version(holder: RunInfo) -> None:
    if holder.version != __version__:
        output.note(f"note: the running crib is Toolcrib {holder.version}, this command is {__version__}.")
