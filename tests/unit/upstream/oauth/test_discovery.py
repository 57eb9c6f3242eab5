"""Reading the responses of a server before sign-in."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.upstream.oauth.demand import Challenge
from toolcrib.upstream.oauth.discovery import challenge_of, read_object, split_scopes
from toolcrib.upstream.oauth.failures import printable, required


def unauthorized_response(*headers: str) -> httpx2.Response:
    return httpx2.Response(401, headers=[("www-authenticate", header) for header in headers])


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ((), Challenge()),
        (("Basic realm=x",), Challenge()),
        (("Bearer",), Challenge()),
        (("bearer error=invalid_token",), Challenge("invalid_token")),
        (("Basic realm=x", 'Bearer scope="a b"'), Challenge(None, ("a", "b"))),
        (
            ('Bearer error="insufficient_scope", scope="read write", resource_metadata="https://a.example/x?y=1,2"',),
            Challenge("insufficient_scope", ("read", "write"), "https://a.example/x?y=1,2"),
        ),
    ],
)
def test_challenge_is_read(headers: tuple[str, ...], challenge: Challenge) -> None:
    assert challenge_of(unauthorized_response(*headers)) == challenge


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200))
def test_any_header_is_read(text: str) -> None:
    challenge = challenge_of(unauthorized_response(f"Bearer {text}"))
    assert all(scope and " " not in scope for scope in challenge.scopes)


def test_scopes_are_single_words_without_duplicates() -> None:
    assert split_scopes('read  read write "x" a\\b') == ("read", "write")
    assert split_scopes(None) == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff", b"<html>"])
def test_content_that_is_not_an_object_is_ignored(content: bytes) -> None:
    assert read_object(content) is None


def test_untrusted_text_is_escaped_and_cut() -> None:
    assert printable("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert len(printable("x" * 1000)) < 130


def test_message_for_missing_sign_in_names_the_command() -> None:
    assert required("lab").message == 'Authentication required for "lab".'
    assert required("lab").hint == "Run `toolcrib mcp auth lab`."
