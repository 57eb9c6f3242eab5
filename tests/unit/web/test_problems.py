"""Errors as problem+json."""

import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.model.errors import CODES, NotFound
from toolcrib.web import problems
from toolcrib.web.api.reading import on_invalid
from toolcrib.web.api.shapes import ProblemDetails
from unit.web.asgi import Response, request

pytestmark = pytest.mark.anyio


class Body(BaseModel):
    number: int


def application() -> FastAPI:
    app = FastAPI(openapi_url=None)
    problems.install(app)
    app.add_exception_handler(RequestValidationError, on_invalid)

    @app.get("/fails")
    async def fails(how: str) -> None:
        raise {
            "deliberately": NotFound("tool.unknown", "There is no such tool."),
            "unexpectedly": RuntimeError("secret detail"),
            "strangely": HTTPException(418, "secret detail"),
        }[how]

    @app.post("/takes")
    async def takes(body: Body, limit: int) -> int:
        return body.number + limit

    return app


def boundary(app: ASGIApp) -> ASGIApp:
    """Handle unexpected errors like the guard: Starlette responds first and then re-raises."""

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except RuntimeError as error:
            problems.unexpected(error)

    return bounded


async def get(target: str, method: str = "GET", body: bytes = b"") -> Response:
    headers = [("host", "x"), ("content-type", "application/json")]
    return await request(boundary(application()), method, target, headers, [body])


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_a_complete_problem(code: str) -> None:
    error = CODES[code].raised_as(code, "What happened.")
    shape = problems.problem(error)
    assert ProblemDetails.model_validate(shape)
    assert shape["status"] == CODES[code].status
    assert shape["title"] == CODES[code].meaning
    assert shape["detail"] == "What happened."
    assert ("hint" in shape) == bool(CODES[code].hint)
    assert "errors" not in shape


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_can_be_written_to_a_bare_connection(code: str) -> None:
    wire = problems.on_the_wire(CODES[code].raised_as(code, "What happened."))
    head, _, body = wire.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % CODES[code].status)
    assert b"content-length: %d" % len(body) in head
    assert b"connection: close" in head
    assert b"x-content-type-options: nosniff" in head


async def test_deliberate_failure_keeps_code_message_and_status() -> None:
    response = await get("/fails?how=deliberately")
    assert response.status == 404
    assert response.header("content-type") == "application/problem+json"
    assert response.json() == problems.problem(NotFound("tool.unknown", "There is no such tool."))


@pytest.mark.parametrize("how", ["unexpectedly", "strangely"])
async def test_unexpected_failure_has_a_number_and_is_logged_once(how: str, caplog: pytest.LogCaptureFixture) -> None:
    response = await get(f"/fails?how={how}")
    assert (response.status, response.code) == (500, "internal")
    assert "secret" not in response.body.decode()
    [record] = caplog.records
    assert record.getMessage().rpartition(" ")[2] in str(response.json()["detail"])
    assert record.exc_info is not None


async def test_invalid_fields_are_named_individually() -> None:
    response = await get("/takes?limit=many", "POST", b'{"number": "x"}')
    assert (response.status, response.code) == (422, "request.invalid")
    errors = ProblemDetails.model_validate(response.json()).errors
    assert [error["path"] for error in errors] == ["query.limit", "body.number"]
    assert all(error["message"] for error in errors)


async def test_unknown_routes_and_methods_are_problems() -> None:
    unknown = await get("/nowhere")
    assert (unknown.status, unknown.code) == (404, "route.unknown")
    method = await get("/takes", "DELETE")
    assert (method.status, method.code) == (405, "route.method")
    assert method.header("allow") == "POST"


@pytest.mark.parametrize(("target", "status"), [("/nowhere", 404), ("/fails?how=unexpectedly", 500)])
async def test_browsers_get_a_page_and_fragments_a_problem(target: str, status: int) -> None:
    browser = [("host", "x"), ("accept", "text/html,*/*")]
    page = await request(boundary(application()), "GET", target, browser)
    assert (page.status, page.header("content-type")) == (status, "text/html; charset=utf-8")
    assert b'href="/">Open console</a>' in page.body
    assert b"secret" not in page.body
    fragment = await request(boundary(application()), "GET", target, [*browser, ("hx-request", "true")])
    assert fragment.header("content-type") == "application/problem+json"
