"""Sessions of the legacy era as the endpoint needs them: what a client said it can do, and what it is being asked.

The SDK's server opens and ends sessions; what stands here is the part that calls of the session need. A question goes
out on the stream of the call that it belongs to and comes back as a request of its own; its id is made here, cannot be
guessed, and means nothing in any other session.

Above: the endpoint. Below: the exchange that carries a question. It must never wait for an answer without a bound.
"""

import asyncio
import secrets
from collections.abc import Callable

import anyio

from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.protocol import INTERNAL_ERROR, METHOD_NOT_FOUND
from toolcrib.model.sources import ProtocolError
from toolcrib.server.mcp.asking import ANSWER_WAIT, capability_for
from toolcrib.server.mcp.exchange import Exchange
from toolcrib.server.mcp.rpc import Message

KEPT = 1_000
"""Sessions above which ended ones are cleared away."""
DEFAULT_LEVEL = "info"
"""What is logged to a session that did not say what it wants."""

_FAREWELL = 1.0


class Session:
    """What one client of the legacy era declared when its session began, and its open questions."""

    def __init__(self, session_id: str, hello: JsonObject) -> None:
        capabilities, info = hello.get("capabilities"), hello.get("clientInfo")
        self.id = session_id
        self.capabilities: JsonObject = capabilities if is_object(capabilities) else {}
        self.info: JsonObject | None = info if is_object(info) else None
        self.log_level = DEFAULT_LEVEL
        self._asked: dict[str, asyncio.Future[JsonObject]] = {}

    async def ask(self, exchange: Exchange, method: str, params: JsonObject) -> JsonObject:
        """Put a server's question to the client, on the stream of the call it belongs to."""
        if capability_for(method) not in self.capabilities:
            raise ProtocolError(METHOD_NOT_FOUND, f"The client does not take {method}.")
        request_id = secrets.token_hex(12)
        answer = self._asked[request_id] = asyncio.get_running_loop().create_future()
        try:
            await exchange.request(request_id, method, params)
            async with asyncio.timeout(ANSWER_WAIT):
                return await answer
        except TimeoutError:
            raise ProtocolError(INTERNAL_ERROR, f"The client did not answer within {ANSWER_WAIT:g} s.") from None
        finally:
            del self._asked[request_id]
            if not answer.done() or answer.cancelled():
                await _withdraw_question(exchange, request_id)

    def take(self, message: Message) -> None:
        """An answer of the client; one to a question that is not open is dropped."""
        answer = self._asked.get(message.id) if isinstance(message.id, str) else None
        reply = message.reply
        if answer is None or answer.done() or reply is None:
            return
        if "result" in reply:
            answer.set_result(reply["result"])
        else:
            error = reply["error"]
            code, text = error.get("code"), error.get("message")
            answer.set_exception(
                ProtocolError(code if isinstance(code, int) else INTERNAL_ERROR, str(text), error.get("data"))
            )


async def _withdraw_question(exchange: Exchange, request_id: str) -> None:
    """Tell the client that nobody waits for its answer any more."""
    with anyio.move_on_after(_FAREWELL, shield=True):
        await exchange.notify("notifications/cancelled", {"requestId": request_id})


class Sessions:
    """The sessions that are open."""

    def __init__(self) -> None:
        self._open: dict[str, Session] = {}

    def get(self, session_id: str | None) -> Session:
        """The session of this id; of one that is not known here, a session that declared nothing."""
        return self._open.get(session_id or "") or Session(session_id or "", {})

    def begin(self, session_id: str, hello: JsonObject, is_open: Callable[[str], bool]) -> None:
        """A session began with this `initialize`; now and then those that are not open any more are forgotten."""
        self._open[session_id] = Session(session_id, hello)
        if len(self._open) > KEPT:
            self._open = {key: session for key, session in self._open.items() if key == session_id or is_open(key)}
