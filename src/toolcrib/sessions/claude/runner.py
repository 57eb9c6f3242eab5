"""Conversations with Claude Code: one process each, one reader of all it says, one turn at a time.

A turn begins with its prompt and is over when its result is there, Claude Code says that it is idle, and every call it
made has ended. If the process dies first, that is the turn's end, with the last words of its standard error.

Above: `live` sessions, through the port. Below: the SDK's client and the other modules here. Of the SDK's private parts
it uses one: the request for what a resumed conversation has cost so far. It must never leave a process behind.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    CLIJSONDecodeError,
    Message,
    ProcessError,
    ResultMessage,
    SystemMessage,
)

from toolcrib.connect.stderr import StderrRing
from toolcrib.errors import Unavailable
from toolcrib.model.json import Json, is_object
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import Failure, ServerHealth, TurnEnd
from toolcrib.sessions.claude.calls import Calls
from toolcrib.sessions.claude.endings import Meter, ending, error_of, failure, together
from toolcrib.sessions.claude.hooks import Hooks
from toolcrib.sessions.claude.mapping import Emission, Mapper
from toolcrib.sessions.claude.options import Setting, Start, build_options, permission_mode
from toolcrib.sessions.claude.program import cli_variables, find_cli, has_kept, write_wrapper
from toolcrib.sessions.claude.servers import build_servers, tool_name
from toolcrib.sessions.runner import Brief, Conversation, Desk

logger = logging.getLogger(__name__)

T = TypeVar("T")

START: Final = 60.0
"""Seconds in which Claude Code is ready, also where many start at once."""
REQUEST: Final = 5.0
"""Seconds in which it answers what is asked of it beside a prompt."""
IDLE: Final = 5.0
"""Seconds after a result in which it says that it is idle."""
_SHOWN_LINES: Final = 5
_STDERR_LIMIT: Final = 64 * 1024
_LAST: Final = (ProcessError, CLIConnectionError, CLIJSONDecodeError)
"""Errors after which nothing more can be read; others are about one message, of a newer Claude Code, say."""
_CUT_SHORT: Final = "The call was cut short; what it did until then is not known."


class ClaudeRunner:
    """The runner `claude`."""

    name = "claude"

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """`environment` are the variables of the crib; `folder` is private, for the wrapper and long prompts."""
        self._environment = environment
        self._folder = folder

    def options(self, brief: Brief, desk: Desk) -> ClaudeAgentOptions:
        """Options for a loop of somebody else's: the same tools, decided in the same way; events are theirs to read."""
        calls = Calls(desk)
        hooks = Hooks({tool_name(offered) for offered in brief.tools}, desk, calls)
        servers = build_servers(brief.tools, desk, calls)
        return build_options(brief, self._begun(brief), self._setting(), servers, hooks)

    @asynccontextmanager
    async def open(self, brief: Brief, desk: Desk) -> AsyncGenerator[Conversation]:
        """Start Claude Code, and end it with the block."""
        stderr = StderrRing(self._masked, _STDERR_LIMIT)
        offered = {tool_name(each): each for each in brief.tools}
        mapper = Mapper(offered)
        calls = Calls(desk, mapper)
        hooks = Hooks(offered, desk, calls)
        start = await anyio.to_thread.run_sync(self._begun, brief)
        setting = await anyio.to_thread.run_sync(self._setting)
        options = build_options(
            brief,
            start,
            setting,
            build_servers(brief.tools, desk, calls),
            hooks,
            lambda line: stderr.add(f"{line}\n".encode(errors="replace")),
        )
        is_kept = partial(has_kept, self._environment, start.runtime)
        conversation = _Conversation(ClaudeSDKClient(options), start, is_kept, desk, mapper, calls, hooks, stderr)
        await conversation.connect()
        pump = asyncio.create_task(conversation.pump(), name=f"claude-{brief.session}")
        try:
            await conversation.read_meter()
            yield conversation
        finally:
            with anyio.CancelScope(shield=True):
                await conversation.close()
                pump.cancel()
                await asyncio.wait([pump])

    def _begun(self, brief: Brief) -> Start:
        return Start.of(brief, is_kept=brief.resume is not None and has_kept(self._environment, brief.resume))

    def _setting(self) -> Setting:
        wrapper = write_wrapper(self._folder, find_cli(self._environment))
        return Setting(wrapper, cli_variables(self._environment), self._folder)

    def _masked(self, line: str) -> str:
        for name, value in self._environment.items():
            if len(value) >= 8 and name.endswith(("KEY", "TOKEN", "SECRET", "PASSWORD", "HEADERS")):
                line = line.replace(value, "***")
        return line


class _Conversation:
    """One process of Claude Code."""

    def __init__(
        self,
        client: ClaudeSDKClient,
        start: Start,
        is_kept: Callable[[], bool],
        desk: Desk,
        mapper: Mapper,
        calls: Calls,
        hooks: Hooks,
        stderr: StderrRing,
    ) -> None:
        self._client = client
        self._start = start
        self._is_kept = is_kept
        self._desk = desk
        self._mapper = mapper
        self._calls = calls
        self._hooks = hooks
        self._stderr = stderr
        self._meter = Meter()
        self._has_spoken = False
        self._is_answering = False
        self._is_idle = True
        self._error: str | None = None
        self._ends: list[TurnEnd] = []
        self._death: Failure | None = None
        self._is_given_up = False
        self._news = anyio.Event()

    @property
    def runtime(self) -> str | None:
        """Its id; that of a copy counts once it is written, lest the copy be lost with the process."""
        return self._start.runtime if not self._start.is_fork or (self._has_spoken and self._is_kept()) else None

    async def connect(self) -> None:
        """Start the process. Raises `runner.start`."""
        try:
            with anyio.fail_after(START):
                await self._client.connect()
        except TimeoutError:
            raise Unavailable("runner.start", f"Claude Code was not ready within {START:g} s.") from None
        except Exception as error:  # noqa: BLE001 boundary: the SDK has no common class for what goes wrong here
            logger.info("Claude Code could not be started: %s", error)
            raise Unavailable("runner.start", self._last_words("Claude Code could not be started.", error)) from None

    async def pump(self) -> None:
        """Read all that Claude Code says, until it ends."""
        while self._death is None:
            try:
                async for message in self._client.receive_messages():
                    self._take(message)
                    self._tell_news()
                self._die(None)
            except Exception as error:  # boundary: nobody else hears what the SDK raises here
                if isinstance(error, ClaudeSDKError) and not isinstance(error, _LAST):
                    logger.exception("Claude Code said something that is not understood.")
                else:
                    self._die(error)

    async def read_meter(self) -> None:
        """Claude Code goes on counting where a resumed conversation was, and tells that on request only."""
        if self._start.resume is None:
            return
        query: Any = self._client._query  # pyright: ignore[reportPrivateUsage]
        with anyio.move_on_after(REQUEST):
            usage: Json = await self._asked(query._send_control_request({"subtype": "get_usage"}))
            session: Json = usage.get("session") if is_object(usage) else None
            if is_object(session):
                self._meter.start_at(session.get("total_cost_usd"), session.get("model_usage"))

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt."""
        self._ends.clear()
        self._error = None
        self._is_idle, self._is_answering = False, True
        try:
            await self._client.query(text)
        except ClaudeSDKError as error:
            with anyio.move_on_after(REQUEST):  # what the pump will have to say of it is more
                while self._death is None:
                    await self._news.wait()
            if self._death is None:
                self._die(error)
        while self._death is None and not self._ends:
            await self._news.wait()
        with anyio.move_on_after(IDLE):
            while self._death is None and not self._is_idle:
                await self._news.wait()
        await self._settle()
        self._is_answering = False
        if not self._ends and self._is_given_up:
            return TurnEnd("interrupted", self.runtime, is_alive=False)
        if not self._ends:
            return TurnEnd("failed", self.runtime, failure=self._death, is_alive=False)
        return together(self._ends, is_alive=self._death is None)

    async def interrupt(self) -> None:
        """End the running turn soon; a process that does not listen is ended with it."""
        if not self._is_answering or self._death is not None:
            return
        with anyio.move_on_after(REQUEST) as patience:
            await self._asked(self._client.interrupt())
        if patience.cancelled_caught:
            self._is_given_up = True
            await self._client.disconnect()

    async def set_mode(self, mode: Mode) -> None:
        """From now on work in this mode."""
        with anyio.move_on_after(REQUEST):
            await self._asked(self._client.set_permission_mode(permission_mode(mode)))

    async def set_model(self, model: str | None) -> None:
        """From now on think with this model."""
        with anyio.move_on_after(REQUEST):
            await self._asked(self._client.set_model(model))

    async def servers(self) -> tuple[ServerHealth, ...]:
        """How Claude Code sees the servers."""
        with anyio.move_on_after(REQUEST):
            status = await self._asked(self._client.get_mcp_status())
            listed = status["mcpServers"] if status is not None else []
            return tuple(ServerHealth(each["name"], each["status"], len(each.get("tools", ()))) for each in listed)
        return ()

    async def close(self) -> None:
        """End the process. One in the middle of a turn is told first, so that it ends the commands it runs."""
        await self.interrupt()
        await self._settle()
        await self._client.disconnect()

    async def _settle(self) -> None:
        """Nothing of the turn goes on after this, and nothing of it is left open."""
        await self._calls.settle()
        await self._hooks.settle()
        self._emit(self._mapper.finish(_CUT_SHORT))

    async def _asked(self, request: Awaitable[T]) -> T | None:
        """The answer to a request beside the turn; None if it was refused or the process is gone."""
        try:
            return await request
        except Exception as error:  # noqa: BLE001 boundary: the SDK raises its bare class for whatever Claude Code refuses
            logger.info("Claude Code did not do what it was asked: %s", error)
            return None

    def _take(self, message: Message) -> None:
        if isinstance(message, ResultMessage):
            self._ends.append(ending(message, self._error, self._meter))
        elif isinstance(message, SystemMessage) and message.subtype == "session_state_changed":
            self._is_idle = message.data.get("state") == "idle"
        elif isinstance(message, AssistantMessage):
            self._has_spoken = True
            self._error = error_of(message)
        try:
            self._emit(self._mapper.take(message))
        except Exception:  # boundary: one message of a shape nobody expected is one message
            logger.exception("A message of Claude Code could not be told.")
        self._calls.take()

    def _die(self, error: Exception | None) -> None:
        self._death = failure("runner.died", self._last_words(_exit_in_words(error), error))
        self._tell_news()

    def _emit(self, emissions: Iterable[Emission]) -> None:
        for kind, data, parent in emissions:
            self._desk.emit(kind, data, parent)

    def _tell_news(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    def _last_words(self, brief: str, error: Exception | None = None) -> str:
        """What happened, with the evidence there is: the last lines of its standard error, else what the SDK says."""
        said = "\n".join(self._stderr.tail(_SHOWN_LINES))
        if said:
            return f"{brief} Its last words on standard error:\n{said}"
        return brief if error is None or isinstance(error, ProcessError) else f"{brief} {error}"


def _exit_in_words(error: Exception | None) -> str:
    code = error.exit_code if isinstance(error, ProcessError) else None
    if code is None:
        return "Claude Code ended."
    if code < 0:
        name = next((each.name for each in signal.Signals if each == -code), f"number {-code}")
        return f"Claude Code was ended by signal {name}."
    return f"Claude Code ended with code {code}."
