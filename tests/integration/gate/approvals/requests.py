"""Questions, people and programs for tests of approvals. Not a test itself."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from toolcrib.base.masking.values import shown
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.principals import Principals
from toolcrib.model.approvals import ApprovalRequest
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.policy import Rule
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.engine import Store

PRINCIPALS = Principals("a-token-of-the-owner")
OWNER = PRINCIPALS.owner("cli")
CONSOLE = PRINCIPALS.owner("web")
SESSION = Principal("session", "session-1", "web", "default", agent="reviewer", session="session-1")
DELETE = ToolRef("github", "delete_repo")


def question(
    arguments: JsonObject | None = None, *, principal: Principal = SESSION, ref: ToolRef = DELETE
) -> ApprovalRequest:
    """May the session delete a repository?"""
    encoded = canonical({"repo": "toolcrib"} if arguments is None else arguments)
    return ApprovalRequest(ref, "d" * 64, encoded, principal, "mcp", "Mode default asks a person.", "call-1")


class Desk:
    """Approvals with everything they told and remembered."""

    approvals: Approvals

    def __init__(self) -> None:
        self.events: list[tuple[str, JsonObject]] = []
        self.rules: list[Rule] = []
        self.on_remember: Callable[[], None] = lambda: None
        self._news = anyio.Event()

    def publish(self, kind: str, data: JsonObject) -> None:
        """Take an event in."""
        self.events.append((kind, data))
        self._news.set()
        self._news = anyio.Event()

    async def remember(self, rule: Rule) -> None:
        """Take a rule in."""
        self.on_remember()
        await anyio.lowlevel.checkpoint()
        self.rules.append(rule)

    async def told(self, count: int) -> None:
        """Wait until there are so many events."""
        with anyio.fail_after(20):
            while len(self.events) < count:
                await self._news.wait()

    @property
    def open_id(self) -> str:
        """The newest question that was announced."""
        return next(data["approvalId"] for kind, data in reversed(self.events) if kind == "approval_required")

    def resolved(self) -> list[JsonObject]:
        """What became of the questions, in order."""
        return [data for kind, data in self.events if kind == "approval_resolved"]

    async def refused(self, code: str, *given: Any, **named: Any) -> ToolcribError:
        """Answer, and be refused with this code."""
        try:
            await self.approvals.answer(*given, **named)
        except ToolcribError as error:
            assert error.code == code, error
            return error
        raise AssertionError("The answer was taken.")


@asynccontextmanager
async def desk(
    store: Store,
    *,
    crib: str = "crib",
    principals: Principals = PRINCIPALS,
    signal: Callable[[], object] = lambda: None,
) -> AsyncGenerator[Desk]:
    """Open approvals on a store."""
    at = Desk()
    async with Approvals(
        store,
        crib=crib,
        publish=at.publish,
        may_answer=principals.may_answer,
        may_remember=principals.may_remember,
        redact=shown,
        remember=at.remember,
        signal=signal,
    ) as at.approvals:
        yield at
