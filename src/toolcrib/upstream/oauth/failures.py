"""Errors of sign-ins. Their messages begin with words that users search for.

Must never show another party's text that was not truncated and cleaned.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unavailable

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = lazy_module("httpx2")

_LONGEST = 120


def failed(reason: str, hint: str | None = None) -> Unavailable:
    """Return the error for a failed sign-in."""
    return Unavailable("oauth.failed", f"OAuth authentication failed: {reason}", hint)


def timed_out() -> Unavailable:
    """Return the error for a sign-in that was not finished in time."""
    return Unavailable("oauth.timeout", "OAuth flow timed out. Please try again.")


def required(server: str, wanted: tuple[str, ...] = ()) -> Unavailable:
    """Return the error for a server that requires a sign-in or additional scopes."""
    more = f": it requires the scopes {printable(' '.join(wanted))}" if wanted else ""
    return Unavailable(
        "oauth.required",
        f'Authentication required for "{server}"{more}.',
        f"Run `toolcrib mcp auth {server}`.",
    )


def printable(text: str) -> str:
    """Return another party's text as printable ASCII, truncated."""
    clean = ascii(text)[1:-1]
    return clean if len(clean) <= _LONGEST else f"{clean[:_LONGEST]}…"


@contextmanager
def raise_as_failed() -> Generator[None]:
    """Convert network errors into a failed sign-in."""
    try:
        yield
    except httpx2.HTTPError as error:
        raise failed(str(error) or f"the connection broke ({type(error).__name__}).") from error
    except TimeoutError as error:
        raise failed("the server did not answer in time.") from error
    except InvalidRequest as error:
        raise failed(error.message) from error
    except ToolcribError as error:
        if error.code != "address.refused":
            raise
        raise failed(error.message) from error
