"""What an agent is told when another crib continues a turn that its own crib left unfinished. Pure."""

from collections.abc import Iterator
from typing import Final

from toolcrib.agents.sessions.open_items import OpenItems
from toolcrib.model.sessions import Session

CONTINUED: Final = "The node that ran the session stopped. Another one continues the turn."
_CONTINUE: Final = (
    "The machine that you were running on stopped in the middle of this turn, and you continue on another one. The "
    "outcome of calls that were in flight is unknown: check what they did before you repeat one. Continue with the "
    "task."
)


def continuing_prompts(session: Session, left: OpenItems) -> Iterator[tuple[str, str]]:
    """Yield message id and text of the prompts that are left to answer, the interrupted one first.

    A turn that had no effect yet begins again with its prompt. Any other one is continued, because its prompt would
    have the agent repeat its calls.
    """
    for number, event in enumerate(left.unanswered):
        message, text = str(event.data["messageId"]), str(event.data["content"])
        if number == 0 and left.has_begun:
            text = _CONTINUE if session.runtime is not None else f"{text}\n\n{_CONTINUE}"
        yield message, text
