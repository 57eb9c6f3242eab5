"""ACP agents as runtimes of sessions: each conversation has its own process.

The agent reaches the session's tools through the crib's endpoint, with a token that is valid for this conversation
only.

Must never leave a process or a valid token behind.
"""

import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import anyio
from acp import RequestError
from acp.connection import Connection

from toolcrib.agents.sessions.acp.calls import AcpCalls
from toolcrib.agents.sessions.acp.conversation import AcpConversation, last_words
from toolcrib.agents.sessions.acp.mapping import AcpMapper
from toolcrib.agents.sessions.acp.opening import begin, explained
from toolcrib.agents.sessions.acp.recognition import Recognition
from toolcrib.agents.sessions.acp.wire import ChildTransport
from toolcrib.agents.sessions.programs import Program
from toolcrib.agents.sessions.runtime import Brief, Conversation, SessionHost
from toolcrib.agents.sessions.runtimes import EndpointAccess
from toolcrib.base.masking.text import mask_text
from toolcrib.base.masking.values import KnownSecrets
from toolcrib.base.masking.words import is_secret_setting
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.start import INHERITED
from toolcrib.base.processes.stderr import Mask
from toolcrib.gate.principals import SessionToken
from toolcrib.gate.programs import code_tools
from toolcrib.gate.results import reading
from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.servers import ResolvedServer
from toolcrib.model.tools import ToolRef

START: Final = 90.0
"""Seconds allowed for starting an agent, even if many start at once."""
LAST_WORDS: Final = 3.0
"""Seconds allowed for ending a turn before the process is ended."""
_OWN: Final = frozenset(
    tool.ref for tool in (reading.TOOL, *code_tools.tools_of("search"), *code_tools.tools_of("code"))
)
"""Tools of the endpoint itself, which have the same name there."""


class AcpRuntime:
    """The runtime of one agent."""

    def __init__(
        self, program: Program, environment: Mapping[str, str], processes: Processes, endpoint_access: EndpointAccess
    ) -> None:
        """`environment` are the crib's environment variables."""
        self.name = program.name
        self._program = program
        self._environment = environment
        self._processes = processes
        self._endpoint_access = endpoint_access

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[Conversation]:
        """Start the agent, and end it with the block."""
        url = self._endpoint_access.url()
        if url is None:
            message = f"The agent {self.name} needs the MCP endpoint, but this crib does not listen."
            raise Unavailable("runner.not_listening", message)
        if brief.listing != "all":
            url = f"{url}?tools={brief.listing}"
        resolved = self._resolve(brief)
        offered = {self._name(each.tool.ref): each for each in brief.tools}
        mapper = AcpMapper(Recognition(offered, self._program.dialect))
        calls = AcpCalls(host, mapper, {each.tool.ref: each for each in brief.tools}, self._name)
        async with AsyncExitStack() as stack:
            token = stack.enter_context(self._endpoint_access.tokens.issued(host.principal, calls.call))
            transport = await self._start(stack, resolved, token)
            conversation = AcpConversation(self._program, brief, calls, transport, token)
            connection = Connection(conversation.handle, transport)
            stack.push_async_callback(connection.close)
            await self._begin(conversation, connection, transport, brief, url, token.secret)
            try:
                yield conversation
            finally:
                with anyio.move_on_after(LAST_WORDS, shield=True):
                    await conversation.close()

    def _name(self, ref: ToolRef) -> str:
        """Return a tool's name at the endpoint."""
        return ref.tool if ref in _OWN else self._endpoint_access.name(ref)

    async def _start(self, stack: AsyncExitStack, resolved: ResolvedServer, token: SessionToken) -> ChildTransport:
        mask = self._mask(token.secret)
        try:
            child = await stack.enter_async_context(
                self._processes.child(self.name, resolved, mask, umask=INHERITED, ends_descendants=False)
            )
        except ToolcribError as error:
            raise Unavailable("runner.start", error.message, error.hint) from error
        return ChildTransport(child)

    async def _begin(
        self,
        conversation: AcpConversation,
        connection: Connection,
        transport: ChildTransport,
        brief: Brief,
        url: str,
        secret: str,
    ) -> None:
        async def request(method: str, params: JsonObject) -> JsonObject:
            if method == "session/cancel":
                await connection.send_notification(method, params)
                return {}
            answer: Json = await connection.send_request(method, params)
            return answer if is_object(answer) else {}

        try:
            with anyio.fail_after(START):
                begun = await begin(request, self._program, brief, url, secret)
                await conversation.open(begun, request)
        except TimeoutError:
            raise Unavailable("runner.start", f"The agent {self.name} was not ready within {START:g} s.") from None
        except RequestError as error:
            raise explained(self.name, error) from error
        except ConnectionError:
            # The exit code and error output arrive a moment after the pipes are closed.
            message = last_words(self.name, "ended before it was ready", transport.failure)
            raise Unavailable("runner.start", message) from None

    def _resolve(self, brief: Brief) -> ResolvedServer:
        """Return the command to start. Raises `runner.missing`."""
        command, *arguments = self._program.command
        found = shutil.which(command, path=self._environment.get("PATH"))
        if found is None:
            message = f"The agent {self.name} is not installed: command {command!r} not found."
            raise Unavailable("runner.missing", message, self._program.install)
        variables = self._program.environment(self._environment)
        return ResolvedServer(found, tuple(arguments), variables, cwd=brief.cwd)

    def _mask(self, secret: str) -> Mask:
        given = self._program.environment(self._environment)
        known = KnownSecrets([secret, *(value for name, value in given.items() if is_secret_setting(name))])

        def mask(text: str) -> str:
            return mask_text(text, known.mask)

        return mask
