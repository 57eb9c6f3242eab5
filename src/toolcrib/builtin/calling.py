"""Who calls a crew tool: the agent or session it needs, who a session started by it answers to, signs of life.

Above: all crew tools. Below: `tools`, `model`. It must never give what is started on behalf of a call more than the
caller has.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Annotated, Final

import anyio

from toolcrib.errors import Denied, InvalidRequest
from toolcrib.model.principals import Principal
from toolcrib.tools import Context, Inject

DEEPEST: Final = 3
"""So many times work may be handed on, one to the next."""
SIGN_OF_LIFE: Final = 10.0
_A_LITTLE: Final = 1e-6
"""By so much a call is further with each sign of life: progress has to grow."""

Calling = Annotated[Context, Inject]


def own_agent(context: Context) -> str:
    """The agent that calls; raises `crew.no_agent`."""
    if context.agent is None:
        raise InvalidRequest("crew.no_agent", "This call comes from no agent, so it has no memory of its own.")
    return context.agent


def own_session(context: Context) -> str:
    """The session the call is made in; raises `crew.no_session`."""
    if context.session is None:
        raise InvalidRequest("crew.no_session", "This call comes from no session.")
    return context.session


def as_creator(principal: Principal) -> Principal:
    """Who answers for what a call starts. What a person does by hand ends with that call."""
    return replace(principal, by_hand=False)


def speaker(principal: Principal) -> str:
    """Who speaks, as others are told."""
    return principal.agent or principal.name


def depth(principal: Principal) -> int:
    """How many have handed the work on before it came here."""
    return 0 if principal.creator is None else depth(principal.creator) + 1


def is_scheduled(principal: Principal) -> bool:
    """Whether a schedule is behind this call, however far up: then nobody is there to be asked."""
    above = principal.creator
    return principal.source == "scheduler" or (above is not None and is_scheduled(above))


def check_depth(principal: Principal) -> None:
    """Raise `crew.too_deep` where the work was handed on too often already."""
    if depth(principal) >= DEEPEST:
        raise Denied("crew.too_deep", f"This work was handed on {DEEPEST} times already, as often as may be.")


@asynccontextmanager
async def signs_of_life(context: Context, message: str) -> AsyncGenerator[None]:
    """Tell the caller now and then that the call still waits, and for what."""

    async def report() -> None:
        for number in count(1):
            await context.progress(number * _A_LITTLE, None, message)
            await anyio.sleep(SIGN_OF_LIFE)

    async with anyio.create_task_group() as beside:
        beside.start_soon(report)
        yield
        beside.cancel_scope.cancel()
