"""Records changes of permissions in the same chain as calls: the principal, the change and the interface.

Like a call, a change writes an intent before and an outcome after it is made. Its `server` is `toolcrib`, its `tool`
the kind of change, such as `rules.add` or `tokens.revoke`, and its `arguments` describe the change.

Interfaces call `make` with the principal. Parts that change permissions (`model.changes.ChangeRecorder`) call `record`
and `noticed`, which use the actor of the current task. Must never make a change that could not be recorded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from toolcrib.gate.audit.actor import current_actor
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.change_body import change
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.store.batch import ConstraintError

_OWNER = Principal("owner", "owner", "api")
"""The actor outside of requests: the program that embeds the crib, which runs as the owner."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Changes:
    """Records the changes of one crib. `rules` returns the current version of the rules.

    `share` has other nodes adopt the change, before it is reported as made.
    """

    def __init__(
        self, audit: Audit, rules: Callable[[], str], share: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._audit = audit
        self._share = share
        self._rules = rules

    async def make(
        self, kind: str, changed: JsonObject, work: Callable[[], Awaitable[T]], *, by: Principal, door: str
    ) -> T:
        """Make a change. Its intent is durable before `work` starts, its outcome before the result is returned.

        Raises what `work` raises, and `Unavailable` (`audit.unavailable`) if it could not be recorded.
        """
        body = change(kind, changed, by, door, self._audit.redactor)
        call = body["call"] = f"{self._audit.run}-{body['call']}"  # the run of a killed crib is searched for its calls
        try:
            await self._record({"phase": "intent", **body, "rulesVersion": self._rules()})
        except Unavailable as error:
            self._audit.owed.add(call, {"isError": True, "abandoned": True})
            raise Unavailable("audit.unavailable", f"Nothing was changed. {error.message}") from error
        try:
            result = await work()
        except BaseException:  # boundary: a failed change records its outcome first
            self._append_soon({"phase": "outcome", **body, "rulesVersion": self._rules(), "isError": True})
            raise
        try:
            if self._share is not None:
                await self._share()
            await self._record({"phase": "outcome", **body, "rulesVersion": self._rules(), "isError": False})
        except Unavailable as error:
            self._audit.owed.add(call, {"isError": False})
            message = f"The change was made, but its outcome could not be recorded. {error.message}"
            raise Unavailable("audit.unavailable", message) from error
        return result

    async def record(self, kind: str, changed: JsonObject, work: Callable[[], Awaitable[T]], /) -> T:
        """Make a change on behalf of the current actor. Raises like `make`."""
        actor = current_actor()
        by, door = (_OWNER, "library") if actor is None else actor
        return await self.make(kind, changed, work, by=by, door=door)

    def noticed(self, kind: str, changed: JsonObject, /, *, by: Principal = _OWNER) -> None:
        """Record a change that was made elsewhere, without waiting."""
        body = change(kind, changed, by, "library", self._audit.redactor)
        self._append_soon({"phase": "outcome", **body, "rulesVersion": self._rules(), "isError": False})

    async def _record(self, body: JsonObject) -> None:
        try:
            await self._audit.record(body)
        except ConstraintError as error:
            raise Unavailable("audit.unavailable", "Another node has taken over the work of this one.") from error

    def _append_soon(self, body: JsonObject) -> None:
        def notice(recorded: "asyncio.Future[int]") -> None:
            if not recorded.cancelled() and (error := recorded.exception()) is not None:
                logger.error("Could not record a change: %s", error)
                self._audit.owed.add(str(body["call"]), {"isError": body["isError"]})

        self._audit.record(body).add_done_callback(notice)
