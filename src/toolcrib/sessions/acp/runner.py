"""Agents as runtimes of sessions: each conversation is a process of its own, started and ended with it.

The agent comes to the session's tools over the crib's own endpoint, with a secret that is made for this conversation
and ends with it.

Above: `runners`. Below: `connect` for the process, the package's connection, the other modules here. It must never
leave a process behind, nor a secret that works.
"""

import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import anyio
from acp import RequestError
from acp.connection import Connection

from toolcrib.config.resolve import Resolved
from toolcrib.connect import Processes
from toolcrib.connect.start import INHERITED
from toolcrib.connect.stderr import Mask
from toolcrib.errors import ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.principals import SessionToken
from toolcrib.sessions.acp.calls import Calls
from toolcrib.sessions.acp.conversation import AcpConversation, last_words
from toolcrib.sessions.acp.mapping import Mapper
from toolcrib.sessions.acp.opening import begin, explained
from toolcrib.sessions.acp.recognition import Recognition
from toolcrib.sessions.acp.wire import ChildTransport
from toolcrib.sessions.programs import Program
from toolcrib.sessions.runner import Brief, Conversation, Desk
from toolcrib.sessions.runners import Doorway

START: Final = 90.0
"""Seconds in which an agent is ready, also where many start at once."""
LAST_WORDS: Final = 3.0
"""Seconds that an agent has to end its turn before its process is ended."""
_SECRETS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "HEADERS")


class AcpRunner:
    """The runner of one agent."""

    def __init__(
        self, program: Program, environment: Mapping[str, str], processes: Processes, doorway: Doorway
    ) -> None:
        """`environment` are the variables of the crib."""
        self.name = program.name
        self._program = program
        self._environment = environment
        self._processes = processes
        self._doorway = doorway

    @asynccontextmanager
    async def open(self, brief: Brief, desk: Desk) -> AsyncGenerator[Conversation]:
        """Start the agent, and end it with the block."""
        url = self._doorway.url()
        if url is None:
            message = f"The agent {self.name} reaches its tools over the network, and this crib does not listen."
            raise Unavailable("runner.not_listening", message)
        resolved = self._resolved(brief)
        offered = {self._doorway.name(each.tool.ref): each for each in brief.tools}
        mapper = Mapper(Recognition(offered, self._program.dialect))
        calls = Calls(desk, mapper, {each.tool.ref: each for each in brief.tools}, self._doorway.name)
        async with AsyncExitStack() as stack:
            tokens = self._doorway.tokens
            token = stack.enter_context(tokens.issued(lambda: self._doorway.who(brief.session), calls.call))
            transport = await self._started(stack, resolved, token)
            conversation = AcpConversation(self._program, brief, calls, transport, token)
            connection = Connection(conversation.handle, transport)
            stack.push_async_callback(connection.close)
            await self._begin(conversation, connection, transport, brief, url, token.secret)
            try:
                yield conversation
            finally:
                with anyio.move_on_after(LAST_WORDS, shield=True):
                    await conversation.close()

    async def _started(self, stack: AsyncExitStack, resolved: Resolved, token: SessionToken) -> ChildTransport:
        mask = self._mask(token.secret)
        try:
            child = await stack.enter_async_context(self._processes.child(self.name, resolved, mask, umask=INHERITED))
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
            # Its exit code and its last words come a moment after its pipes are closed.
            message = last_words(self.name, "ended before it was ready", transport.failure)
            raise Unavailable("runner.start", message) from None

    def _resolved(self, brief: Brief) -> Resolved:
        """What is started. Raises `runner.missing`."""
        command, *arguments = self._program.command
        found = shutil.which(command, path=self._environment.get("PATH"))
        if found is None:
            message = f"The agent {self.name} is not installed: there is no program {command!r}."
            raise Unavailable("runner.missing", message, self._program.install)
        variables = self._program.environment(self._environment)
        return Resolved(found, tuple(arguments), variables, cwd=brief.cwd)

    def _mask(self, secret: str) -> Mask:
        hidden = [secret]
        hidden += [
            value
            for name, value in self._program.environment(self._environment).items()
            if len(value) >= 8 and name.endswith(_SECRETS)
        ]

        def mask(line: str) -> str:
            for each in hidden:
                line = line.replace(each, "***")
            return line

        return mask
