"""A conversation with an agent: one turn at a time, until its process ends.

Must never wait for an agent without a timeout, except for the answer to a prompt, whose time sessions limit.
"""

import logging
from collections import Counter
from typing import Any, Final, Protocol

import anyio
from acp import RequestError

from toolcrib.agents.sessions.acp.calls import AcpCalls
from toolcrib.agents.sessions.acp.endings import AcpMeter, ending, failure, refused
from toolcrib.agents.sessions.acp.opening import Begun, Choices, Request, asking_mode, blocks
from toolcrib.agents.sessions.programs import Program
from toolcrib.agents.sessions.runtime import Brief
from toolcrib.base.processes.process import ServerFailed
from toolcrib.gate.principals import SessionToken
from toolcrib.model.errors import NotFound, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import Failure, ServerHealth, TurnEnd

logger = logging.getLogger(__name__)

REQUEST: Final = 10.0
"""Seconds allowed for requests other than prompts."""
STOPPING: Final = 5.0
"""Seconds allowed for ending a turn after an interrupt."""
_CUT_SHORT: Final = "The call was interrupted. Its effects are unknown."
_DEAF: Final = "did not end its turn after an interrupt"


class AgentProcess(Protocol):
    """The connection to the agent's process."""

    @property
    def failure(self) -> ServerFailed | None:
        """Return why the process ended, or None."""
        ...

    def give_up(self, reason: str) -> None:
        """End the process for the given reason."""
        ...


class AcpConversation:
    """One agent process and the session in it."""

    def __init__(
        self, program: Program, brief: Brief, calls: AcpCalls, line: AgentProcess, token: SessionToken
    ) -> None:
        self._program = program
        self._brief = brief
        self._calls = calls
        self._line = line
        self._token = token
        self._meter = AcpMeter()
        self._prompt = "" if program.dialect == "claude" else brief.prompt
        self._begun = Begun("", Choices())
        self._wanted: Mode = brief.mode
        self._mode: str | None = None
        self._model: str | None = None
        self._request: Request
        self._is_answering = False
        self._is_interrupted = False
        self._over = anyio.Event()

    @property
    def runtime(self) -> str | None:
        """Return the agent's id of the session."""
        return self._begun.id

    @property
    def model(self) -> str | None:
        """Return the model that was set, else the initial one."""
        return self._model or self._begun.choices.model

    @property
    def writes_as(self) -> str | None:
        """Return the agent's id of the session."""
        return self._begun.id or None

    async def open(self, begun: Begun, request: Request) -> None:
        """Set mode and model of the new session. Raises `Unavailable`, `runner.model`."""
        self._begun, self._request = begun, request
        self._mode = begun.choices.mode
        if begun.is_resumed:
            self._meter.total = None
        await self._enter(self._wanted)
        if self._brief.model is not None:
            await self._think_with(self._brief.model)

    async def handle(self, method: str, params: Any, is_notification: bool) -> JsonObject | None:
        """Handle the agent's requests and notifications."""
        fields: JsonObject = params if is_object(params) else {}
        if method == "session/update":
            await self._receive_update(fields)
        elif method == "session/request_permission":
            return await self._calls.permission(fields)
        elif not is_notification:
            raise RequestError.method_not_found(method)
        return None

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt."""
        self._is_answering, self._is_interrupted = True, False
        self._over = anyio.Event()
        self._calls.begin()
        prompt, self._prompt = self._prompt, ""
        try:
            end = await self._run_prompt({"sessionId": self._begun.id, "prompt": list(blocks(prompt, text))})
            self._is_answering = False
        finally:
            self._over.set()
            with anyio.CancelScope(shield=True):
                await self._calls.settle(_CUT_SHORT)
        return end

    async def interrupt(self) -> None:
        """Interrupt the running turn; ends the process if the agent does not respond."""
        if not self._is_answering or self._line.failure is not None:
            return
        self._is_interrupted = True
        await self._cancel()
        self._calls.cancel()
        with anyio.move_on_after(STOPPING) as limit:
            await self._over.wait()
        if limit.cancelled_caught:
            self._line.give_up(_DEAF)

    async def set_mode(self, mode: Mode) -> None:
        """Switch to this mode; the gate enforces it, and the agent itself only needs to know about `plan`."""
        self._wanted = mode
        try:
            await self._enter(mode)
        except Unavailable as error:
            logger.info("%s", error)  # retried before the next turn, which fails if that does not work either

    async def set_model(self, model: str | None) -> None:
        """Switch to this model."""
        wanted = model if model is not None else self._begun.choices.model
        if wanted is not None:
            try:
                await self._think_with(wanted)
            except ToolcribError as error:
                logger.info("%s", error)

    async def servers(self) -> tuple[ServerHealth, ...]:
        """Return the offered servers; the crib can only see whether the agent has connected to it."""
        state = "connected" if self._token.is_used else "pending"
        counted = Counter(offered.server for offered in self._brief.tools)
        return tuple(ServerHealth(name, state, tools) for name, tools in counted.items())

    async def close(self) -> None:
        """Ask the agent to end a running turn, including the commands it runs."""
        if self._is_answering and self._line.failure is None:
            await self._cancel()
        await self._calls.settle(_CUT_SHORT)

    async def _run_prompt(self, params: JsonObject) -> TurnEnd:
        try:
            await self._enter(self._wanted)  # the agent may have left it on its own
            return ending(await self._request("session/prompt", params), self._begun.id, self._meter)
        except Unavailable as error:
            return TurnEnd("failed", self._begun.id, failure=failure(error.code, error.message))
        except RequestError as error:
            spent = self._meter.spent(None)
            if self._is_interrupted:
                return TurnEnd("interrupted", self._begun.id, spent)
            return TurnEnd("failed", self._begun.id, spent, refused(self._program.name, error))
        except ConnectionError:
            spent = self._meter.spent(None)
            if self._is_interrupted:
                return TurnEnd("interrupted", self._begun.id, spent, is_alive=False)
            return TurnEnd("failed", self._begun.id, spent, self._death(), is_alive=False)

    def _death(self) -> Failure:
        why = self._line.failure
        return failure("runner.died", last_words(self._program.name, "ended during a turn", why))

    async def _receive_update(self, params: JsonObject) -> None:
        update: Json = params.get("update")
        if not is_object(update):
            return
        if update.get("sessionUpdate") == "current_mode_update":
            self._mode = str(update.get("currentModeId"))
        self._meter.take(update)
        if self._is_answering:  # updates between turns repeat history or are unsolicited
            await self._calls.take(update)

    async def _cancel(self) -> None:
        try:
            await self._request("session/cancel", {"sessionId": self._begun.id})
        except ConnectionError as error:
            logger.info("Could not interrupt the agent %s: %s", self._program.name, error)

    async def _enter(self, mode: Mode) -> None:
        """Switch the agent to its own equivalent of this mode, if necessary. Raises `Unavailable`."""
        wanted = asking_mode(self._program, self._begun.choices, mode)
        if wanted is not None and wanted != self._mode:
            await self._call_agent("session/set_mode", {"sessionId": self._begun.id, "modeId": wanted})
            self._mode = wanted

    async def _think_with(self, model: str) -> None:
        choices = self._begun.choices
        if model not in choices.models:
            there = (
                f"Available: {', '.join(choices.models)}."
                if choices.models
                else "This agent does not support choosing a model."
            )
            raise NotFound("runner.model", f"The agent {self._program.name} has no model {model!r}.", there)
        if choices.model_option is not None:
            params: JsonObject = {"configId": choices.model_option, "value": model}
            await self._call_agent("session/set_config_option", {"sessionId": self._begun.id, **params})
        else:
            await self._call_agent("session/set_model", {"sessionId": self._begun.id, "modelId": model})
        self._model = model

    async def _call_agent(self, method: str, params: JsonObject) -> None:
        """Send a request other than a prompt. Raises `Unavailable` if it fails."""
        try:
            with anyio.fail_after(REQUEST):
                await self._request(method, params)
        except (RequestError, ConnectionError, TimeoutError) as error:
            message = f"The agent {self._program.name} refused the request {method}: {error}"
            raise Unavailable("runner.failed", message) from error


def last_words(name: str, what: str, failure: ServerFailed | None) -> str:
    """Describe how an agent's process ended, with exit code and error output."""
    if failure is None:
        return f"The agent {name} {what}."
    code = f" (exit code {failure.exited_with})" if failure.exited_with is not None else ""
    output = "\n".join(failure.stderr[-5:])
    return f"The agent {name} {what}{code}." + (f" Its last words on standard error:\n{output}" if output else "")
