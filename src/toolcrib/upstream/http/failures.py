"""Errors of HTTP servers: one sentence, and a code that the upstream can act on.

Must never show a server's text that was not truncated and cleaned.
"""

import email.utils
import time
from typing import Final

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model import jsonrpc
from toolcrib.model.errors import ConfigError, ToolcribError
from toolcrib.model.json import Json, JsonObject, as_object, as_text, is_object
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.http.client import Unreachable
from toolcrib.upstream.http.http_connection import Broken
from toolcrib.upstream.http.refused import HttpRefused
from toolcrib.upstream.http.responses import RequestRefused
from toolcrib.upstream.oauth.failures import printable, required

LONGEST_WAIT: Final = 300.0
"""Maximum `Retry-After` that is honoured, in seconds."""

_JSON_START = (b"{", b"[")


def failure(name: str, code: str, reason: str, hint: str | None = None) -> ServerFailed:
    """Return a failure of a server. `reason` completes the sentence that begins with its name."""
    return ServerFailed(code, f'Server "{name}" {reason}.', None, (), hint)


def error_for_caller(
    name: str, error: RequestRefused | Broken | Unreachable, problem: ToolcribError | None
) -> ToolcribError | ProtocolError:
    """Return the exception for the caller. `problem` is the sign-in's explanation of a rejection."""
    if isinstance(error, Broken):
        return failure(name, error.code, error.reason, error.hint)
    if isinstance(error, Unreachable):
        return failure(name, "server.unreachable", f"cannot be reached: {error}")
    if error.status == 401 or (error.status == 403 and problem is not None):
        # Each raised exception needs its own traceback.
        again = problem or required(name)
        return type(again)(again.code, again.message, again.hint)
    answer = error_in(error)
    return jsonrpc.error_of(answer) if answer is not None else refused_by_status(name, error)


def refused_by_status(name: str, refused: RequestRefused) -> HttpRefused:
    """Return the failure of a server that rejected a request."""
    return HttpRefused(f'Server "{name}" {_describe(refused)}.', refused.status, retry_after(refused))


def token_refused(name: str) -> ConfigError:
    """Return the error for a server that rejects the token in its definition; signing in would not help."""
    return ConfigError("server.token_refused", f'Server "{name}" refused the token in its definition (HTTP 401).')


def error_in(refused: RequestRefused) -> JsonObject | None:
    """Return the JSON-RPC error in the body of a rejection, or None."""
    if not refused.body.lstrip().startswith(_JSON_START):
        return None
    try:
        message = jsonrpc.read_line(refused.body)[0]
    except ValueError:
        return None
    error: Json = message.get("error")
    return error if is_object(error) and "code" in error and "message" in error else None


def _describe(refused: RequestRefused) -> str:
    status = refused.status
    if 300 <= status < 400:
        location = printable(refused.head.get(b"location") or "nowhere")
        return f"redirects to {location} (HTTP {status}), which is not followed: use that address in its definition"
    if 200 <= status < 300:
        kind = printable(refused.head.get(b"content-type") or "nothing")
        return f"answered HTTP {status} with {kind}, not an event stream"
    text = _error_text(refused)
    return f"answered with HTTP {status}" + (f": {text}" if text else "")


def _error_text(refused: RequestRefused) -> str:
    """Return the short text of a rejection that helps a user. HTML pages have none."""
    kind = (refused.head.get(b"content-type") or "").lower()
    text = refused.body[:2000].decode("utf-8", "replace").strip()
    if "json" in kind:
        try:
            document = as_object(jsonrpc.read_line(refused.body)[0]) or {}
        except ValueError:
            return ""
        words = (as_text(document.get(key)) for key in ("error_description", "message", "detail", "error", "title"))
        return printable(next((word for word in words if word), ""))
    return printable(text) if kind.startswith("text/plain") else ""


def retry_after(refused: RequestRefused) -> float | None:
    """Return the bounded delay in seconds that a server requests, or None."""
    value = refused.head.get(b"retry-after")
    if value is None:
        return None
    if value.isdecimal():
        return min(float(value[:10]), LONGEST_WAIT)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return min(max(at.timestamp() - time.time(), 0.0), LONGEST_WAIT)
