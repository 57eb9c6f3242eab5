"""`toolcrib mcp` at a terminal: a live list of all servers, drawn in place.

Adding, trusting and signing in need prompts, so they run outside of the view with the regular commands; then it
returns. When the terminal is resized, everything is redrawn.

Must never start or confirm anything without a key press.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolcrib.cli import output
from toolcrib.cli.asking import ask_line
from toolcrib.cli.chat.input import Keys, key_presses
from toolcrib.cli.crib import keep_running
from toolcrib.cli.loop import run
from toolcrib.cli.mcp import add as mcp_add
from toolcrib.cli.mcp import connection as mcp_link
from toolcrib.cli.mcp import trust as mcp_trust
from toolcrib.cli.mcp.view import Do, ServersView, draw, press
from toolcrib.cli.options import Invocation
from toolcrib.model.errors import NotFound, ToolcribError
from toolcrib.model.json import Json, is_object
from toolcrib.web.api_client.api_client import ApiClient

_HIDE, _SHOW, _CLEAR = "\x1b[?25l", "\x1b[?25h", "\x1b[H\x1b[J"
_USUAL: Final = os.terminal_size((80, 24))
_NEWS: Final = frozenset({"server_changed", "config_changed", "catalog_changed"})
_OUTSIDE: Final = frozenset({"trust", "sign_in", "add"})


@dataclass(frozen=True, slots=True)
class _Wish:
    """An action to run outside of the view."""

    do: Do
    alias: str


def open_view(invocation: Invocation) -> None:
    """Run the view until the user leaves."""
    live = _Live()
    while True:
        live.wish = None
        run(lambda: keep_running(invocation.settings, live.run))
        if live.is_interrupted:
            raise KeyboardInterrupt
        if live.wish is None:
            return
        _fulfil(invocation, live.wish)


def _fulfil(invocation: Invocation, wish: _Wish) -> None:
    """Run the action with its regular command; print failures and return to the view."""
    try:
        if wish.do == "add":
            mcp_add.ask_and_add(invocation)
        elif wish.do == "trust":
            mcp_trust.agree(invocation, wish.alias)
        else:
            mcp_link.sign_in(invocation, wish.alias)
    except ToolcribError as error:
        output.failure(error, as_json=False)
    ask_line("Press Enter to continue")


class _Live:
    """The view on one terminal. Call `run` again after the crib was lost."""

    def __init__(self) -> None:
        self.wish: _Wish | None = None
        self.is_interrupted = False
        self._lost: ToolcribError | None = None
        self._view = ServersView()
        self._drawn = 0
        self._client: ApiClient
        self._tasks: TaskGroup

    async def run(self, client: ApiClient) -> None:
        """Display and handle keys until the user leaves or requests an action outside."""
        self._client, self._drawn, self._lost = client, 0, None
        keys = Keys(sys.stdin.fileno(), output.draw)
        with keys.taken():
            output.draw(_HIDE)
            try:
                await self._look()
                async with anyio.create_task_group() as self._tasks:
                    self._start(self._follow)
                    self._start(self._follow_size)
                    await self._obey(keys)
                    self._tasks.cancel_scope.cancel()
            finally:
                output.draw(f"{_SHOW}\n")
        if self._lost is not None:
            raise self._lost

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work concurrently with key handling; the view ends if the crib is lost."""

        async def done() -> None:
            try:
                await work()
            except ToolcribError as error:
                self._lost = error
                self._tasks.cancel_scope.cancel()

        self._tasks.start_soon(done)

    async def _obey(self, keys: Keys) -> None:
        while data := await keys.read():
            for key in key_presses(data):
                after = press(self._view, key)
                if isinstance(after, ServersView):
                    is_opened = after.opened is not None and self._view.opened is None
                    self._show(after)
                    if is_opened:
                        self._start(self._open)
                elif after in ("leave", "interrupt"):
                    self.is_interrupted = after == "interrupt"
                    return
                elif after in _OUTSIDE:
                    self.wish = _Wish(after, self._alias)
                    return
                else:
                    self._start(partial(self._do, after))

    @property
    def _alias(self) -> str:
        return str(self._view.chosen["alias"]) if self._view.chosen is not None else ""

    async def _follow(self) -> None:
        async for event in self._client.events():
            if event.kind in _NEWS:
                await self._look()

    async def _follow_size(self) -> None:
        """Redraw everything when the size changes, because the terminal may have wrapped the rows."""
        with anyio.open_signal_receiver(signal.SIGWINCH) as resized:
            async for _ in resized:
                output.draw(_CLEAR)
                self._drawn = 0
                self._show(self._view)

    async def _look(self) -> None:
        servers = await self._client.servers()
        self._show(self._view.having(servers))
        if self._view.opened is not None:
            await self._open()

    async def _open(self) -> None:
        """Fetch the details of the opened server."""
        try:
            server = await self._client.server(self._alias)
        except NotFound:
            server = None
        if self._view.opened is not None:
            self._show(replace(self._view, opened=server))

    async def _do(self, wanted: Do) -> None:
        client, chosen, alias = self._client, self._view.chosen or {}, self._alias
        enabled = chosen.get("enabled") is not True
        doing: dict[str, tuple[str, Callable[[], Awaitable[Json]]]] = {
            "test": (f"Connecting to {alias}…", lambda: client.test_server(alias)),
            "test_all": ("Connecting to all servers…", client.test_servers),
            "reload": (f"Reconnecting {alias}…", lambda: client.reload_server(alias)),
            "reload_all": ("Reloading all files…", client.reload_servers),
            "switch": (
                f"Turning {alias} {'on' if enabled else 'off'}…",
                lambda: client.switch_server(alias, enabled),
            ),
            "sign_out": (f"Signing out of {alias}…", lambda: client.sign_out(alias)),
            "remove": (f"Removing {alias}…", lambda: client.remove_server(alias)),
        }
        words, work = doing[wanted]
        self._show(replace(self._view, busy=words, message="", asked=None))
        try:
            answer = await work()
            undo = f"Removed {alias}. Undo: toolcrib mcp remove --undo"
            message = undo if wanted == "remove" else _result_text(answer)
        except ToolcribError as error:
            message = f"{error.message} {error.hint or ''}"
        self._show(replace(self._view, busy="", message=message))
        await self._look()

    def _show(self, view: ServersView) -> None:
        """Redraw in place, in one write."""
        self._view = view
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            size = _USUAL
        rows = draw(view, size.columns or _USUAL.columns, size.lines or _USUAL.lines)
        rows += [""] * (self._drawn - len(rows))
        up = f"\r\x1b[{self._drawn - 1}A" if self._drawn > 1 else "\r"
        self._drawn = len(rows)
        output.draw(up + "\n".join(f"\x1b[K{row}" for row in rows))


def _result_text(answer: Json) -> str:
    """Return the result of an action in one sentence."""
    if is_object(answer) and is_object(change := answer.get("change")):
        return f"Changed {change['file']}." if change["changed"] else "Nothing to change."
    return f"{answer['name']}: {answer['sentence']}" if is_object(answer) and "sentence" in answer else "Done."
