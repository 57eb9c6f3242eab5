"""Converts errors to RFC 9457 `application/problem+json` responses.

Must never expose the message of an unexpected exception: it is logged under an id, and only the id is returned.
"""

import logging
import secrets
from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Send

from toolcrib.model.errors import CODES, InvalidRequest, NotFound, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject, dumps
from toolcrib.web.console.refusal import refusal_page

MEDIA_TYPE = "application/problem+json"

Header = tuple[bytes, bytes]
SAFE_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
"""Headers of every response."""

_NOTE = "logged as "

logger = logging.getLogger(__name__)


def problem(error: ToolcribError, errors: Sequence[JsonObject] = ()) -> JsonObject:
    """Return the JSON body of an error; `errors` lists the invalid fields."""
    shape: JsonObject = {
        "type": f"urn:toolcrib:problem:{error.code}",
        "title": CODES[error.code].meaning,
        "status": error.status,
        "code": error.code,
        "detail": error.message,
    }
    if error.hint:
        shape["hint"] = error.hint
    if errors:
        shape["errors"] = list(errors)
    return shape


def response(error: ToolcribError, errors: Sequence[JsonObject] = ()) -> Response:
    """Return the error as a response."""
    body = dumps(problem(error, errors))
    return Response(body, error.status, headers=_extra_headers(error), media_type=MEDIA_TYPE)


def page(error: ToolcribError) -> Response:
    """Return the error as an HTML page."""
    shown = refusal_page(CODES[error.code].meaning, error.message, error.hint)
    return HTMLResponse(shown, error.status, headers=_extra_headers(error))


async def answer(send: Send, error: ToolcribError, *, as_page: bool = False) -> None:
    """Send the error as the whole response to a request."""
    whole = page(error) if as_page else response(error)
    await send({"type": "http.response.start", "status": whole.status_code, "headers": whole.raw_headers})
    await send({"type": "http.response.body", "body": bytes(whole.body)})


def on_the_wire(error: ToolcribError) -> bytes:
    """Return the error as raw HTTP/1.1 bytes, for invalid requests. The connection is closed after it."""
    whole = response(error)
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in (*whole.raw_headers, *SAFE_HEADERS, (b"connection", b"close"))]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(whole.body)


def unexpected(error: BaseException) -> ToolcribError:
    """Log an unexpected error once under an id, and return an error that carries only the id.

    The id is noted on the exception, which may pass several boundaries on its way out.
    """
    notes: list[str] = getattr(error, "__notes__", [])
    number = next((note.removeprefix(_NOTE) for note in notes if note.startswith(_NOTE)), None)
    if number is None:
        number = secrets.token_hex(4)
        error.add_note(_NOTE + number)
        logger.error("Unexpected failure %s", number, exc_info=error)
    return Unavailable("internal", f"Something unexpected failed; it is logged as {number}.")


def install(app: Starlette) -> None:
    """Register handlers that turn every error of the routes into a problem response."""
    app.add_exception_handler(ToolcribError, _on_deliberate)
    app.add_exception_handler(HTTPException, _on_routing)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_unexpected)


def _extra_headers(error: ToolcribError) -> dict[str, str]:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": 'Bearer realm="toolcrib"'}
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return {"retry-after": "60"}
    if error.code == "crib.stopping":
        return {"retry-after": "1"}
    return {}


def _on_deliberate(_: Request, error: Exception) -> Response:
    assert isinstance(error, ToolcribError)
    return response(error)


def _on_routing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return response(NotFound("route.unknown", f"There is nothing at {request.scope['path']}."))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refused = response(InvalidRequest("route.method", f"{request.scope['path']} does not take {request.method}."))
        refused.headers.update(error.headers or {})
        return refused
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return response(InvalidRequest("request.malformed", "The body could not be read."))
    return response(unexpected(error))


def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # the client has disconnected


def _on_unexpected(_: Request, error: Exception) -> Response:
    return response(unexpected(error))
