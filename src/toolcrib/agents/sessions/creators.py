"""The current rights of the principals that started sessions and schedules.

A session never has more rights than its creator. The creator is stored as it was at that time and updated here: a named
token to its current settings, or revoked; a session to its current mode.

Must never report that a revoked creator still has rights.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from toolcrib.gate.principals import NamedTokens
from toolcrib.model.principals import Mode, Principal


class Creators:
    """Resolves creators with the named tokens and the modes of the sessions that started others."""

    def __init__(self, tokens: NamedTokens, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when decisions for a creator's sessions may have changed."""
        self._tokens = tokens
        self._on_change = on_change
        self._modes: dict[str, Mode] = {}

    def current(self, creator: Principal) -> Principal | None:
        """Return the creator as it is now; None if it was revoked."""
        if creator.kind == "token":
            token = self._tokens.named(creator.name)
            if token is None or token.id != creator.token_id:
                return None
            return replace(creator, source=token.source, mode=token.mode, agent=token.agent)
        if creator.kind == "session" and creator.session is not None:
            return replace(creator, mode=self._modes.get(creator.session, creator.mode))
        return creator

    def revoked(self, principal: Principal | None) -> str | None:
        """Return a message if any principal in the creator chain was revoked, else None."""
        for each in chain(principal):
            if self.current(each) is None:
                return f'The token "{each.name}" that started it was revoked.'
        return None

    def unknown_sessions(self, creator: Principal | None) -> list[str]:
        """Return the sessions in the creator chain whose mode is not known yet."""
        sessions = (each.session for each in chain(creator) if each.kind == "session")
        return [session for session in sessions if session is not None and session not in self._modes]

    def learn(self, session: str, mode: Mode) -> None:
        """Store the mode of a session that started another one."""
        self._modes[session] = mode

    def set_mode(self, session: str, mode: Mode) -> None:
        """Update the mode of a session; re-evaluates decisions for the sessions it started."""
        if self._modes.get(session, mode) != mode:
            self._modes[session] = mode
            self._on_change()


def chain(creator: Principal | None) -> Iterator[Principal]:
    """Yield a creator, its creator, and so on."""
    while creator is not None:
        yield creator
        creator = creator.creator
