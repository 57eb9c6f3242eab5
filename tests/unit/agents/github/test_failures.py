"""What an answer other than success means: who acts, and what next."""

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.github.failures import LONGEST_REASON, failure


def failed(status: int, headers: dict[str, str] | None = None, body: Any = None) -> tuple[str, str, str]:
    """Code, message and hint."""
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
def test_every_status_has_its_code_and_a_next_step(status: int, code: str) -> None:
    found, message, hint = failed(status)
    assert found == code
    assert message.endswith((".", ")"))
    assert hint


def test_a_limit_says_when_to_come_back() -> None:
    code, _, hint = failed(429, {"retry-after": "30"})
    assert code == "github.limited"
    assert "in 30 s" in hint
    reset = str(int(time.time()) + 90)
    code, _, hint = failed(403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset})
    assert code == "github.limited"
    assert any(f"in {seconds} s" in hint for seconds in range(85, 93))
    assert failed(403, {"x-ratelimit-remaining": "7"})[0] == "github.forbidden"


@pytest.mark.parametrize("after", ["", "-1", "soon", "9" * 40, "Wed, 21 Oct 2026 07:28:00 GMT", "٣"])
def test_a_time_that_makes_no_sense_is_a_minute_or_a_day(after: str) -> None:
    _, _, hint = failed(429, {"retry-after": after})
    assert "in 60 s" in hint or "in 86400 s" in hint


def test_what_github_says_is_repeated_in_short_and_in_one_line() -> None:
    errors = [{"field": "head", "code": "invalid"}, "No commits between a and b", {"message": "A pull request exists"}]
    _, message, _ = failed(422, body={"message": "Validation\nFailed", "errors": errors})
    assert message.endswith(
        "GitHub says: Validation Failed; head invalid; No commits between a and b; A pull request exists"
    )
    _, message, _ = failed(403, body={"message": "x" * 10_000})
    assert len(message) < LONGEST_REASON + 100


@given(st.integers(300, 599), st.binary(max_size=200))
def test_no_body_is_too_strange(status: int, body: bytes) -> None:
    assert failure(status, {}, body, "GET /x").code.startswith("github.")
