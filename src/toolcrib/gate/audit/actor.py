"""The actor of the current task: the principal, and the interface it uses, on whose behalf the crib changes something.

Each interface sets it once per request. Parts such as the zoo, the server definitions and the sessions then need no
argument for it, and their changes are recorded under the right principal.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, RunCall
from toolcrib.model.tools import CallResult


class Actor(NamedTuple):
    """A principal and the interface it uses."""

    principal: Principal
    door: str


_actor: ContextVar[Actor | None] = ContextVar("toolcrib.actor", default=None)


def current_actor() -> Actor | None:
    """Return the actor of this task, or None outside of any request, as in an embedding program."""
    return _actor.get()


@contextmanager
def acting(principal: Principal, door: str) -> Generator[None]:
    """Attribute changes in this block to the given principal."""
    token = _actor.set(Actor(principal, door))
    try:
        yield
    finally:
        _actor.reset(token)


def run_as_actor(run: RunCall, principal: Principal, door: str) -> RunCall:
    """Return a run whose changes are attributed to the given principal."""

    async def run_as(context: CallContext) -> CallResult:
        with acting(principal, door):
            return await run(context)

    return run_as
