"""Connects a command to the running crib, or runs one for the duration of the command.

Must never open the store itself: only the process that holds the lock does.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio

from toolcrib.base.home import (
    HolderKind,
    Home,
    HomeLock,
    RunInfo,
    find_holder,
    owner_token,
    prepare_home,
)
from toolcrib.base.settings import Settings
from toolcrib.cli import output
from toolcrib.cli.logs import start_logging
from toolcrib.cli.options import working_directory
from toolcrib.cli.signals import until_signalled
from toolcrib.cli.suggestions import with_suggestion
from toolcrib.model.errors import NotFound, ToolcribError, Unavailable
from toolcrib.model.version import __version__
from toolcrib.web.api_client.api_client import ApiClient

Answer = TypeVar("Answer")

RESPONSE_SECONDS = 10.0
"""Seconds to wait for a crib that stops or does not respond before it is reported as stuck."""
START_SECONDS = 30.0
"""Seconds to wait for a process that holds the home but has no address yet, because it is starting."""
_NOTE_SECONDS = 3.0
"""Seconds after which the wait is announced."""
_HEALTH_SECONDS = 2.0
_POLL_SECONDS = 0.1
_RETRIES = 2
MOST_LOSSES = 5
"""Consecutive losses of the crib after which a long-running command exits."""
_STEADY_SECONDS = 30.0
"""Seconds after which a connection counts as successful."""


async def ask(settings: Settings, work: Callable[[ApiClient], Awaitable[Answer]]) -> Answer:
    """Run `work` with a client of the crib. A signal cancels the work, then closes the crib if this process holds it.

    The holder may exit between discovery and the first request. `crib.unreachable` means that the request never
    arrived, so the work is retried with the new holder.
    """
    for _ in range(_RETRIES):
        try:
            return await _ask_once(settings, work)
        except Unavailable as error:
            if error.code not in ("crib.unreachable", "crib.stopping"):
                raise
    return await _ask_once(settings, work)


async def _ask_once(settings: Settings, work: Callable[[ApiClient], Awaitable[Answer]]) -> Answer:
    async with reach(settings) as client, until_signalled():
        return await _suggesting(client, work)


async def _suggesting(client: ApiClient, work: Callable[[ApiClient], Awaitable[Answer]]) -> Answer:
    """Run `work`; an error about an unknown name suggests similar ones."""
    try:
        return await work(client)
    except NotFound as error:
        raise await with_suggestion(client, error) from error


async def keep_running(settings: Settings, work: Callable[[ApiClient], Awaitable[None]]) -> None:
    """Run work that outlives a crib: when the connection is lost, it is restarted with the next crib.

    A crib that exited may be restarting, so this waits before the process holds the home itself.
    """
    losses = 0
    while True:
        begun = anyio.current_time()
        try:
            async with reach(settings, kind="chat") as client, until_signalled():
                return await _suggesting(client, work)
        except Unavailable as error:
            losses = 1 if anyio.current_time() - begun > _STEADY_SECONDS else losses + 1
            if not is_lost(error) or losses > MOST_LOSSES:
                raise
            output.note("Connection to the crib lost. Reconnecting; no messages are lost.")
        async with until_signalled():
            await _came_back(prepare_home(settings.home))


def is_lost(error: ToolcribError) -> bool:
    """Return whether the error means that the crib is gone, not only that a request failed."""
    return error.code in ("crib.closed", "crib.stopping", "crib.unreachable")


def is_own(settings: Settings) -> bool:
    """Return whether the crib runs in this process, and ends with it."""
    holder = find_holder(prepare_home(settings.home))
    return holder is None or holder.pid == os.getpid()


async def _came_back(home: Home) -> None:
    deadline = anyio.current_time() + RESPONSE_SECONDS
    while anyio.current_time() < deadline:
        holder = find_holder(home)
        if holder and await answers(holder, home):
            return
        await anyio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def reach(settings: Settings, *, kind: HolderKind = "command") -> AsyncGenerator[ApiClient]:
    """Yield a client of the crib that holds the home, or of one that this process runs meanwhile, as `kind`."""
    home = prepare_home(settings.home)
    start_logging(home, settings.log_level, [owner_token(home)])
    async with AsyncExitStack() as stack:
        url = await _address(settings, home, stack, kind)
        client = ApiClient(url, owner_token(home), source="cli", cwd=working_directory())
        yield await stack.enter_async_context(client)


async def _address(settings: Settings, home: Home, stack: AsyncExitStack, kind: HolderKind) -> str:
    lock = HomeLock(home)
    begun = anyio.current_time()
    deadline, is_starting, is_noted = begun + START_SECONDS, True, False
    while (now := anyio.current_time()) < deadline:
        holder = find_holder(home)
        if holder and await answers(holder, home):
            _note_version(holder)
            return holder.url
        if holder and is_starting:
            deadline, is_starting = now + RESPONSE_SECONDS, False
        if lock.try_acquire():
            lock.release()
            # Not inside a cancel scope: the context entered here must stay open until the command is done.
            if url := await _hold(settings, stack, kind):
                return url
        if now - begun > _NOTE_SECONDS and not is_noted:
            output.note(f"Waiting for {_process_of(lock)}, which holds {home.root}.")
            is_noted = True
        await anyio.sleep(_POLL_SECONDS)
    name = _process_of(lock)
    raise Unavailable("home.busy", f"{name[0].upper()}{name[1:]} holds {home.root} and does not respond.")


def _process_of(lock: HomeLock) -> str:
    pid = lock.holder_pid()
    return f"process {pid}" if pid else "another process"


async def _hold(settings: Settings, stack: AsyncExitStack, kind: HolderKind) -> str | None:
    """Hold the home for this command; return None if another process was first."""
    from toolcrib.web.run import hold

    try:
        holding = await stack.enter_async_context(hold(settings, kind=kind, port=0))
    except Unavailable as error:
        if error.code != "crib.running":
            raise
        return None
    return holding.info.url


async def answers(holder: RunInfo, home: Home) -> bool:
    """Return whether the holder responds to a health check."""
    with anyio.move_on_after(_HEALTH_SECONDS):
        async with ApiClient(holder.url, owner_token(home)) as client:
            try:
                await client.health()
            except ToolcribError as error:
                return error.code == "node.lost"  # without its database, it still says so itself
            return True
    return False


def _note_version(holder: RunInfo) -> None:
    if holder.version != __version__:
        output.note(f"note: The running crib is version {holder.version}; this command is version {__version__}.")
