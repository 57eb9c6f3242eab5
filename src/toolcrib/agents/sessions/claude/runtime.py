"""Conversations with Claude Code: one process each, one reader of its messages, one turn at a time.

A turn starts with its prompt. It is over when its result has arrived, Claude Code has reported that it is idle, and all
its calls have ended. If the process dies first, the turn ends with the last lines of standard error.

Uses one private part of the SDK: the request for the usage of a resumed conversation. Must never leave a process
behind.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

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
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from toolcrib.agents.sessions.claude.calls import ClaudeCalls
from toolcrib.agents.sessions.claude.endings import ClaudeMeter, ending, error_of, failure, together
from toolcrib.agents.sessions.claude.hooks import ClaudeHooks
from toolcrib.agents.sessions.claude.mapping import OWN_NAMES, ClaudeEmission, ClaudeMapper
from toolcrib.agents.sessions.claude.options import ClaudeLaunch, Start, build_options, permission_mode
from toolcrib.agents.sessions.claude.program import cli_variables, find_cli, has_kept, write_wrapper
from toolcrib.agents.sessions.claude.servers import build_servers, tool_name
from toolcrib.agents.sessions.runtime import Brief, Conversation, SessionHost
from toolcrib.base.masking.text import mask_text
from toolcrib.base.masking.values import KnownSecrets
from toolcrib.base.masking.words import is_secret_setting
from toolcrib.base.processes.stderr import StderrRing
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import Failure, ServerHealth, TurnEnd

logger = logging.getLogger(__name__)

T = TypeVar("T")

START: Final = 60.0
"""Seconds allowed for starting Claude Code, even if many start at once."""
REQUEST: Final = 5.0
"""Seconds allowed for requests other than prompts."""
IDLE: Final = 5.0
"""Seconds after a result in which Claude Code reports that it is idle."""
_SHOWN_LINES: Final = 5
_STDERR_LIMIT: Final = 64 * 1024
_LAST: Final = (ProcessError, CLIConnectionError, CLIJSONDecodeError)
"""Errors that end reading; others concern one message, for example of a newer Claude Code."""
_CUT_SHORT: Final = "The call was interrupted. Its effects are unknown."


class ClaudeRuntime:
    """The runtime `claude`."""

    name = "claude"

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """`environment` are the crib's variables; `folder` is private, for the wrapper and long prompts."""
        self._environment = environment
        self._folder = folder

    def options(self, brief: Brief, host: SessionHost) -> ClaudeAgentOptions:
        """Return options for an external loop: the same tools and decisions; the caller reads the messages."""
        calls = ClaudeCalls(host)
        hooks = ClaudeHooks({tool_name(offered) for offered in brief.tools}, host, calls, brief.cwd)
        servers = build_servers(brief.tools, host, calls)
        return build_options(brief, self._start_of(brief), self._setting(brief), servers, hooks)

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[Conversation]:
        """Start Claude Code, and end it with the block."""
        stderr = StderrRing(self._mask, _STDERR_LIMIT)
        offered = {tool_name(each): each for each in brief.tools}
        mapper = ClaudeMapper(offered)
        calls = ClaudeCalls(host, mapper)
        hooks = ClaudeHooks(offered, host, calls, brief.cwd)
        start = await anyio.to_thread.run_sync(self._start_of, brief)
        setting = await anyio.to_thread.run_sync(self._setting, brief)
        options = build_options(
            brief,
            start,
            setting,
            build_servers(brief.tools, host, calls),
            hooks,
            lambda line: stderr.add(f"{line}\n".encode(errors="replace")),
        )
        is_kept = partial(has_kept, self._environment, start.runtime)
        unknown = UnknownCalls((*offered, *brief.own_tools), host)
        hooks.on_decided = unknown.decided
        client = ClaudeSDKClient(options)
        conversation = _Conversation(client, start, is_kept, host, mapper, calls, hooks, stderr, unknown)
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

    def _start_of(self, brief: Brief) -> Start:
        return Start.of(brief, is_kept=brief.resume is not None and has_kept(self._environment, brief.resume))

    def _setting(self, brief: Brief) -> ClaudeLaunch:
        wrapper = write_wrapper(self._folder, find_cli(self._environment))
        variables = cli_variables({**self._environment, **brief.variables})
        return ClaudeLaunch(wrapper, variables, self._folder)

    def _mask(self, text: str) -> str:
        known = KnownSecrets(value for name, value in self._environment.items() if is_secret_setting(name))
        return mask_text(text, known.mask)


class _RefusedCall(NamedTuple):
    name: str
    arguments: JsonObject


class UnknownCalls:
    """Calls of tools that a conversation does not have, which Claude Code refuses itself. `known` are all its tools.

    Claude Code runs the hooks only for tools it knows. If a model calls another one, perhaps one hidden from it, Claude
    Code returns an error immediately, and the gate would not know about it.
    """

    def __init__(self, known: Collection[str], host: SessionHost) -> None:
        self._known = frozenset(known)
        self._host = host
        self._open: dict[str, _RefusedCall] = {}
        self._refused: list[_RefusedCall] = []

    def decided(self, tool_call: str | None) -> None:
        """Forget a call that a hook decided after all: it has its own audit record."""
        self._open.pop(tool_call or "", None)

    def take(self, message: Message) -> None:
        """Detect unknown calls and their results."""
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolUseBlock) and OWN_NAMES.get(block.name, block.name) not in self._known:
                    self._open[block.id] = _RefusedCall(block.name, block.input)
        elif isinstance(message, UserMessage) and not isinstance(message.content, str):
            ids = (block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock))
            self._refused += [call for id in ids if (call := self._open.pop(id, None)) is not None]

    async def record(self) -> None:
        """Record the refused calls."""
        while self._refused:
            call = self._refused.pop(0)
            await self._host.refused(call.name, call.arguments)


class _Conversation:
    """One process of Claude Code."""

    def __init__(
        self,
        client: ClaudeSDKClient,
        start: Start,
        is_kept: Callable[[], bool],
        host: SessionHost,
        mapper: ClaudeMapper,
        calls: ClaudeCalls,
        hooks: ClaudeHooks,
        stderr: StderrRing,
        unknown: UnknownCalls,
    ) -> None:
        self._client = client
        self._start = start
        self._is_kept = is_kept
        self._host = host
        self._mapper = mapper
        self._calls = calls
        self._hooks = hooks
        self._stderr = stderr
        self._unknown = unknown
        self._meter = ClaudeMeter()
        self._model: str | None = None
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
        """Return its id; a fork's only once it was written, so that the fork is not lost with the process."""
        return self._start.runtime if not self._start.is_fork or (self._has_spoken and self._is_kept()) else None

    @property
    def model(self) -> str | None:
        """Return the model that Claude Code last reported."""
        return self._model

    @property
    def writes_as(self) -> str | None:
        """Return the id of its transcript, also for a fork."""
        return self._start.runtime

    async def connect(self) -> None:
        """Start the process. Raises `runner.start`."""
        try:
            with anyio.fail_after(START):
                await self._client.connect()
        except TimeoutError:
            raise Unavailable("runner.start", f"Claude Code was not ready within {START:g} s.") from None
        except Exception as error:  # noqa: BLE001 boundary: the SDK has no common base class for errors here
            logger.info("Claude Code did not start: %s", error)
            raise Unavailable("runner.start", self._last_words("Claude Code did not start.", error)) from None

    async def pump(self) -> None:
        """Read all messages of Claude Code until it ends."""
        while self._death is None:
            try:
                async for message in self._client.receive_messages():
                    self._take(message)
                    self._unknown.take(message)
                    await self._unknown.record()
                    self._wake_waiters()
                self._die(None)
            except Exception as error:  # boundary: the SDK's errors are not visible anywhere else
                if isinstance(error, ClaudeSDKError) and not isinstance(error, _LAST):
                    logger.exception("Claude Code sent an invalid message.")
                else:
                    self._die(error)

    async def read_meter(self) -> None:
        """Set the usage baseline of a resumed conversation, which Claude Code reports only on request."""
        if self._start.resume is None:
            return
        query: Any = self._client._query  # pyright: ignore[reportPrivateUsage]
        with anyio.move_on_after(REQUEST):
            usage: Json = await self._request_aside(query._send_control_request({"subtype": "get_usage"}))
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
            with anyio.move_on_after(REQUEST):  # the pump's error is more detailed
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
        """Interrupt the running turn; ends the process if it does not respond."""
        if not self._is_answering or self._death is not None:
            return
        with anyio.move_on_after(REQUEST) as limit:
            await self._request_aside(self._client.interrupt())
        if limit.cancelled_caught:
            self._is_given_up = True
            await self._client.disconnect()

    async def set_mode(self, mode: Mode) -> None:
        """Switch to this mode."""
        with anyio.move_on_after(REQUEST):
            await self._request_aside(self._client.set_permission_mode(permission_mode(mode)))

    async def set_model(self, model: str | None) -> None:
        """Switch to this model."""
        with anyio.move_on_after(REQUEST):
            await self._request_aside(self._client.set_model(model))

    async def servers(self) -> tuple[ServerHealth, ...]:
        """Return Claude Code's view of the servers."""
        with anyio.move_on_after(REQUEST):
            status = await self._request_aside(self._client.get_mcp_status())
            listed = status["mcpServers"] if status is not None else []
            return tuple(ServerHealth(each["name"], each["status"], len(each.get("tools", ()))) for each in listed)
        return ()

    async def close(self) -> None:
        """End the process; interrupt a running turn first, so that Claude Code ends its commands."""
        await self.interrupt()
        await self._settle()
        await self._client.disconnect()

    async def _settle(self) -> None:
        """End all calls of the turn and close open items."""
        await self._calls.settle()
        await self._hooks.settle()
        self._emit(self._mapper.finish(_CUT_SHORT))

    async def _request_aside(self, request: Awaitable[T]) -> T | None:
        """Return the answer to a request outside a turn; None if it was refused or the process is gone."""
        try:
            return await request
        except Exception as error:  # noqa: BLE001 boundary: the SDK raises a bare Exception for whatever Claude Code refuses
            logger.info("Claude Code refused a request: %s", error)
            return None

    def _take(self, message: Message) -> None:
        if isinstance(message, ResultMessage):
            self._ends.append(ending(message, self._error, self._meter))
        elif isinstance(message, SystemMessage) and message.subtype == "session_state_changed":
            self._is_idle = message.data.get("state") == "idle"
        elif isinstance(message, AssistantMessage):
            self._has_spoken = True
            self._error = error_of(message)
            if message.parent_tool_use_id is None and not message.model.startswith("<"):
                self._model = message.model
        try:
            self._emit(self._mapper.take(message))
        except Exception:  # boundary: skip a message of an unexpected shape
            logger.exception("Could not process a message of Claude Code.")
        self._calls.take()

    def _die(self, error: Exception | None) -> None:
        self._death = failure("runner.died", self._last_words(_exit_in_words(error), error))
        self._wake_waiters()

    def _emit(self, emissions: Iterable[ClaudeEmission]) -> None:
        for kind, data, parent in emissions:
            self._host.emit(kind, data, parent)

    def _wake_waiters(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    def _last_words(self, brief: str, error: Exception | None = None) -> str:
        """Describe what happened, with the end of standard error, else with the SDK's error."""
        output = "\n".join(self._stderr.tail(_SHOWN_LINES))
        if output:
            return f"{brief} Its last words on standard error:\n{output}"
        return brief if error is None or isinstance(error, ProcessError) else f"{brief} {error}"


def _exit_in_words(error: Exception | None) -> str:
    code = error.exit_code if isinstance(error, ProcessError) else None
    if code is None:
        return "Claude Code ended."
    if code < 0:
        name = next((each.name for each in signal.Signals if each == -code), f"number {-code}")
        return f"Claude Code was ended by signal {name}."
    return f"Claude Code exited with code {code}."
