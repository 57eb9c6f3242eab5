"""GitHub's error responses become errors with a code, a message and a hint."""

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.github.failures import LONGEST_REASON, failure


def error_parts(status: int, headers: dict[str, str] | None = None, body: Any = None) -> tuple[str, str, str]:
    """Return the code, message and hint of a response."""
    error = failure(status, headers or {}, b"" if body is None else orjson.dumps(body), "GET /x")
    return error.code, error.message, error.hint or ""


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "github.token"),
        (403, "github.forbidden"),
        (404, "github.unknown"),
        (410, "github.unknown"),
        (406, "github.refused"),
        (409, "github.refused"),
        (422, "github.refused"),
        (429, "github.limited"),
        (500, "github.failed"),
        (503, "github.failed"),
        (302, "github.failed"),
    ],
)
def test_each_status_maps_to_a_code_and_has_a_hint(status: int, code: str) -> None:
    found, message, hint = error_parts(status)
    assert found == code
    assert message.endswith((".", ")"))
    assert hint


def test_rate_limit_hint_states_the_seconds_to_wait() -> None:
    code, _, hint = error_parts(429, {"retry-after": "30"})
    assert code == "github.limited"
    assert "in 30 s" in hint
    reset = str(int(time.time()) + 90)
    code, _, hint = error_parts(403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset})
    assert code == "github.limited"
    assert any(f"in {seconds} s" in hint for seconds in range(85, 93))
    assert error_parts(403, {"x-ratelimit-remaining": "7"})[0] == "github.forbidden"


@pytest.mark.parametrize("after", ["", "-1", "soon", "9" * 40, "Wed, 21 Oct 2026 07:28:00 GMT", "٣"])
def test_invalid_retry_after_falls_back_to_a_minute_or_is_capped_at_a_day(after: str) -> None:
    _, _, hint = error_parts(429, {"retry-after": after})
    assert "in 60 s" in hint or "in 86400 s" in hint


def test_message_repeats_githubs_errors_in_one_short_line() -> None:
    errors = [{"field": "head", "code": "invalid"}, "No commits between a and b", {"message": "A pull request exists"}]
    _, message, _ = error_parts(422, body={"message": "Validation\nFailed", "errors": errors})
    assert message.endswith(
        "GitHub says: Validation Failed; head invalid; No commits between a and b; A pull request exists"
    )
    _, message, _ = error_parts(403, body={"message": "x" * 10_000})
    assert len(message) < LONGEST_REASON + 100


@given(st.integers(300, 599), st.binary(max_size=200))
def test_any_response_body_yields_a_github_error(status: int, body: bytes) -> None:
    assert failure(status, {}, body, "GET /x").code.startswith("github.")
