"""Request handling: strict bodies, principals, and work that is cancelled with its client.

Must never let a principal other than the owner act in another name.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive

from toolcrib.gate.principals import Door, Principals
from toolcrib.host import Crib
from toolcrib.model.errors import Denied, InvalidRequest
from toolcrib.model.json import Json, JsonObject, MalformedJson, dumps, parse_strict, refuse_long_integers
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.web import problems
from toolcrib.web.limits import PRINCIPAL

Answer = TypeVar("Answer")


def on_invalid(_: Request, error: Exception) -> Response:
    """Return the problem response for invalid fields, with their paths and messages."""
    assert isinstance(error, RequestValidationError)
    errors = [{"path": ".".join(map(str, each["loc"])), "message": str(each["msg"])} for each in error.errors()]
    summary = "; ".join(f"{each['path']}: {each['message']}" for each in errors)
    return problems.response(InvalidRequest("request.invalid", summary), errors)


class _StrictRequest(Request):
    """A request whose JSON was already parsed strictly."""

    parsed: Json = None

    async def json(self) -> Json:
        return self.parsed


class StrictRoute(APIRoute):
    """A route whose body, if any, is unambiguous JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Parse the body before FastAPI does, which is less strict and hides the reason of a refusal."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        is_optional = not self.body_field.field_info.is_required()

        async def handle_strictly(request: Request) -> Response:
            strict = _StrictRequest(request.scope, request.receive)
            if is_optional and not await strict.body():
                return await handle(strict)
            _check_media_type(strict.headers.get("content-type"))
            try:
                body = await strict.body()
                strict.parsed = parse_strict(body)
                refuse_long_integers(strict.parsed, body, but_in="arguments")
            except MalformedJson as error:
                raise InvalidRequest("request.malformed", f"The body is not JSON: {error}.") from error
            return await handle(strict)

        return handle_strictly


def _check_media_type(content_type: str | None) -> None:
    message = Message()
    message["content-type"] = content_type or ""
    charset = message.get_content_charset("utf-8")
    if message.get_content_type() != "application/json" or charset != "utf-8":
        raise InvalidRequest("request.media_type", f"The body is {content_type or 'of unknown type'}, not JSON.")


def principal_of(principals: Principals) -> Callable[..., Principal]:
    """Return a dependency for the principal. The owner may act under another source, agent, mode or session."""

    def caller(
        request: Request,
        source: Annotated[Source | None, Query(description="Act with this source; owner only.")] = None,
        agent: Annotated[
            str | None, Query(description="Act as this agent; owner only.", min_length=1, max_length=200)
        ] = None,
        mode: Annotated[Mode | None, Query(description="Act in this mode; owner only.")] = None,
        session: Annotated[
            str | None, Query(description="Act in this session; owner only.", min_length=1, max_length=200)
        ] = None,
        cwd: Annotated[str | None, Query(description="The working directory.", min_length=1, max_length=4096)] = None,
    ) -> Principal:
        asking: Principal = request.scope[PRINCIPAL]
        if asking.is_owner:
            return principals.owner(source or asking.source, mode=mode, agent=agent, session=session, cwd=cwd)
        if any((source, agent, mode, session)):
            raise Denied("policy.denied", "Only the owner may act for another principal.")
        return asking

    return caller


def owner_only(crib: Crib) -> Callable[..., Principal]:
    """Return a dependency for the principal that raises unless it is the owner."""
    ask = principal_of(crib.principals)

    def caller(principal: Annotated[Principal, Depends(ask)]) -> Principal:
        check_owner(principal)
        return principal

    return caller


def viewer_of(crib: Crib) -> Callable[..., Awaitable[Principal]]:
    """Return a dependency for the principal whose view is requested.

    A session that the owner names is viewed as itself, with its source and directory; `agent` and `mode` override its
    own. The dependency raises `session.unknown`.
    """
    ask = principal_of(crib.principals)

    async def viewer(request: Request, principal: Annotated[Principal, Depends(ask)]) -> Principal:
        if principal.session is None or not principal.is_owner:
            return principal
        session = await crib.sessions.get(await crib.sessions.resolve(principal.session))
        named = request.query_params
        return replace(
            session.principal,
            agent=principal.agent if "agent" in named else session.principal.agent,
            mode=principal.mode if "mode" in named else session.principal.mode,
        )

    return viewer


def check_owner(principal: Principal) -> None:
    if not principal.is_owner:
        raise Denied("policy.denied", "Only the owner may do this.")


def door_of(request: Request, principal: Principal) -> Door:
    """Return the door that a request came through."""
    if request.scope[PRINCIPAL].source == "web":
        return "console"
    return "cli" if principal.source == "cli" else "api"


def cwd_of(crib: Crib, principal: Principal) -> Path | None:
    """Return the principal's project directory, or the default one."""
    return path_of(principal.cwd) if principal.cwd is not None else crib.settings.default_cwd


def path_of(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or "\0" in text:
        raise InvalidRequest("request.invalid", f"{text!r} is not an absolute path.")
    return path


def json_list(shapes: Iterable[JsonObject]) -> Response:
    """Return a list of public shapes as a response.

    Serialized directly: validating hundreds of shapes takes longer than creating them and blocks the event loop.
    """
    return Response(dumps(list(shapes)), media_type="application/json")


async def while_connected(receive: Receive, work: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run `work` and return its result. Cancelled when the client disconnects."""
    done: list[Answer] = []
    failed: list[Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
        try:
            done.append(await work())
        except Exception as error:  # noqa: BLE001 boundary: re-raised below, outside the group that would wrap it
            failed.append(error)
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not done:
        raise ClientDisconnect
    return done[0]


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
