"""A fake GitHub for tests: the used routes with status codes, pages and limits; and faulty hosts."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from integration.upstream.http.harness import serve_app
from integration.upstream.oauth.authority import shared_web
from toolcrib.agents.github.api import Api
from toolcrib.agents.github.github import GitHub
from toolcrib.model.json import JsonObject

TOKEN = "ghp_aGoodToken0123456789"
PREFIX = "/api/v3"


@dataclass(frozen=True)
class RecordedRequest:
    """A recorded request."""

    method: str
    path: str
    query: dict[str, str]
    token: str | None
    body: Any


def issue(number: int, **more: Any) -> JsonObject:
    """Return an issue in GitHub's format."""
    return {
        "number": number, "title": f"Issue {number}", "state": "open", "user": {"login": "ada"}, "labels": [],
        "comments": 2, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-02T00:00:00Z",
        "html_url": f"https://hub.example/acme/app/issues/{number}", "body": "It breaks.", **more,
    }  # fmt: skip


def pull(number: int, **more: Any) -> JsonObject:
    """Return a pull request in GitHub's format."""
    return issue(number, draft=False, head={"ref": "fix", "label": "acme:fix"}, base={"ref": "trunk"}) | more


def repository(full_name: str, **more: Any) -> JsonObject:
    """Return a repository in GitHub's format."""
    return {
        "full_name": full_name, "description": "An app.", "html_url": f"https://hub.example/{full_name}",
        "default_branch": "trunk", "language": "Python", "license": {"spdx_id": "MIT"}, "topics": ["tools"],
        "stargazers_count": 5, "forks_count": 1, "open_issues_count": 2, "private": False, "fork": False,
        "archived": False, "pushed_at": "2026-01-03T00:00:00Z", **more,
    }  # fmt: skip


@dataclass
class FakeGitHub:
    """A GitHub with the repository `acme/app`, an archived and a moved one; it records every request."""

    port: int = 0
    remaining: int = 4_999
    retry_after: str | None = None
    issues: list[JsonObject] = field(default_factory=list[JsonObject])
    pulls: list[JsonObject] = field(default_factory=list[JsonObject])
    diff: str = "diff --git a/x b/x\n+more\n"
    may_label: bool = True
    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])

    @property
    def url(self) -> str:
        """The base URL of the API."""
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    @property
    def writes(self) -> list[RecordedRequest]:
        """The requests that would change something."""
        return [each for each in self.requests if each.method != "GET"]

    def app(self) -> Starlette:
        """Return the application."""
        repo = PREFIX + "/repos/{owner}/{name}"
        one = "/{number:int}"
        routes: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("PUT", PREFIX + "/user/starred/{owner}/{name}", self._star),
            ("DELETE", PREFIX + "/user/starred/{owner}/{name}", self._star),
            ("PUT", PREFIX + "/user/following/{user}", self._follow),
            ("GET", PREFIX + "/repositories/7", self._seventh),
            ("GET", repo, self._repository),
            ("POST", f"{repo}/forks", self._fork),
            ("GET", f"{repo}/pulls", self._pulls),
            ("POST", f"{repo}/pulls", self._open_pull),
            ("GET", f"{repo}/pulls{one}", self._diff),
            ("POST", f"{repo}/pulls{one}/reviews", self._review),
            ("GET", f"{repo}/issues", self._issues),
            ("POST", f"{repo}/issues", self._open_issue),
            ("POST", f"{repo}/issues{one}/comments", self._comment),
            ("POST", f"{repo}/issues{one}/labels", self._label),
        ]
        return Starlette(
            routes=[Route(path, self._recorded(handler), methods=[verb]) for verb, path, handler in routes]
        )

    def _recorded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            body: Any = await request.json() if await request.body() else None
            token = request.headers.get("authorization")
            self.requests.append(
                RecordedRequest(request.method, request.url.path, dict(request.query_params), token, body)
            )
            response = await self._respond(request, token, handler)
            reset = int(time.time()) + 120
            response.headers["x-ratelimit-limit"] = "5000"
            response.headers["x-ratelimit-remaining"] = str(self.remaining)
            response.headers["x-ratelimit-reset"] = str(reset)
            return response

        return answer

    async def _respond(
        self, request: Request, token: str | None, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        if token != f"Bearer {TOKEN}":
            return error_response(401, "Bad credentials")
        if self.retry_after is not None:
            return JSONResponse(
                {"message": "You have exceeded a secondary rate limit."}, 429, {"retry-after": self.retry_after}
            )
        if self.remaining == 0:
            return error_response(403, "API rate limit exceeded for user ID 1.")
        name = "/".join(filter(None, (request.path_params.get("owner"), request.path_params.get("name"))))
        if name == "acme/moved":
            return RedirectResponse(f"{PREFIX}/repositories/7", 301 if request.method == "GET" else 307)
        if name == "acme/old" and request.method != "GET":
            return error_response(403, "Repository was archived so is read-only.")
        if name not in ("", "acme/app", "acme/old", "other/app"):
            return error_response(404, "Not Found")
        return await handler(request)

    async def _star(self, request: Request) -> Response:
        return Response(status_code=204)

    async def _follow(self, request: Request) -> Response:
        known = request.path_params["user"] in ("ada", "acme")
        return Response(status_code=204) if known else error_response(404, "Not Found")

    async def _repository(self, request: Request) -> Response:
        return JSONResponse(repository(f"{request.path_params['owner']}/{request.path_params['name']}"))

    async def _seventh(self, request: Request) -> Response:
        return JSONResponse(repository("acme/renamed"))

    async def _fork(self, request: Request) -> Response:
        into = (await request.json()).get("organization", "me")
        return JSONResponse(repository(f"{into}/{request.path_params['name']}", fork=True), 202)

    async def _pulls(self, request: Request) -> Response:
        return self._paged(request, self.pulls)

    async def _issues(self, request: Request) -> Response:
        return self._paged(request, self.issues)

    async def _open_pull(self, request: Request) -> Response:
        body = await request.json()
        if body["head"] == "nowhere":
            errors = [{"resource": "PullRequest", "field": "head", "code": "invalid"}]
            return JSONResponse({"message": "Validation Failed", "errors": errors}, 422)
        created = pull(41, title=body["title"], base={"ref": body["base"]}, body=body["body"])
        return JSONResponse(created, 201)

    async def _open_issue(self, request: Request) -> Response:
        body = await request.json()
        if body["title"] == "gone":
            return error_response(410, "Issues has been disabled in this repository.")
        created = issue(
            42, title=body["title"], labels=[{"name": label} for label in body["labels"]], body=body["body"]
        )
        return JSONResponse(created, 201)

    async def _diff(self, request: Request) -> Response:
        if request.headers["accept"] != "application/vnd.github.diff":
            return error_response(415, "Unsupported Media Type")
        if request.path_params["number"] == 406:
            return error_response(406, "Sorry, the diff exceeded the maximum number of lines (20000)")
        return PlainTextResponse(self.diff)

    async def _review(self, request: Request) -> Response:
        body = await request.json()
        if body["event"] == "APPROVE" and request.path_params["number"] == 1:
            return JSONResponse(
                {"message": "Unprocessable Entity", "errors": ["Can not approve your own pull request"]}, 422
            )
        state = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}[body["event"]]
        return JSONResponse({"state": state, "html_url": "https://hub.example/review"})

    async def _comment(self, request: Request) -> Response:
        return JSONResponse({"html_url": "https://hub.example/comment"}, 201)

    async def _label(self, request: Request) -> Response:
        if not self.may_label:
            return error_response(403, "Must have push access to label.")
        return JSONResponse([{"name": label} for label in (await request.json())["labels"]])

    def _paged(self, request: Request, rows: list[JsonObject]) -> Response:
        state = request.query_params.get("state", "open")
        matching = [row for row in rows if state in ("all", row["state"])]
        size, page = int(request.query_params.get("per_page", "30")), int(request.query_params.get("page", "1"))
        following = request.url.include_query_params(page=page + 1)
        headers = (
            {"link": f'<{following}>; rel="next", <{following}>; rel="last"'} if page * size < len(matching) else {}
        )
        return JSONResponse(matching[(page - 1) * size : page * size], headers=headers)


def error_response(status: int, message: str) -> Response:
    """Return an error response in GitHub's format."""
    return JSONResponse({"message": message, "documentation_url": "https://docs.github.com/rest"}, status)


@asynccontextmanager
async def open_fake_github() -> AsyncGenerator[FakeGitHub]:
    """Run a fake GitHub."""
    hub = FakeGitHub()
    async with serve_app(hub.app()) as port:
        hub.port = port
        yield hub


@asynccontextmanager
async def open_host(answer: Callable[[Request], Awaitable[Response]]) -> AsyncGenerator[str]:
    """Run a host with one handler for all requests and yield its base URL."""
    methods = ["GET", "POST", "PUT", "DELETE"]
    async with serve_app(Starlette(routes=[Route("/{path:path}", answer, methods=methods)])) as port:
        yield f"http://127.0.0.1:{port}{PREFIX}"


@asynccontextmanager
async def client(base: str, token: str = TOKEN, **rules: Any) -> AsyncGenerator[GitHub]:
    """Open a GitHub client for this URL."""
    async with http_client() as http:
        yield GitHub(Api(http, base, token), **{"label": "toolcrib", "owners": None, **rules})


def http_client() -> httpx2.AsyncClient:
    """Return an HTTP client as a crib creates it."""
    return shared_web().client(local_allowed=True)


def endless(_: Request) -> StreamingResponse:
    """Return a body that exceeds every limit."""

    async def body() -> AsyncGenerator[bytes]:
        for _ in range(64):
            yield b"[" * (1024 * 1024)

    return StreamingResponse(body(), media_type="application/json")
