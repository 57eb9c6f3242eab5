"""`/api/login`: one-time login links for the owner's browser."""

from fastapi import Request

from toolcrib.model.errors import Denied
from toolcrib.model.principals import Principal
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import LoginAnswer
from toolcrib.web.limits import PRINCIPAL
from toolcrib.web.login import Logins


def routes(logins: Logins) -> Resource:
    """Return the routes for these logins."""
    router = Resource("login")

    @router.post("", response_model=LoginAnswer)
    async def create_login(request: Request) -> LoginAnswer:
        """Create a link that opens the console once, within ten minutes."""
        principal: Principal = request.scope[PRINCIPAL]
        if not principal.is_owner:
            raise Denied("policy.denied", "Only the owner may sign in to the console.")
        return LoginAnswer(url=await logins.link())

    return router
