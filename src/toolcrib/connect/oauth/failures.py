"""What is said when signing in does not work. The sentences begin with words that people search for.

Above: the other modules here. Below: `errors`. It must never show a text of another party that was not cut and cleaned.
"""

from collections.abc import Generator
from contextlib import contextmanager

import httpx2

from toolcrib.errors import InvalidRequest, ToolcribError, Unavailable

_LONGEST = 120


def failed(reason: str, hint: str | None = None) -> Unavailable:
    """A sign-in that went wrong."""
    return Unavailable("oauth.failed", f"OAuth authentication failed: {reason}", hint)


def timed_out() -> Unavailable:
    """A sign-in that nobody finished."""
    return Unavailable("oauth.timeout", "OAuth flow timed out. Please try again.")


def required(server: str, wanted: tuple[str, ...] = ()) -> Unavailable:
    """A server that wants its owner to sign in, or to grant more than before."""
    more = f": it wants the rights {shown(' '.join(wanted))}" if wanted else ""
    return Unavailable(
        "oauth.required",
        f'Authentication required for "{server}"{more}.',
        f"Run `toolcrib mcp auth {server}`.",
    )


def shown(text: str) -> str:
    """A text of another party, fit to be shown: visible ASCII, and not much of it."""
    clean = ascii(text)[1:-1]
    return clean if len(clean) <= _LONGEST else f"{clean[:_LONGEST]}…"


@contextmanager
def reported() -> Generator[None]:
    """Turn what can happen on the way to another party into a failed sign-in."""
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
