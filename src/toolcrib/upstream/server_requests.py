"""Requests of a server to the client behind a call: in the result of a modern server, sent directly by a legacy one.

Must never reach any client but that of a call on the same connection.
"""

import logging
from typing import Final

import anyio

from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from toolcrib.model.sources import Ask, ProtocolError
from toolcrib.upstream.connection import Connection
from toolcrib.upstream.jsonrpc import RequestId, as_id
from toolcrib.upstream.pending_calls import PendingCall, PendingCalls

logger = logging.getLogger(__name__)

STATE_LIMIT: Final = 64 * 1024
QUESTIONS_LIMIT: Final = 100


async def answers_to(name: str, result: JsonObject, ask: Ask) -> tuple[JsonObject, str | None]:
    """Forward each input request of a result to the client, one at a time because a single user answers them.

    Returns the answers and the state to send back to the server. Raises the client's error.
    """
    state: Json = result.get("requestState")
    wanted: Json = result.get("inputRequests")
    questions = wanted if is_object(wanted) else {}
    if state is not None and (not isinstance(state, str) or len(state) > STATE_LIMIT):
        raise Unavailable(
            "server.reply_invalid", f'Server "{name}" sent a request state that is too large or not text.'
        )
    if len(questions) > QUESTIONS_LIMIT:
        raise Unavailable(
            "server.reply_invalid", f'Server "{name}" asked for more than {QUESTIONS_LIMIT} inputs at once.'
        )
    answers: JsonObject = {}
    for key, question in questions.items():
        method: Json = question.get("method") if is_object(question) else None
        if not isinstance(method, str):
            raise Unavailable("server.reply_invalid", f'Server "{name}" sent an input request that cannot be read.')
        params: Json = question.get("params")
        answers[key] = await ask(method, params if is_object(params) else {})
    return answers, state


def unanswerable(name: str, method: str) -> JsonObject:
    """Return or raise the error for a caller whose client cannot answer the server."""
    text = f'Server "{name}" needs input from the user, which this client does not support.'
    if method != "tools/call":
        raise ProtocolError(INVALID_REQUEST, text)
    return {"content": [{"type": "text", "text": text}], "isError": True}


def refuse(conversation: Connection, request_id: RequestId, method: str) -> None:
    """Reject a server's request because no client can answer it."""
    conversation.refuse(request_id, METHOD_NOT_FOUND, f"Method not found: {method}")


async def put(
    conversation: Connection,
    pending_calls: PendingCalls,
    pending_call: PendingCall,
    request_id: RequestId,
    method: str,
    params: JsonObject,
) -> None:
    """Forward a legacy server's request to the client of a call, and send back its answer."""
    client = pending_call.context.client
    assert client is not None and client.ask is not None
    if pending_call.questions is None:
        pending_call.questions = {}
    try:
        with anyio.move_on_after(pending_calls.left(pending_call)) as pending_call.questions[request_id]:
            pending_calls.prolong(pending_call)
            conversation.answer(request_id, await client.ask(method, params))
            return
        conversation.refuse(request_id, INVALID_REQUEST, "No answer in time.")
    except ProtocolError as error:
        conversation.refuse(request_id, error.code, error.message, error.data)
    except Exception:  # boundary: a client that fails to answer must not end the connection
        logger.exception("The client of a call failed to answer server %s.", conversation.name)
        conversation.refuse(request_id, INTERNAL_ERROR, "The client failed to answer.")
    finally:
        del pending_call.questions[request_id]
        pending_calls.prolong(pending_call)


def take_back(pending_calls: PendingCalls, params: JsonObject) -> None:
    """Cancel a request that the server has withdrawn."""
    request_id = as_id(params.get("requestId"))
    for pending_call in pending_calls:
        if request_id is not None and pending_call.questions and request_id in pending_call.questions:
            pending_call.questions[request_id].cancel()
