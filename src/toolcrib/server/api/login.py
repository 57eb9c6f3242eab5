"""`/api/login`: a new way into the console for the owner's browser."""

from fastapi import Request

from toolcrib.errors import Denied
from toolcrib.model.principals import Principal
from toolcrib.server.api.resource import Resource
from toolcrib.server.api.shapes import LoginAnswer
from toolcrib.server.guard import PRINCIPAL
from toolcrib.server.login import Logins


def routes(logins: Logins) -> Resource:
    """The routes, for these logins."""
    router = Resource("login")

    @router.post("", response_model=LoginAnswer)
    async def create_login(request: Request) -> LoginAnswer:
        """A link that opens the console once, within ten minutes."""
        principal: Principal = request.scope[PRINCIPAL]
        if not principal.is_owner:
            raise Denied("policy.denied", "Only the owner may open the console.")
        return LoginAnswer(url=logins.link())

    return router
