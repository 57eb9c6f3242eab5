"""Notices about pending approvals: one when the approval opens, one reminder later.

An approval that is not answered after the reminder expires, which denies the call. Notices go to channels, with the
link that answers the approval, and to subscribed browsers (`push_notices`). A link must never be published on the feed.
Notices do not contain the arguments, which the channel's service could read; the page of the link shows them.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from toolcrib.agents.notify.notifier import Notifier
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.notices import OwnerNotice

MOST_AT_ONCE = 100
"""Maximum approvals that are followed at the same time; no notices are sent for more."""

_LONGEST_REASON = 500

MakeLink: TypeAlias = Callable[[str], Awaitable[str]]
"""Returns the link for the approval with this id. Raises a `ToolcribError` if it is no longer pending."""
SendNotice: TypeAlias = Callable[[JsonObject, bool], Awaitable[None]]
"""Sends a notice about an approval: the data of its event, and whether this is the reminder."""

logger = logging.getLogger(__name__)


class ApprovalNotices:
    """Sends notices about the approvals that this crib opens. `hear` is called with their events while `follow` runs.

    `reminder` is the number of seconds until the second notice; 0 means none.
    """

    def __init__(self, senders: Sequence[SendNotice], reminder: float) -> None:
        self._senders = senders
        self._reminder = reminder
        self._pending: dict[str, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None

    async def follow(self) -> None:
        """Send notices until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    def hear(self, kind: str, data: JsonObject) -> None:
        """Send a notice about an approval that opens, and no more about one that is resolved."""
        id = str(data.get("approvalId", ""))
        if kind == "approval_required" and self._tasks is not None and len(self._pending) < MOST_AT_ONCE:
            self._pending[id] = anyio.CancelScope()
            self._tasks.start_soon(self._notify, data, self._pending)
        elif kind == "approval_resolved" and id in self._pending:
            self._pending[id].cancel()

    async def _notify(self, asked: JsonObject, pending: dict[str, anyio.CancelScope]) -> None:
        id: str = asked["approvalId"]
        try:
            with pending[id]:
                await self._send(asked, is_reminder=False)
                if self._reminder:
                    await anyio.sleep(self._reminder)
                    await self._send(asked, is_reminder=True)
        finally:
            pending.pop(id, None)

    async def _send(self, asked: JsonObject, *, is_reminder: bool) -> None:
        async def one(send: SendNotice) -> None:
            try:
                await send(asked, is_reminder)
            except ToolcribError as error:
                logger.warning("Could not send a notice about approval %s: %s", asked["approvalId"], error)
            except Exception:  # boundary: a defect in a notice must not end the crib
                logger.exception("Could not send a notice about approval %s.", asked["approvalId"])

        async with anyio.create_task_group() as tasks:
            for send in self._senders:
                tasks.start_soon(one, send)


@dataclass(frozen=True, slots=True)
class LinkNotices:
    """Sends notices with the link to the channels."""

    notifier: Notifier
    link: MakeLink
    mask: Callable[[str], str]
    """Masks the secrets in the reason."""

    async def send(self, asked: JsonObject, is_reminder: bool) -> None:
        """Send a notice about an approval. Raises a `ToolcribError` if it is no longer pending."""
        title = "Approval still needed" if is_reminder else "Approval needed"
        link = await self.link(asked["approvalId"])
        call = f"{asked['server']}/{asked['tool']}"
        reason = self.mask(str(asked["reason"]))[:_LONGEST_REASON]
        message = f"{call}: {reason}\nExpires {asked['expiresAt']}, then the call is denied.\n{link}"
        notice = OwnerNotice(message, title, "warning", session=asked.get("sessionId"))
        more: JsonObject = {name: asked[name] for name in ("approvalId", "server", "tool", "expiresAt")}
        event = "approval_reminder" if is_reminder else "approval_required"
        await self.notifier.send(notice, {"event": event, "link": link, **more})
