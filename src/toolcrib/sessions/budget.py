"""What agents may use, as sessions know it: asked before a turn and before a call, told after a turn.

Above: live sessions and their desks. Below: `credits` is the one that counts.
"""

from typing import Protocol

from toolcrib.model.sessions import Failure, Session, Spent


class Budget(Protocol):
    """What sessions may use."""

    async def exhausted(self, session: Session) -> Failure | None:
        """Why a turn must not begin, if it must not."""
        ...

    def call(self, session: Session) -> str | None:
        """Count a call that is about to be made; gives why it must not, if it must not."""
        ...

    async def charge(self, session: Session, spent: Spent) -> Failure | None:
        """Take up what a turn has used; gives why the turn had to do without calls, if it had to."""
        ...
