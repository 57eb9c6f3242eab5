"""Maps GitHub's error responses to failures with a next step. Pure, apart from the clock.

Must never put the request's headers into a message.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import orjson

from toolcrib.model.errors import (
    ConfigError,
    Denied,
    InvalidRequest,
    NotFound,
    ToolcribError,
    Unavailable,
)
from toolcrib.model.json import Json, is_array, is_object

LONGEST_REASON: Final = 400
_A_MINUTE: Final = 60
_A_DAY: Final = 86_400


def failure(status: int, headers: Mapping[str, str], body: bytes, about: str) -> ToolcribError:
    """Return the failure for a response; `about` describes the request."""
    reason = _reason(body)
    detail = f" GitHub says: {reason}" if reason else ""
    wait = _wait(status, headers)
    if wait is not None:
        until = datetime.fromtimestamp(time.time() + wait, UTC).isoformat(timespec="seconds")
        hint = f"Retry at {until}, in {wait} s."
        return Unavailable("github.limited", f"The rate limit of the GitHub token is reached ({about}).", hint)
    if status == 401:
        return ConfigError("github.token", "GitHub rejected the token.")
    if status == 403:
        return Denied("github.forbidden", f"The GitHub token lacks the permission for this ({about}).{detail}")
    if status in (404, 410):
        return NotFound(
            "github.unknown", f"GitHub did not find this, or the token has no access to it: {about}.{detail}"
        )
    if status == 406:
        hint = "Read the commits, or the files on disk."
        return InvalidRequest("github.refused", f"GitHub does not return this because it is too large: {about}.", hint)
    if 400 <= status < 500:
        return InvalidRequest("github.refused", f"GitHub refused the request ({about}, status {status}).{detail}")
    return Unavailable("github.failed", f"GitHub answered with status {status} ({about}).", "Try again in a minute.")


def _wait(status: int, headers: Mapping[str, str]) -> int | None:
    """Return the seconds to wait if the request was rate limited, else None."""
    is_used_up = headers.get("x-ratelimit-remaining") == "0"
    if status != 429 and not (status == 403 and (is_used_up or "retry-after" in headers)):
        return None
    after = _whole(headers.get("retry-after"))
    if after is None and is_used_up:
        reset = _whole(headers.get("x-ratelimit-reset"))
        after = None if reset is None else reset - int(time.time()) + 1
    return min(max(after if after is not None else _A_MINUTE, 1), _A_DAY)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 12 else None


def _reason(body: bytes) -> str:
    """Return the response's own explanation: its message and the invalid fields."""
    try:
        answer: Json = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not is_object(answer):
        return ""
    words = "; ".join(dict.fromkeys(part for part in _parts(answer) if part))
    return "".join(character if character.isprintable() else " " for character in words)[:LONGEST_REASON]


def _parts(answer: Mapping[str, Json]) -> Iterator[str]:
    message: Json = answer.get("message")
    yield message if isinstance(message, str) else ""
    errors: Json = answer.get("errors")
    for error in (errors if is_array(errors) else ())[:5]:
        if isinstance(error, str):
            yield error
        elif is_object(error):
            given = (error.get(name) for name in ("message", "field", "code"))
            texts = [text for text in given if isinstance(text, str)]
            yield texts[0] if isinstance(error.get("message"), str) else " ".join(texts)
