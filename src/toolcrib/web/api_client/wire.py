"""HTTP transport to a crib: sends requests and raises problem responses as the original errors.

Must never send the token anywhere but to the given address: no redirects, no proxies, nothing from the environment.
"""

import json
import ssl
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from typing import NoReturn
from urllib.parse import quote

import httpx2
import orjson

from toolcrib.model.errors import CODES, ToolcribError, Unavailable
from toolcrib.model.events import Event
from toolcrib.model.json import Json, JsonObject, loads
from toolcrib.model.principals import Source

Param = str | int | list[str] | None

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_QUIET_STREAM_SECONDS = 60.0


def path_to(base: str, *names: str) -> str:
    """Return the path with each name percent-encoded, so that a name cannot change the structure."""
    return "/".join([base, *(quote(name, safe="") for name in names)])


class Wire:
    """A connection to one crib. Every request carries its source and working directory."""

    def __init__(self, url: str, token: str, source: Source | None, cwd: str | None) -> None:
        known = {"source": source, "cwd": cwd}
        self._http = httpx2.AsyncClient(
            base_url=url,
            params={name: value for name, value in known.items() if value is not None},
            headers={"authorization": f"Bearer {token}", "accept": "application/json"},
            timeout=httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            # Plain HTTP on loopback. A context without CA certificates is cheap to create and trusts no host.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, Param] | None = None,
        *,
        body: Json = None,
        patient: bool = False,
    ) -> Json:
        """Send a request and return its JSON. With `patient`, wait without a timeout."""
        # The standard encoder accepts integers of any size, which the crib should validate.
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(None if patient else _ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        with _translate_errors():
            response = await self._http.request(
                method, path, params=_query(params or {}), content=content, headers=headers, timeout=timeout
            )
        if not response.is_success:
            _raise_problem(response.status_code, response.content)
        return _parse(response.content) if response.content else None

    async def events(self, path: str, params: Mapping[str, Param]) -> AsyncIterator[Event]:
        """Yield the events of a stream until the crib ends it."""
        timeout = httpx2.Timeout(_QUIET_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        with _translate_errors():
            async with self._http.sse(path, params=_query(params), timeout=timeout) as stream:
                if not stream.response.is_success:
                    _raise_problem(stream.response.status_code, await stream.response.aread())
                async for event in stream:
                    data = _parse(event.data)
                    yield Event(int(event.id), str(data.pop("at")), event.event, _without(data, "seq", "kind"))

    async def lines(self, path: str, params: Mapping[str, Param]) -> AsyncIterator[bytes]:
        """Yield the bytes of a long response as they arrive."""
        timeout = httpx2.Timeout(_QUIET_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        with _translate_errors():
            async with self._http.stream("GET", path, params=_query(params), timeout=timeout) as response:
                if not response.is_success:
                    _raise_problem(response.status_code, await response.aread())
                async for piece in response.aiter_bytes():
                    yield piece


def _query(params: Mapping[str, Param]) -> dict[str, str | int | list[str]]:
    return {name: value for name, value in params.items() if value is not None}


def _without(data: JsonObject, *names: str) -> JsonObject:
    return {name: value for name, value in data.items() if name not in names}


def _parse(content: bytes | str) -> Json:
    try:
        return loads(content)
    except orjson.JSONDecodeError as error:
        raise Unavailable("internal", "The program at the crib's address did not return JSON.") from error


def _raise_problem(status: int, content: bytes) -> NoReturn:
    """Raise the reported problem as the error class of its code."""
    try:
        shape: Json = loads(content)
    except orjson.JSONDecodeError:
        shape = None
    match shape:
        case {"code": str(code), "detail": str(detail), **rest}:
            hint = rest.get("hint")
            hint = hint if isinstance(hint, str) else None
            raised: type[ToolcribError] = CODES[code].raised_as if code in CODES else Unavailable
            raise raised(code if code in CODES else "internal", _without_places(detail, shape), hint)
        case _:
            raise Unavailable("internal", f"The crib returned status {status} without a reason.")


def _without_places(detail: str, problem: JsonObject) -> str:
    """Return the detail with the names of invalid fields only: callers do not know which part of a request has them."""
    errors: list[JsonObject] = problem.get("errors", [])
    for path in (str(each["path"]) for each in errors):
        _, dot, name = path.partition(".")
        if dot:
            detail = detail.replace(f"{path}: ", f"{name}: ", 1)
    return detail


@contextmanager
def _translate_errors() -> Generator[None]:
    """Convert transport errors: `crib.unreachable` never reached the crib, `crib.closed` may have."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise Unavailable("crib.unreachable", "The running crib does not respond.") from error
    except httpx2.TransportError as error:
        message = f"The crib closed the connection before responding ({type(error).__name__})."
        raise Unavailable("crib.closed", message, "Check `toolcrib audit` to see whether the call ran.") from error
