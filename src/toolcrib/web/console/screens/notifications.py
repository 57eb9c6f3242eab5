"""Push notifications: browsers subscribe, renew their subscription, and are removed."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib.model.errors import Denied, InvalidRequest
from toolcrib.model.json import JsonObject, is_object, parse_strict
from toolcrib.web.console.responses import Console, back, route
from toolcrib.web.limits import BROWSER


def routes(console: Console) -> list[Route]:
    """Return the routes that the script of the console uses, and that of the settings page."""
    screen = NotificationsScreen(console)
    return [
        route("/notifications/key", screen.key, "POST"),
        route("/notifications", screen.subscribe, "POST"),
        route("/notifications/renew", screen.renew, "POST"),
        route("/notifications/{id}/remove", screen.remove, "POST"),
    ]


class NotificationsScreen:
    """Manages the subscriptions of browsers."""

    def __init__(self, console: Console) -> None:
        self._push = console.crib.push

    async def key(self, request: Request) -> Response:
        """Return the public key to subscribe with."""
        _signed_in(request)
        return JSONResponse({"key": await self._push.public_key()})

    async def subscribe(self, request: Request) -> Response:
        """Store the subscription of this browser."""
        login, shape = _signed_in(request), await _body(request)
        made = await self._push.subscribe(shape, browser=request.headers.get("user-agent", ""), login=login)
        return JSONResponse(made.to_json(), 201)

    async def renew(self, request: Request) -> Response:
        """Store the subscription of this browser again if it was not removed."""
        login, shape = _signed_in(request), await _body(request)
        made = await self._push.renew(shape, browser=request.headers.get("user-agent", ""), login=login)
        return JSONResponse(made.to_json())

    async def remove(self, request: Request) -> Response:
        """Remove a subscription."""
        await self._push.remove(request.path_params["id"])
        return back("/settings")


def _signed_in(request: Request) -> str:
    """Return the id of the browser's sign-in. Raises `policy.denied` for tokens, whose requests have none."""
    if (login := request.scope.get(BROWSER)) is None:
        raise Denied("policy.denied", "Only a signed-in browser can subscribe to notifications.")
    return login


async def _body(request: Request) -> JsonObject:
    shape = parse_strict(await request.body())
    if not is_object(shape):
        raise InvalidRequest("notify.invalid", "The push subscription is not an object.")
    return shape
