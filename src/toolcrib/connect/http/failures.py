"""What is said when a server on the web cannot be used: one sentence, and a code that a link can act on.

Above: the conversations. Below: `errors`, and the sentences of `oauth`. It must never show a text of a server that was
not cut and cleaned.
"""

import email.utils
import time
from typing import Final

from toolcrib.config.values import as_object, as_text
from toolcrib.connect import wire
from toolcrib.connect.http.answers import Refused
from toolcrib.connect.http.client import Unreachable
from toolcrib.connect.http.connection import Broken
from toolcrib.connect.oauth.failures import required, shown
from toolcrib.connect.process import ServerFailed
from toolcrib.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.sources import ProtocolError

LONGEST_WAIT: Final = 300.0
"""The longest a server may send a caller away, in seconds."""

_JSON_START = (b"{", b"[")


class HttpRefused(ServerFailed):
    """A refusal by HTTP status. `retry_after` is how many seconds the server wants to be left alone."""

    def __init__(self, name: str, refused: Refused) -> None:
        super().__init__("server.http_status", f'Server "{name}" {_in_words(refused)}.', None, ())
        self.http_status = refused.status
        self.retry_after = _retry_after(refused.head.get(b"retry-after"))


def failure(name: str, code: str, reason: str) -> ServerFailed:
    """A failure of a server; the reason is the rest of a sentence that begins with its name."""
    return ServerFailed(code, f'Server "{name}" {reason}.', None, ())


def told(
    name: str, error: Refused | Broken | Unreachable, problem: ToolcribError | None
) -> ToolcribError | ProtocolError:
    """What the caller is told. `problem` is what the sign-in knows of a refusal."""
    if isinstance(error, Broken):
        return failure(name, error.code, error.reason)
    if isinstance(error, Unreachable):
        return failure(name, "server.unreachable", f"cannot be reached: {error}")
    if error.status == 401 or (error.status == 403 and problem is not None):
        # A new exception for each who is told, since each collects its own traceback.
        again = problem or required(name)
        return type(again)(again.code, again.message, again.hint)
    said = error_in(error)
    return wire.error_of(said) if said is not None else HttpRefused(name, error)


def error_in(refused: Refused) -> JsonObject | None:
    """The JSON-RPC error in the body of a refusal, if there is one."""
    if not refused.body.lstrip().startswith(_JSON_START):
        return None
    try:
        message = wire.read_line(refused.body)[0]
    except ValueError:
        return None
    error: Json = message.get("error")
    return error if is_object(error) and "code" in error and "message" in error else None


def _in_words(refused: Refused) -> str:
    status = refused.status
    if 300 <= status < 400:
        location = shown(refused.head.get(b"location") or "nowhere")
        return f"leads on to {location} (HTTP {status}), which is not followed: write that address in its definition"
    if 200 <= status < 300:
        return f"answered HTTP {status} with {shown(refused.head.get(b'content-type') or 'nothing')}, not with events"
    said = _said(refused)
    return f"answered with HTTP {status}" + (f": {said}" if said else "")


def _said(refused: Refused) -> str:
    """The few words of a refusal that a person can use; pages for browsers have none."""
    kind = (refused.head.get(b"content-type") or "").lower()
    text = refused.body[:2000].decode("utf-8", "replace").strip()
    if "json" in kind:
        try:
            document = as_object(wire.read_line(refused.body)[0]) or {}
        except ValueError:
            return ""
        words = (as_text(document.get(key)) for key in ("error_description", "message", "detail", "error", "title"))
        return shown(next((word for word in words if word), ""))
    return shown(text) if kind.startswith("text/plain") else ""


def _retry_after(value: str | None) -> float | None:
    if value is None:
        return None
    if value.isdecimal():
        return min(float(value[:10]), LONGEST_WAIT)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return min(max(at.timestamp() - time.time(), 0.0), LONGEST_WAIT)
