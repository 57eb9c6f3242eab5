"""The caller of a crew tool: its agent and session, the creator of what it starts, and progress while waiting.

Must never grant work started on behalf of a call more rights than the caller has.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Annotated, Final

import anyio

from toolcrib.agents.zoo.brain import ITSELF, OWNER, Author
from toolcrib.model.errors import Denied, InvalidRequest
from toolcrib.model.principals import Principal
from toolcrib.tools import Context, Inject

DEEPEST: Final = 3
"""Maximum number of times work may be delegated in a chain."""
PROGRESS_SECONDS: Final = 10.0
_STEP: Final = 1e-6
"""Progress added per keep-alive, because progress values must increase."""

Calling = Annotated[Context, Inject]


def own_agent(context: Context) -> str:
    """Return the calling agent; raise `crew.no_agent` if there is none."""
    if context.agent is None:
        raise InvalidRequest(
            "crew.no_agent", "The caller is not an agent, so it has no memory. Call the tool as an agent."
        )
    return context.agent


def own_session(context: Context) -> str:
    """Return the session of the call; raise `crew.no_session` if there is none."""
    if context.session is None:
        raise InvalidRequest("crew.no_session", "The call was not made in a session.")
    return context.session


def author_of(principal: Principal, agent: str) -> Author:
    """Return the author of an entry in an agent's brain."""
    if principal.agent is not None:
        return ITSELF if principal.agent == agent else Author("other", f'agent "{principal.agent}"')
    if principal.kind == "owner":
        return OWNER
    return Author("other", f'token "{principal.name}"' if principal.kind == "token" else "a session without an agent")


def as_creator(principal: Principal) -> Principal:
    """Return the principal responsible for what a call starts; `by_hand` does not carry over."""
    return replace(principal, by_hand=False)


def speaker(principal: Principal) -> str:
    """Return the name of the caller as displayed to others."""
    return principal.agent or principal.name


def depth(principal: Principal) -> int:
    """Return how often the work was delegated before this call."""
    return 0 if principal.creator is None else depth(principal.creator) + 1


def is_scheduled(principal: Principal) -> bool:
    """Return whether a schedule is at the root of this call, so that no user is available to ask."""
    above = principal.creator
    return principal.source == "scheduler" or (above is not None and is_scheduled(above))


def check_depth(principal: Principal) -> None:
    """Raise `crew.too_deep` if the work was delegated too often."""
    if depth(principal) >= DEEPEST:
        raise Denied("crew.too_deep", f"Delegation limit reached: this work was delegated {DEEPEST} times.")


@asynccontextmanager
async def reporting_progress(context: Context, message: str) -> AsyncGenerator[None]:
    """Report progress periodically while a call waits."""

    async def report() -> None:
        for number in count(1):
            await context.progress(number * _STEP, None, message)
            await anyio.sleep(PROGRESS_SECONDS)

    async with anyio.create_task_group() as beside:
        beside.start_soon(report)
        yield
        beside.cancel_scope.cancel()
