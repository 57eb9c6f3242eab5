"""Approval requests, principals and a harness for tests of approvals."""

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


def approval_request(
    arguments: JsonObject | None = None, *, principal: Principal = SESSION, ref: ToolRef = DELETE
) -> ApprovalRequest:
    """Return a request of the session to delete a repository."""
    encoded = canonical({"repo": "toolcrib"} if arguments is None else arguments)
    return ApprovalRequest(ref, "d" * 64, encoded, principal, "mcp", "Mode default asks a person.", "call-1")


class ApprovalsHarness:
    """Approvals with the events they published and the rules they remembered."""

    approvals: Approvals

    def __init__(self) -> None:
        self.events: list[tuple[str, JsonObject]] = []
        self.rules: list[Rule] = []
        self.on_remember: Callable[[], None] = lambda: None
        self._changed = anyio.Event()

    def publish(self, kind: str, data: JsonObject) -> None:
        """Store an event."""
        self.events.append((kind, data))
        self._changed.set()
        self._changed = anyio.Event()

    async def remember(self, rule: Rule) -> None:
        """Store a rule."""
        self.on_remember()
        await anyio.lowlevel.checkpoint()
        self.rules.append(rule)

    async def wait_for_events(self, count: int) -> None:
        """Wait until this many events were published."""
        with anyio.fail_after(20):
            while len(self.events) < count:
                await self._changed.wait()

    @property
    def newest_id(self) -> str:
        """The id of the newest published approval."""
        return next(data["approvalId"] for kind, data in reversed(self.events) if kind == "approval_required")

    def resolved(self) -> list[JsonObject]:
        """Return the data of all `approval_resolved` events."""
        return [data for kind, data in self.events if kind == "approval_resolved"]

    async def answer_refused(self, code: str, *args: Any, **kwargs: Any) -> ToolcribError:
        """Answer, and return the error; it must have this code."""
        try:
            await self.approvals.answer(*args, **kwargs)
        except ToolcribError as error:
            assert error.code == code, error
            return error
        raise AssertionError("The answer was accepted.")


@asynccontextmanager
async def open_approvals(
    store: Store,
    *,
    crib: str = "crib",
    principals: Principals = PRINCIPALS,
    signal: Callable[[], object] = lambda: None,
) -> AsyncGenerator[ApprovalsHarness]:
    """Open approvals on a store."""
    harness = ApprovalsHarness()
    async with Approvals(
        store,
        crib=crib,
        publish=harness.publish,
        may_answer=principals.may_answer,
        may_remember=principals.may_remember,
        redact=shown,
        remember=harness.remember,
        signal=signal,
    ) as harness.approvals:
        yield harness
