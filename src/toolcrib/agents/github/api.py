"""A client of GitHub's REST API: one base URL, one token, bounded responses.

The token is sent only to URLs below the base URL: a redirect or a next page elsewhere is refused. Requests that change
something are never redirected, since the new location may belong to another owner.

Must never reveal the token.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from toolcrib.agents.github.failures import failure
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_array, is_object

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = lazy_module("httpx2")

TIMEOUT: Final = 30.0
"""Seconds allowed for one request, including its response."""
LARGEST_ANSWER: Final = 8 * 1024 * 1024
PER_PAGE: Final = 100
MOST_PAGES: Final = 10
_MOST_REDIRECTS: Final = 3
_LARGEST_FAILURE: Final = 64 * 1024
_JSON: Final = "application/vnd.github+json"
_DIFF: Final = "application/vnd.github.diff"
_VERSION: Final = "2022-11-28"


class Api:
    """Sends requests to one GitHub. The client must not follow redirects itself."""

    def __init__(self, http: "httpx2.AsyncClient", base: str, token: str) -> None:
        self._http = http
        self._base = httpx2.URL(base.rstrip("/") + "/")
        self._token = token

    async def get(self, path: str, params: Mapping[str, str | int] | None = None) -> JsonObject:
        """Return one object."""
        answer = await self._json("GET", self._url(path, params))
        if not is_object(answer[0]):
            raise _unusable(path, "not a JSON object")
        return answer[0]

    async def send(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """Send a change; return the response's object, or an empty one."""
        answer, _ = await self._json(method, self._url(path, None), body)
        return answer if is_object(answer) else {}

    async def pages(
        self, path: str, params: Mapping[str, str | int], enough: int, *, without: str = ""
    ) -> list[JsonObject]:
        """Return up to `enough` objects of a paginated list, leaving out those with the member `without`."""
        found: list[JsonObject] = []
        url = self._url(path, {**params, "per_page": PER_PAGE if without else min(enough, PER_PAGE)})
        for _ in range(MOST_PAGES):
            answer, following = await self._json("GET", url)
            if not is_array(answer):
                raise _unusable(path, "not a JSON list")
            found += [each for each in answer if is_object(each) and (not without or without not in each)]
            if len(found) >= enough or following is None:
                break
            url = self._own(url, following)
        return found[:enough]

    async def diff(self, path: str, longest: int) -> tuple[str, bool]:
        """Return a diff of at most `longest` bytes, and whether it was truncated."""
        url = self._url(path, None)
        async with self._answer("GET", url, accept=_DIFF) as response:
            content, is_more = await _read(response, longest, path)
        return content.decode(errors="replace"), is_more

    async def _json(self, method: str, url: "httpx2.URL", body: JsonObject | None = None) -> tuple[Json, str | None]:
        """Return the response, and the URL of the next page."""
        async with self._answer(method, url, body) as response:
            content, is_more = await _read(response, LARGEST_ANSWER, url.path)
            following = response.links.get("next", {}).get("url")
        if is_more:
            raise _unusable(url.path, f"larger than {LARGEST_ANSWER} bytes")
        try:
            return (orjson.loads(content) if content else None), following
        except orjson.JSONDecodeError:
            raise _unusable(url.path, "not JSON") from None

    @asynccontextmanager
    async def _answer(
        self, method: str, url: "httpx2.URL", body: JsonObject | None = None, accept: str = _JSON
    ) -> "AsyncGenerator[httpx2.Response]":
        """Yield a successful response with its body unread. Raises a `github.…` error otherwise."""
        about = f"{method} {url.path}"
        headers = {"accept": accept, "authorization": f"Bearer {self._token}", "x-github-api-version": _VERSION}
        try:
            with anyio.fail_after(TIMEOUT):
                for _ in range(_MOST_REDIRECTS + 1):
                    async with self._http.stream(method, url, headers=headers, json=body) as response:
                        if not response.has_redirect_location:
                            if not response.is_success:
                                content, _ = await _read(response, _LARGEST_FAILURE, about)
                                raise failure(response.status_code, response.headers, content, about)
                            yield response
                            return
                        url = self._elsewhere(method, url, response.headers["location"])
                raise Unavailable("github.failed", f"GitHub redirected too often ({about}).")
        except TimeoutError:
            raise Unavailable("github.failed", f"GitHub did not answer within {TIMEOUT:g} s ({about}).") from None
        except httpx2.HTTPError as error:
            raise Unavailable("github.failed", f"GitHub cannot be reached ({about}): {_words(error)}") from None

    def _elsewhere(self, method: str, url: "httpx2.URL", location: str) -> "httpx2.URL":
        if method != "GET":
            hint = "Get its current name with `crib_github_repo_info` and use that."
            raise InvalidRequest("github.refused", f"The repository was moved ({method} {url.path}).", hint)
        return self._own(url, location)

    def _own(self, url: "httpx2.URL", location: str) -> "httpx2.URL":
        """Resolve a URL sent by GitHub; refuse it unless it is below the base URL."""
        try:
            following = url.join(location)
            if following.origin == self._base.origin and following.path.startswith(self._base.path):
                return following
        except (httpx2.InvalidURL, ValueError):
            pass
        message = f"GitHub redirected to another host ({url.path}). The token is not sent there."
        raise Unavailable("github.failed", message, "Check `github_url`.")

    def _url(self, path: str, params: Mapping[str, str | int] | None) -> "httpx2.URL":
        url = self._base.copy_with(path=self._base.path + path)
        return url.copy_merge_params(params) if params else url


async def _read(response: "httpx2.Response", most: int, about: str) -> tuple[bytes, bool]:
    """Read at most `most` bytes of a body; return them, and whether it was truncated."""
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > most:
            return bytes(content[:most]), True
    return bytes(content), False


def _unusable(path: str, why: str) -> ToolcribError:
    return Unavailable("github.failed", f"GitHub's response is invalid ({path}): {why}.", "Check `github_url`.")


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]
