"""Changes of what is allowed, on record in the same chain as the calls: who changed what, through which door.

A change leaves an intent before it is made and an outcome after it, as a call does. Its `server` is `toolcrib`, its
`tool` the kind of change, such as `rules.add` or `tokens.revoke`, and its `arguments` say what was changed.

Above: the doors make changes through here; `host` tells what it noticed by itself, such as other rules in a file.
Below: `records`. It must never make a change that could not be recorded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from toolcrib.audit.records import Audit
from toolcrib.audit.told import change
from toolcrib.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Changes:
    """The changes of one crib; `rules` gives the version of the rules that are in force."""

    def __init__(self, audit: Audit, rules: Callable[[], str]) -> None:
        self._audit = audit
        self._rules = rules

    async def make(
        self, kind: str, changed: JsonObject, work: Callable[[], Awaitable[T]], *, by: Principal, door: str
    ) -> T:
        """Make a change, which is on record before it begins and before anybody is told that it is done.

        Raises what `work` raises, and `Unavailable` (`audit.unavailable`) if it could not be recorded.
        """
        body = change(kind, changed, by, door)
        try:
            await self._audit.record({"phase": "intent", **body, "rulesVersion": self._rules()})
        except Unavailable as error:
            raise Unavailable("audit.unavailable", f"Nothing was changed. {error.message}") from error
        try:
            result = await work()
        except BaseException:  # boundary: a change that broke off leaves its outcome before it ends
            self._tell({"phase": "outcome", **body, "rulesVersion": self._rules(), "isError": True})
            raise
        try:
            await self._audit.record({"phase": "outcome", **body, "rulesVersion": self._rules(), "isError": False})
        except Unavailable as error:
            message = f"The change was made, but how it ended could not be recorded. {error.message}"
            raise Unavailable("audit.unavailable", message) from error
        return result

    def noticed(self, kind: str, changed: JsonObject, *, by: Principal) -> None:
        """Record a change that was made elsewhere, without waiting."""
        body = change(kind, changed, by, "library")
        self._tell({"phase": "outcome", **body, "rulesVersion": self._rules(), "isError": False})

    def _tell(self, body: JsonObject) -> None:
        self._audit.record(body).add_done_callback(_log_failure)


def _log_failure(recorded: "asyncio.Future[int]") -> None:
    if not recorded.cancelled() and (error := recorded.exception()) is not None:
        logger.error("A change could not be recorded: %s", error)
