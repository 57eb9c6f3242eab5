"""Questions of a server to the client behind a call: a modern server's in its result, a legacy server's live.

Above: `exchange`. Below: `flights`. It must never ask anybody but the client of a call on this very conversation.
"""

import logging
from typing import Final

import anyio

from toolcrib.connect.conversation import Conversation
from toolcrib.connect.flights import Flight, Flights
from toolcrib.connect.wire import RequestId, as_id
from toolcrib.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from toolcrib.model.sources import Ask, ProtocolError

logger = logging.getLogger(__name__)

STATE_LIMIT: Final = 64 * 1024
QUESTIONS_LIMIT: Final = 100


async def answers_to(name: str, result: JsonObject, ask: Ask) -> tuple[JsonObject, str | None]:
    """Put each question of a result to the client, one after the other: there is one person to answer them.

    Gives the answers and the state that the server wants back. Raises what the client refuses with.
    """
    state: Json = result.get("requestState")
    wanted: Json = result.get("inputRequests")
    questions = wanted if is_object(wanted) else {}
    if state is not None and (not isinstance(state, str) or len(state) > STATE_LIMIT):
        raise Unavailable("server.reply_invalid", f'Server "{name}" wants something kept that is too large or no text.')
    if len(questions) > QUESTIONS_LIMIT:
        raise Unavailable(
            "server.reply_invalid", f'Server "{name}" asks more than {QUESTIONS_LIMIT} questions at once.'
        )
    answers: JsonObject = {}
    for key, question in questions.items():
        method: Json = question.get("method") if is_object(question) else None
        if not isinstance(method, str):
            raise Unavailable("server.reply_invalid", f'Server "{name}" asks something that cannot be read.')
        params: Json = question.get("params")
        answers[key] = await ask(method, params if is_object(params) else {})
    return answers, state


def unanswerable(name: str, method: str) -> JsonObject:
    """The answer for a caller whose client cannot be asked what the server wants to know."""
    text = f'Server "{name}" wants to ask something first, and this client cannot be asked.'
    if method != "tools/call":
        raise ProtocolError(INVALID_REQUEST, text)
    return {"content": [{"type": "text", "text": text}], "isError": True}


def refuse(conversation: Conversation, request_id: RequestId, method: str) -> None:
    """Nobody here could be asked this."""
    conversation.refuse(request_id, METHOD_NOT_FOUND, f"Method not found: {method}")


async def put(
    conversation: Conversation, flights: Flights, flight: Flight, request_id: RequestId, method: str, params: JsonObject
) -> None:
    """Put a live question of the server to the client of a call, and answer with what it says."""
    client = flight.context.client
    assert client is not None and client.ask is not None
    if flight.questions is None:
        flight.questions = {}
    try:
        with anyio.move_on_after(flights.left(flight)) as flight.questions[request_id]:
            flights.prolong(flight)
            conversation.answer(request_id, await client.ask(method, params))
            return
        conversation.refuse(request_id, INVALID_REQUEST, "Nobody answered.")
    except ProtocolError as error:
        conversation.refuse(request_id, error.code, error.message, error.data)
    except Exception:  # boundary: a client that fails to answer must not cost the conversation
        logger.exception("The client of a call could not be asked what server %s wants to know.", conversation.name)
        conversation.refuse(request_id, INTERNAL_ERROR, "The client could not be asked.")
    finally:
        del flight.questions[request_id]
        flights.prolong(flight)


def take_back(flights: Flights, params: JsonObject) -> None:
    """The server does not want an answer any more."""
    request_id = as_id(params.get("requestId"))
    for flight in flights:
        if request_id is not None and flight.questions and request_id in flight.questions:
            flight.questions[request_id].cancel()
