"""Converts errors to RFC 9457 `application/problem+json` responses.

Must never expose the message of an unexpected exception: it is logged under an id, and only the id is returned.
"""

import logging
import secrets
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Send

from toolcrib.model.errors import CODES, InvalidRequest, NotFound, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject, dumps
from toolcrib.web.console.refusal import refusal_page, sign_in_page

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


def page(error: ToolcribError, target: str = "/") -> Response:
    """Return the error as an HTML page: the sign-in page if the browser is not signed in, continuing at `target`."""
    if error.code in ("auth.required", "auth.invalid"):
        shown = sign_in_page(error.message if error.code == "auth.invalid" else None, target=target)
    else:
        shown = refusal_page(CODES[error.code].meaning, error.message, _browser_hint(error))
    return HTMLResponse(shown, error.status, headers=_extra_headers(error))


def _browser_hint(error: ToolcribError) -> str | None:
    return None if error.code in ("route.unknown", "route.method") else error.hint


def wants_page(headers: Iterable[Header], path: str) -> bool:
    """Return whether a request comes from a browser that displays HTML, not from a program."""
    if path.startswith(("/mcp", "/api/")):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


async def answer(send: Send, error: ToolcribError, *, as_page: bool = False, target: str = "/") -> None:
    """Send the error as the whole response to a request."""
    whole = page(error, target) if as_page else response(error)
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
    return Unavailable("internal", f"An unexpected error occurred. It is logged as {number}.")


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


def _respond(request: Request, error: ToolcribError) -> Response:
    """Return the error as a page for a browser, else as a problem document."""
    is_fragment = request.headers.get("hx-request") == "true"
    as_page = not is_fragment and wants_page(request.scope["headers"], request.scope["path"])
    return page(error) if as_page else response(error)


def _on_deliberate(request: Request, error: Exception) -> Response:
    assert isinstance(error, ToolcribError)
    return _respond(request, error)


def _on_routing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _respond(request, NotFound("route.unknown", f"There is nothing at {path}."))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refused = _respond(request, InvalidRequest("route.method", f"{path} does not support {request.method}."))
        refused.headers.update(error.headers or {})
        return refused
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return _respond(request, InvalidRequest("request.malformed", "The request body is malformed."))
    return _respond(request, unexpected(error))


def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # the client has disconnected


def _on_unexpected(request: Request, error: Exception) -> Response:
    return _respond(request, unexpected(error))
