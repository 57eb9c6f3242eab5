"""The crew tool for the current session: extend its timeout."""

import math
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.agents.sessions.live_session import MOST_EXTENDED
from toolcrib.agents.sessions.sessions import Sessions
from toolcrib.builtin.caller import Calling, own_session
from toolcrib.tools import Inject, tool

_MOST_MINUTES = int(MOST_EXTENDED / 60)


class Extended(TypedDict):
    """The answer to `crib_extend_timeout`; null: the turn has no limit."""

    minutes: float
    secondsLeft: float | None


@tool(title="Extend the timeout")
async def crib_extend_timeout(
    minutes: Annotated[float, "Minutes to add.", Field(gt=0, le=_MOST_MINUTES)],
    *,
    sessions: Annotated[Sessions, Inject],
    context: Calling,
) -> Extended:
    """Extend the current turn, by 60 minutes in total.

    Use it before the time is up, when the work will take longer than the limit of the session. Returns the remaining
    seconds; null without a limit.
    """
    left = await sessions.extend(own_session(context), minutes * 60)
    return {"minutes": minutes, "secondsLeft": None if math.isinf(left) else round(left, 1)}


TOOLS = (crib_extend_timeout,)
