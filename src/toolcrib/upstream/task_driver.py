"""Waits for the tasks of upstream servers (SEP-2663), so that their calls behave like any other.

A server may answer a call with a task. The crib polls it, forwards its questions to the client of the call, and cancels
it with the call. Clients with their own support for tasks get a task of the crib meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import CAPABILITIES_KEY, INTERNAL_ERROR, META, TASKS_EXTENSION
from toolcrib.model.sources import Ask, ProtocolError

_SHORTEST, _LONGEST = 0.05, 5.0
"""Bounds of the seconds between two polls, whatever the server suggests."""
_CANCEL_WAIT = 5.0
_INPUTS_LIMIT = 100


class SendTaskRequest(Protocol):
    """Sends a request about a task to the server."""

    def __call__(self, method: str, params: JsonObject) -> Awaitable[JsonObject]:
        """Return the result. Raises `ProtocolError` or the failure of the connection."""
        ...


def supports_tasks(capabilities: JsonObject) -> bool:
    """Return whether a server declares tasks."""
    extensions: Json = capabilities.get("extensions")
    return is_object(extensions) and TASKS_EXTENSION in extensions


def with_tasks(meta: JsonObject) -> JsonObject:
    """Return the `_meta` of a request that may be answered with a task, because the crib waits for it."""
    capabilities: Json = meta.get(CAPABILITIES_KEY)
    declared = capabilities if is_object(capabilities) else {}
    extensions: Json = declared.get("extensions")
    added: JsonObject = {**(extensions if is_object(extensions) else {}), TASKS_EXTENSION: {}}
    return {**meta, CAPABILITIES_KEY: {**declared, "extensions": added}}


async def await_task(
    server: str,
    created: JsonObject,
    meta: JsonObject,
    send: SendTaskRequest,
    ask: Ask | None,
    alive: Callable[[], None],
    leaves: Callable[[], bool],
) -> JsonObject:
    """Return the result of a task. `alive` is called after every poll. Raises `ProtocolError` if it failed.

    If the wait is cancelled, so is the task, unless `leaves` returns true: it is picked up later.
    """
    task_id: Json = created.get("taskId")
    if not isinstance(task_id, str) or not task_id:
        raise Unavailable("server.reply_invalid", f'Server "{server}" answered with a task without an id.')
    about: JsonObject = {"taskId": task_id, META: meta}
    answered: set[str] = set()
    task = created
    try:
        while True:
            await anyio.sleep(_interval(task))
            task = await send("tasks/get", about)
            alive()
            match task.get("status"):
                case "completed":
                    result: Json = task.get("result")
                    return result if is_object(result) else {}
                case "failed":
                    raise _failure(task.get("error"))
                case "cancelled":
                    text = f'Server "{server}" cancelled the call.'
                    return {"content": [{"type": "text", "text": text}], "isError": True}
                case "input_required":
                    responses = await _answers(server, task.get("inputRequests"), ask, answered)
                    if responses:
                        await send("tasks/update", {**about, "inputResponses": responses})
                case _:
                    pass
    except asyncio.CancelledError:
        await _cancel(send, about, leaves)
        raise
    except _NobodyToAsk:
        await _cancel(send, about, None)
        text = f'Server "{server}" needs input from the user, which this client does not support.'
        return {"content": [{"type": "text", "text": text}], "isError": True}


class _NobodyToAsk(Exception):
    """Raised when a task needs input and the client cannot be asked."""


async def _answers(server: str, wanted: Json, ask: Ask | None, answered: set[str]) -> JsonObject:
    """Forward the questions that were not answered yet to the client, all at once."""
    asked: dict[str, tuple[str, JsonObject]] = {}
    for key, question in (wanted if is_object(wanted) else {}).items():
        method: Json = question.get("method") if is_object(question) else None
        params: Json = question.get("params") if is_object(question) else None
        if not isinstance(method, str) or len(asked) >= _INPUTS_LIMIT:
            raise Unavailable("server.reply_invalid", f'Server "{server}" sent input requests that cannot be read.')
        if key not in answered:
            asked[key] = method, params if is_object(params) else {}
    if asked and ask is None:
        raise _NobodyToAsk
    assert ask is not None or not asked
    replies = await asyncio.gather(*(ask(*question) for question in asked.values())) if ask is not None else []
    answered.update(asked)
    return dict(zip(asked, replies, strict=True))


async def _cancel(send: SendTaskRequest, about: JsonObject, leaves: Callable[[], bool] | None) -> None:
    if leaves is not None and leaves():
        return
    with anyio.move_on_after(_CANCEL_WAIT, shield=True):
        try:
            await send("tasks/cancel", about)
        except (ProtocolError, ToolcribError):
            return


def _interval(task: JsonObject) -> float:
    suggested: Json = task.get("pollIntervalMs")
    seconds = suggested / 1000 if isinstance(suggested, int | float) else _SHORTEST
    return min(max(seconds, _SHORTEST), _LONGEST)


def _failure(error: Json) -> ProtocolError:
    given = error if is_object(error) else {}
    code, message = given.get("code"), given.get("message")
    return ProtocolError(
        code if isinstance(code, int) else INTERNAL_ERROR, str(message or "The task failed."), given.get("data")
    )
