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
from toolcrib.base.feed import Feed
from toolcrib.model.errors import ToolcribError
from toolcrib.model.events import Event
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


@dataclass(frozen=True, slots=True)
class ApprovalNotices:
    """Sends notices about approvals. Run `follow` for as long as the feed is open.

    `reminder` is the number of seconds until the second notice; 0 means none.
    """

    feed: Feed
    senders: Sequence[SendNotice]
    reminder: float

    async def follow(self) -> None:
        """Send notices about the approvals that this crib opens, until cancelled."""
        pending: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as tasks:
            stop = self.feed.listen(lambda event: self._hear(event, pending, tasks))
            try:
                await anyio.sleep_forever()
            finally:
                stop()

    def _hear(self, event: Event, pending: dict[str, anyio.CancelScope], tasks: TaskGroup) -> None:
        id = str(event.data.get("approvalId", ""))
        if event.kind == "approval_required" and len(pending) < MOST_AT_ONCE:
            pending[id] = anyio.CancelScope()
            tasks.start_soon(self._notify, event.data, pending)
        elif event.kind == "approval_resolved" and id in pending:
            pending[id].cancel()

    async def _notify(self, asked: JsonObject, pending: dict[str, anyio.CancelScope]) -> None:
        id: str = asked["approvalId"]
        try:
            with pending[id]:
                await self._send(asked, is_reminder=False)
                if self.reminder:
                    await anyio.sleep(self.reminder)
                    await self._send(asked, is_reminder=True)
        finally:
            pending.pop(id, None)

    async def _send(self, asked: JsonObject, *, is_reminder: bool) -> None:
        async def one(send: SendNotice) -> None:
            try:
                await send(asked, is_reminder)
            except ToolcribError as error:
                logger.warning("Could not send a notice about approval %s: %s", asked["approvalId"], error)

        async with anyio.create_task_group() as tasks:
            for send in self.senders:
                tasks.start_soon(one, send)


@dataclass(frozen=True, slots=True)
class LinkNotices:
    """Sends notices with the link to the channels."""

    notifier: Notifier
    link: MakeLink

    async def send(self, asked: JsonObject, is_reminder: bool) -> None:
        """Send a notice about an approval. Raises a `ToolcribError` if it is no longer pending."""
        title = "Approval still needed" if is_reminder else "Approval needed"
        link = await self.link(asked["approvalId"])
        call = f"{asked['server']}/{asked['tool']}"
        reason = str(asked["reason"])[:_LONGEST_REASON]
        message = f"{call}: {reason}\nExpires {asked['expiresAt']}, then the call is denied.\n{link}"
        notice = OwnerNotice(message, title, "warning", session=asked.get("sessionId"))
        more: JsonObject = {name: asked[name] for name in ("approvalId", "server", "tool", "expiresAt")}
        event = "approval_reminder" if is_reminder else "approval_required"
        await self.notifier.send(notice, {"event": event, "link": link, **more})
